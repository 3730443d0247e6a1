package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/site"
)

type noMisfits struct{ app.Images }

func (noMisfits) Misfits(*site.Site) ([]fault.Problem, error) { return nil, nil }

// An image is named once, however many packs use it.
func TestEachImageOnce(t *testing.T) {
	s := &site.Site{DomainDir: filepath.Join("..", "domains", "examples")}
	s.Storage.ImageStore = t.TempDir()
	d := &checks{Config: Config{Images: noMisfits{}}}
	d.images(t.Context(), s, d.domain(t.Context(), s))
	found := map[string]int{}
	for _, f := range d.answer.Findings {
		if strings.HasPrefix(f.Check, "image ") {
			found[f.Check]++
		}
	}
	if found["image textkit"] != 1 || found["image samtools"] != 1 {
		t.Errorf("%v in %+v", found, d.answer)
	}
}
