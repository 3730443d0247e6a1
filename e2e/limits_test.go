package e2e

import (
	"strings"
	"testing"
	"time"
)

// concurrency.per_tool of a toolpack is how many of its jobs Slurm has at a time, across restarts. The next run goes when one ends.
//
// proves AX-08
func TestRunsPerTool(t *testing.T) {
	s := newSite(t, "probing")
	s.replace("domain/policies.yaml", "version: 1", "version: 1\nconcurrency: {per_tool: {probe_small: 2}}")
	s.replace("domain/toolpacks/probe.small.tool.yaml", "resources:", "placement: {partition: big}\nresources:") // where jobs wait
	d := s.serve()
	ids := make([]string, 3)
	for i, word := range []string{"a", "b", "c"} {
		var a struct {
			ID string `json:"run_id"`
		}
		s.ok(&a, "run", "probe.small", "--param", "word="+word)
		ids[i] = a.ID
	}
	waits := func() {
		t.Helper()
		l := s.phase(ids[2], "deferred")
		if l.Reason == nil || !strings.HasPrefix(*l.Reason, "concurrency_limit: policy allows 2 runs of probe.small at a time") ||
			l.SlurmJobID != nil {
			t.Errorf("%+v", l)
		}
	}
	s.phase(ids[0], "pending")
	s.phase(ids[1], "pending")
	waits()
	d.signal("TERM")
	d.ended(t)
	s.serve()
	waits()
	s.ok(nil, "cancel", ids[0])
	began := time.Now()
	s.phase(ids[2], "pending")
	t.Logf("name=place_after_cancel value=%.2f unit=s", time.Since(began).Seconds())
	s.ok(nil, "cancel-all", "--yes")
}
