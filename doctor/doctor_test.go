package doctor

import (
	"os"
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

// A file or folder of the domain that every user of the host can change is named, and so is a folder above in which it could be replaced; a
// sticky folder such as /tmp protects what is in it.
func TestInstalledFiles(t *testing.T) {
	dir := t.TempDir()
	packs := filepath.Join(dir, "above", "domain", "toolpacks")
	if err := os.MkdirAll(packs, 0o755); err != nil {
		t.Fatal(err)
	}
	pack := filepath.Join(packs, "x.tool.yaml")
	if err := os.WriteFile(pack, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := &site.Site{DomainDir: filepath.Join(dir, "above", "domain")}
	for _, c := range []struct {
		path string
		mode os.FileMode
		warn string
	}{
		{pack, 0o644, ""}, {pack, 0o666, pack}, {pack, 0o664, ""}, {packs, 0o777, packs},
		{filepath.Join(dir, "above"), 0o777, filepath.Join(dir, "above")}, {filepath.Join(dir, "above"), 0o777 | os.ModeSticky, ""},
	} {
		before, err := os.Stat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		d := &checks{}
		d.installed(s)
		if f := d.answer.Findings[0]; (f.Status == "warn") != (c.warn != "") || !strings.Contains(f.Detail, c.warn) {
			t.Errorf("%s %v: %+v", c.path, c.mode, f)
		}
		if err := os.Chmod(c.path, before.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}
