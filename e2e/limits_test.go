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

// What a caller imports and what its runs make count for its quota, in all projects; beyond it imports and new runs are refused with what
// is used and allowed, and others are not concerned.
//
// proves OPS-03
func TestCallerQuota(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "domain_dir:", `  socket: `+s.dir+`/gw.sock
access:
  peers: [{user: alice, capabilities: [gateway, read, import, slurm], projects: [demo, other]}]
limits: {callers: [{caller: "user:alice", quota_mb: 1}]}
domain_dir:`)
	s.replace("site.yaml", "/files, projects: [demo]}", "/files, projects: [demo, other]}")
	s.serve()
	type use struct {
		Stored struct {
			Artifacts, Bytes int64
			MaxBytes         *int64 `json:"max_bytes"`
		}
	}
	stored := func(user string) (u use) {
		t.Helper()
		s.user(user, nil, "usage").object(t, &u)
		return u
	}
	var made submitted
	s.user("alice", nil, "run", "probe.words", "--param", "word=quota").object(t, &made)
	s.wait(made.RunID)
	ofRun := stored("alice").Stored
	if ofRun.Artifacts < 2 || ofRun.Bytes == 0 || ofRun.MaxBytes == nil || *ofRun.MaxBytes != 1<<20 {
		t.Errorf("what her run made: %+v", ofRun)
	}
	big := func(name, letter string) string { return s.file(name, strings.Repeat(letter, 600<<10)) }
	first, second := big("first", "a"), big("second", "b")
	s.user("alice", nil, "artifact", "import", first).object(t, nil)
	f := s.user("alice", nil, "artifact", "import", second, "--project", "other").failure(t, 4)
	if f.Code != "quota_exceeded" || !strings.Contains(f.Message, "of 1 MiB in all projects") || len(f.Details.Problems) != 1 ||
		f.Details.Problems[0].Code != "CAP-STORED-BYTES" || f.Details.Problems[0].Field != "limits.callers[0].quota_mb" {
		t.Errorf("%+v", f)
	}
	s.user("alice", nil, "artifact", "import", first).object(t, nil) // what she has is found
	s.user("alice", nil, "artifact", "import", s.file("third", strings.Repeat("c", 300<<10))).object(t, nil)
	if now := stored("alice").Stored; now.Bytes != ofRun.Bytes+900<<10 || now.Artifacts != ofRun.Artifacts+2 {
		t.Errorf("%+v after %+v", now, ofRun)
	}
	if u := stored("lab").Stored; u.Artifacts != 0 || u.MaxBytes != nil {
		t.Errorf("lab keeps %+v", u)
	}
	s.import1(second)
	s.ran("lab's")
}
