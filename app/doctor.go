package app

import (
	"context"
	"time"

	"slurmgate/gate"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warn, fail
	Detail string `json:"detail"`
	Next   string `json:"next,omitempty"`
}

type DoctorAnswer struct {
	Site     string    `json:"site"`
	Findings []Finding `json:"findings"`
	Failed   int       `json:"failed"`
	Warned   int       `json:"warned"`
}

type DoctorArgs struct {
	Site   string `json:"site"`
	NoJobs bool   `json:"no_jobs,omitzero"`
}

// DoctorTool checks a site with the given function.
func DoctorTool(examine func(context.Context, DoctorArgs) DoctorAnswer) gate.Tool {
	t := builtin("site.doctor", "Check the site", "Checks the site end to end, including compute nodes.", gate.Execute,
		object("site", prop("site", pathSchema), prop("no_jobs", `{"type":"boolean"}`)),
		handler(func(ctx context.Context, _ gate.Call, a DoctorArgs) (any, error) { return examine(ctx, a), nil }))
	t.Timeout = 10 * time.Minute
	return t
}
