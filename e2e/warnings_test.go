package e2e

import (
	"strings"
	"testing"
)

// A run succeeds with a warning, which every face shows, if its program exits 0 and writes errors to standard error.
func TestStderrWarningOnEveryFace(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	p := s.openPort(t)
	run := s.submit(probePlan("print", `reading\nerror: record 7 is truncated\n`)).RunID
	if l := s.wait(run); l.State != "succeeded" || len(l.Warnings) != 1 {
		t.Fatalf("%v, warnings %q; want it succeeded with one warning", l, l.Warnings)
	}
	const line = "error: record 7 is truncated"
	for _, args := range [][]string{{"get", run}, {"collect", run}, {"wait", run}, {"runs", "show", run}, {"get", run, "--json"},
		{"collect", run, "--json"}} {
		if r := s.cli(args...); !strings.Contains(string(r.stdout)+string(r.stderr), line) {
			t.Errorf("%v does not show the warning: %v", args, r)
		}
	}
	for _, path := range []string{"/v1/runs/" + run, "/v1/runs/" + run + "/result", "/v1/runs/" + run + "/story"} {
		if status, body := p.send("GET", path, ""); status != 200 || !strings.Contains(string(body), line) {
			t.Errorf("GET %s does not show the warning: %d %s", path, status, body)
		}
	}
	c := s.chat(t, "2026-07-28")
	for _, tool := range []string{"slurm_job_get", "slurm_job_collect"} {
		c.expect(c.say(tool, tree{"run_id": run}, nil), line)
	}
}
