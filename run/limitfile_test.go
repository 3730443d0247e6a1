package run_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// A limit that is raised in Slurm reaches the job's script by a file, as often as it is raised; a failed write is
// repeated. A limit that Slurm shows as it was sent leaves no file.
func TestRaisedLimitIsLeftForTheScript(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Allowance = 400 * time.Second
		l := w.life()
		a := l.submit(order(func(p *plan.Params) { p.Spec.Resources.TimeLimitSeconds = 180 }))
		left := func() (text string) {
			w.with(func() { text = string(w.attempt(a.RunID, 1).ctl[run.LimitFile]) })
			return text
		}
		w.with(func() { w.jobs[0].Limit = 600 })
		w.until(a.RunID, in(run.Pending))
		w.with(func() { w.start(w.jobs[0]) })
		v := w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.InJob && v.Attempt.Limit == 600 })
		if text := left(); text != "" {
			t.Errorf("for a limit as it was sent the script is left %q", text)
		}
		w.with(func() {
			w.jobs[0].Limit = 7200
			w.fault = failing(errTransient, "OpenAttempt")
		})
		w.until(a.RunID, func(run.View) bool { return w.count("OpenAttempt") > 1 })
		w.with(func() { w.fault = nil })
		for _, seconds := range []int64{7200, run.Unlimited} {
			w.with(func() { w.jobs[0].Limit = seconds })
			w.until(a.RunID, func(v run.View) bool { return v.Attempt.Limit == seconds })
			text := left()
			if !strings.HasPrefix(text, "slurmgate-limit 1 token="+v.Submission.Token+" seconds=") || !strings.HasSuffix(text, "\n") {
				t.Errorf("for a limit of %d s the script is left %q", seconds, text)
			}
		}
		w.with(func() { w.finish(w.jobs[0]) })
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
	})
}

// The partition and the account of an attempt are those that Slurm shows; a plugin of the site or an administrator may
// have changed them.
func TestAttemptIsWhereSlurmShowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.life().submit(order())
		for _, at := range [][2]string{{"short", "bio"}, {"long", "bio"}, {"long", "physics"}} {
			w.with(func() { w.jobs[0].Partition, w.jobs[0].Account = at[0], at[1] })
			w.until(a.RunID, func(v run.View) bool { return v.Attempt.Partition == at[0] && v.Attempt.Account == at[1] })
		}
		w.with(func() { w.auto = true; w.jobs[0].Partition = "" }) // like a Slurm that does not show it
		v := w.until(a.RunID, done)
		list, err := w.ledger.Attempts(t.Context(), a.RunID)
		if err != nil || v.Attempt.Partition != "long" || list[0].Partition != "long" || list[0].Account != "physics" {
			t.Errorf("the attempt was in partition %s; the list says %s and account %s (%v); want long, long and physics", v.Attempt.Partition,
				list[0].Partition, list[0].Account, err)
		}
	})
}

// A limit that was raised before the gateway saw the job counts as raised, too.
func TestLimitRaisedBeforeItIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.life().submit(order())
		w.with(func() { w.start(w.jobs[0]); w.jobs[0].Limit = 7200 })
		w.until(a.RunID, in(run.InJob))
		w.with(func() {
			if text := string(w.attempt(a.RunID, 1).ctl[run.LimitFile]); !strings.HasSuffix(text, " seconds=7200\n") {
				t.Errorf("for a limit that was raised early the script is left %q", text)
			}
		})
	})
}
