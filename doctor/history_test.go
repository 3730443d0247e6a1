package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/site"
)

// Each node at which runs failed is named once, with its faults and the way to look at it; a ledger that cannot be read is not ok.
func TestNodeHistory(t *testing.T) {
	var answer []NodeFault
	var failing error
	x := &Exam{Cluster: &site.Site{}, Config: Config{NodeFaults: func(context.Context, *site.Site, time.Time) ([]NodeFault, error) {
		return answer, failing
	}}}
	if r := history(t.Context(), x); len(r) != 1 || r[0].Status != app.CheckOK {
		t.Errorf("%+v", r)
	}
	answer = []NodeFault{{"n1", "image_missing", 3, time.Unix(0, 0), "run_A"}, {"n2", "runtime_missing", 1, time.Unix(0, 0), "run_B"},
		{"n1", "no_user_namespaces", 1, time.Unix(0, 0), "run_C"}}
	r := history(t.Context(), x)
	if len(r) != 2 || r[0].Status != app.CheckWarning || !strings.Contains(r[0].Found, "n1: 3 runs image_missing") ||
		!strings.Contains(r[0].Found, "1 run no_user_namespaces") || !strings.Contains(r[0].Remedy, "--node n1") {
		t.Errorf("%+v", r)
	}
	failing = errors.New("disk I/O error")
	if r := history(t.Context(), x); len(r) != 1 || r[0].Status == app.CheckOK {
		t.Errorf("%+v", r)
	}
	if r := history(t.Context(), &Exam{}); r[0].Status != app.CheckUnknown {
		t.Errorf("%+v", r)
	}
}
