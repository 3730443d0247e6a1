package toolpack

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// unit is what a numeric parameter of a shipped pack counts or measures. A new one is added here.
var unit = regexp.MustCompile(`\b(bases?|Phred|fraction|how many (genes|hits|reads|sequences|words|positions)|reads of each file|` +
	`number of (copies|rows|the last page)|maximum number of rows|pixels|without a unit)\b`)

// Every numeric parameter of a shipped pack says its unit, or what it counts: people and models choose values by that alone.
func TestUnits(t *testing.T) {
	dirs, err := filepath.Glob("../domains/*")
	if err != nil || len(dirs) < 2 {
		t.Fatal(dirs, err)
	}
	type param struct {
		Type        any
		Description string
		Items       *param
	}
	numeric := func(p *param) bool {
		return p != nil && slices.ContainsFunc([]any{"integer", "number"}, func(is any) bool { return p.Type == is })
	}
	n := 0
	for _, dir := range dirs {
		d, err := openDir(dir, AllowMissingImages)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Packs().List() {
			var schema struct{ Properties map[string]param }
			if err := json.Unmarshal(p.InputSchema(), &schema); err != nil {
				t.Fatal(p.ID(), err)
			}
			for name, x := range schema.Properties {
				if !numeric(&x) && !numeric(x.Items) {
					continue
				}
				if n++; !unit.MatchString(x.Description) {
					t.Errorf("%s: the parameter %s has no unit: %q", p.ID(), name, x.Description)
				}
			}
		}
	}
	if n < 15 {
		t.Errorf("%d numeric parameters: this test looks for the wrong thing", n)
	}
}
