package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// samples writes a sheet of n samples with a text each.
func (s *site) samples(name, column string, n int) (sheet string) {
	s.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "sample,%s\n", column)
	for i := range n {
		fmt.Fprintf(&b, "S%d,%s\n", i, s.file(fmt.Sprintf("%s-%d.txt", name, i), fmt.Sprintf("%s %d\n", name, i)))
	}
	return s.file(name+".csv", b.String())
}

// startedAfter lists what was created or sent to Slurm after a time, and which attempts started.
func (s *site) startedAfter(at time.Time) (late []string) {
	s.t.Helper()
	var l struct {
		Runs []struct {
			RunID string `json:"run_id"`
		}
	}
	s.ok(&l, "runs", "list", "--limit", "200")
	for _, r := range l.Runs {
		var v struct {
			Events []struct {
				At   time.Time
				Type string
			}
			Attempts []struct {
				StartedAt *time.Time `json:"started_at"`
			}
		}
		s.ok(&v, "runs", "show", r.RunID)
		for _, e := range v.Events {
			if e.At.After(at) && (e.Type == "run.created" || e.Type == "run.intent") {
				late = append(late, r.RunID+" "+e.Type)
			}
		}
		for _, a := range v.Attempts {
			if a.StartedAt != nil && a.StartedAt.After(at.Add(time.Second)) { // Slurm counts in seconds
				late = append(late, r.RunID+" started")
			}
		}
	}
	return late
}

// cancel-all is about batches that are being submitted, chains and runs that wait for others too: when it has answered nothing of them
// starts any more.
//
// proves MANY-01 MANY-04
// short: many runs
func TestCancelAllStopsWhatWouldStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing", func(f *siteFile) { f.Apptainer = f.Dir + "/files/apptainer" })
	s.chainTools("one", "two", "three")
	release := s.holdPrograms()
	s.serve()
	s.ok(nil, "batch", "run", "--steps", s.file("steps.yaml", chainSteps), "--sheet", s.samples("chain", "text", 20), "--name", "chain")
	s.ok(nil, "batch", "run", "chain.one", "--sheet", s.samples("rows", "text", 40), "--name", "rows")
	source := s.submit(s.set(probePlan("nothing"), "placement.partition", "big")).RunID
	var waits submitted
	if s.ok(&waits, "run", "chain.two", "-i", "text="+source+":result"); waits.Phase != "waiting_for_inputs" {
		t.Errorf("run on the output of a run in the queue: phase %s, want waiting_for_inputs", waits.Phase)
	}
	var would struct {
		Batches []struct{ Name string } `json:"would_cancel_batches"`
	}
	if s.ok(&would, "cancel-all"); fmt.Sprint(would.Batches) != "[{rows} {chain}]" {
		t.Errorf("cancel-all without --yes lists the batches %v, want rows and chain", would.Batches)
	}
	release()
	var out struct {
		Failed []string
	}
	if s.ok(&out, "cancel-all", "--yes"); len(out.Failed) > 0 {
		t.Errorf("cancel-all could not cancel %v", out.Failed)
	}
	acknowledged := time.Now()
	for _, name := range []string{"rows", "chain"} {
		until(t, "end of "+name, func() bool {
			var now batchNow
			s.ok(&now, "batch", "status", name)
			return now.Over && now.Counts["waiting"] == 0
		})
	}
	s.ends(waits.RunID, "cancelled")
	if late := s.startedAfter(acknowledged); len(late) > 0 {
		t.Errorf("after cancel-all answered: %v, want nothing", late)
	}
}
