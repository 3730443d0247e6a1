package run_test

import (
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

// orderOf returns the order for an input with these bytes; cpus gives it another identity.
func (w *world) orderOf(t *testing.T, content string, cpus int) run.Order {
	t.Helper()
	return order(func(p *plan.Params) {
		in := &p.Spec.IO.Inputs[0]
		in.ChecksumSHA256 = w.store([]byte(content))
		id, err := plan.ArtifactID(project, in.ChecksumSHA256, "BAM", "reads")
		if err != nil {
			t.Fatal(err)
		}
		in.ArtifactID, p.Spec.Resources.CPUs = id, cpus
	})
}

// A run whose pack asks for it gets no job when its input is not a whole file of its type; the reason names the input.
// A retry checks it again.
func TestCorruptInput(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.asked.verify = true
		a := w.life().submit(w.orderOf(t, "reads, cut", 1))
		v := w.ended(a.RunID, run.Failed, "input_corrupt")
		if v.Attempt.Ending != run.EndedStaging || w.count("Send") != 0 || w.count("CheckInput BAM") != 1 {
			t.Errorf("the attempt is %+v after %d sends and %d checks, want it ended in staging, unsent, after one check",
				v.Attempt, w.count("Send"), w.count("CheckInput BAM"))
		}
		if d := v.Run.Detail; !strings.Contains(d, "the input bam (art_") || !strings.Contains(d, "is not a whole BAM file: it is no JSON") {
			t.Errorf("the detail is %q, want the input bam, and why it is not a whole BAM file", d)
		}
	})
}

// The same bytes are checked once, in whichever run, and after a restart; unless the pack asks for it they are not
// checked at all.
func TestVerifiedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for i, c := range []struct {
			verify bool
			doc    string
			checks int
		}{{false, `"reads"`, 0}, {true, `"reads"`, 1}, {true, `"reads"`, 1}, {true, `"other reads"`, 2}, {true, `"reads"`, 2}} {
			w.asked.verify = c.verify
			l := w.life()
			a := l.submit(w.orderOf(t, c.doc, 1+i))
			w.until(a.RunID, in(run.Pending))
			if n := w.count("CheckInput BAM"); n != c.checks || w.count("Send") != i+1 {
				t.Errorf("%d: %d checks, want %d; %d sends", i, n, c.checks, w.count("Send"))
			}
			l.stop()
		}
	})
}
