package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"slurmgate/plan"
	"slurmgate/policy/programs"
)

// withoutMoved takes import.roots out of a document, with a section that is empty without it, and reports whether it was there. The key was
// part of the policy, and of its hash, before it moved to the site file: where data lies at a site is no reason for another run.
func withoutMoved(tree any) bool {
	doc, _ := tree.(map[string]any)
	section, _ := doc["import"].(map[string]any)
	if _, found := section["roots"]; !found {
		return false
	}
	if delete(section, "roots"); len(section) == 0 {
		delete(doc, "import")
	}
	return true
}

// HashNow returns the hash that a stored snapshot has now: an older one may hold the key that has moved.
func HashNow(snapshot json.RawMessage) (string, error) {
	doc, err := plan.Read(snapshot)
	if err != nil {
		return "", err
	}
	withoutMoved(doc.Value)
	canonical, err := plan.Marshal(doc.Value)
	return plan.Hash(canonical), err
}

// Notes says what the file should not have, for whoever maintains it.
func (p *Policy) Notes() (notes []string) {
	if p.Moved {
		notes = append(notes, "policies.yaml: import.roots belongs in the site file now; move it there. Until the site file has it, the value "+
			"here is "+
			"used; it is no longer part of the policy's hash")
	}
	raw := p.Slurm.RawPlans
	if !raw.Allowed {
		return notes
	}
	for _, image := range slices.Sorted(maps.Keys(raw.EntryPrograms)) {
		for _, name := range raw.EntryPrograms[image] {
			if programs.RunsFiles(name) {
				notes = append(notes, fmt.Sprintf("policies.yaml: slurm.raw_plans.entry_programs lists %s for the image %s: %[1]s runs code that is "+
					"given to it "+
					"in a file or an argument, so a raw plan runs any code there; list programs that do one thing, or write a toolpack", name, image))
			}
		}
	}
	return notes
}
