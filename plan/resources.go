package plan

import (
	"cmp"
	"fmt"
	"strings"

	"slurmgate/fault"
)

// MoreResources are the resources that a call, or a retry, asks for in place of the tool's own; null: the tool's.
type MoreResources struct {
	CPUs             *int `json:"cpus,omitzero"`
	MemMB            *int `json:"mem_mb,omitzero"`             // MiB
	TimeLimitSeconds *int `json:"time_limit_seconds,omitzero"` // seconds
}

// None reports whether no resource is asked for.
func (m MoreResources) None() bool { return m == MoreResources{} }

// On returns r with the values of m where m has them.
func (m MoreResources) On(r Resources) Resources {
	r.CPUs = *cmp.Or(m.CPUs, &r.CPUs)
	r.MemMB = *cmp.Or(m.MemMB, &r.MemMB)
	r.TimeLimitSeconds = *cmp.Or(m.TimeLimitSeconds, &r.TimeLimitSeconds)
	return r
}

// Validate applies the rules of a plan's resources, and reports the problems under a field.
func (r Resources) Validate(field string) error {
	var v validator
	v.resources(r)
	if len(v.problems) == 0 {
		return nil
	}
	for i := range v.problems {
		v.problems[i].Field = field + strings.TrimPrefix(v.problems[i].Field, "resources")
	}
	return fault.Invalid("a job cannot have these resources", v.problems...)
}

// Raised lists what is more in r than in was, for example "memory from 2048 to 4096 MiB"; empty if nothing is.
func (r Resources) Raised(was Resources) string {
	var parts []string
	add := func(what, unit string, from, to int) {
		if to != from {
			parts = append(parts, fmt.Sprintf("%s from %d to %d%s", what, from, to, unit))
		}
	}
	add("memory", " MiB", was.MemMB, r.MemMB)
	add("time limit", " s", was.TimeLimitSeconds, r.TimeLimitSeconds)
	add("CPUs", "", was.CPUs, r.CPUs)
	return strings.Join(parts, ", ")
}
