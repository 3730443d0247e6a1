package policy

import (
	"fmt"
	"maps"
	"slices"

	"slurmgate/policy/programs"
)

// Notes lists what the policy should not have, for its maintainer.
func (p *Policy) Notes() (notes []string) {
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
