package run

import (
	"context"
	"strings"
	"time"
)

// A job may appear after its attempt has ended: sbatch was in doubt, the gateway took the claim, and only then did the
// controller show the job that it had accepted. Such a job executes nothing, but it would wait in the queue for its
// turn.

// strayWatch is how long the watcher still queries Slurm for such jobs when no run is open. If a controller shows a job
// later than that, the next cycle sees it, or the job ends by itself without the claim.
const strayWatch = 10 * time.Minute

// expectStrays keeps the watcher running after an attempt whose job may still appear.
func (e *Engine) expectStrays(v View, ending Ending) {
	if v.Sends == 0 || ending != EndedAbsent && ending != EndedCancelled {
		return
	}
	e.watcher.expectStrays(e.Now().Add(strayWatch))
	if v.Submission.JobID == "" { // with a job id Slurm is asked to cancel the job anyway
		e.watcher.wake()
	}
}

// recallStrays restores what an earlier gateway expected.
func (e *Engine) recallStrays(ctx context.Context) error {
	since := e.Now().Add(-strayWatch)
	last, err := e.Index.Voided(ctx, since)
	if err != nil || last == nil {
		return err
	}
	e.watcher.expectStrays(last.Add(strayWatch))
	return nil
}

// cancelStrays cancels pending jobs of attempts that have ended. They would end by themselves without the claim;
// cancelling keeps the queue clean. Jobs this ledger never sent are left alone: another gateway of the same user may
// have a run of the same id.
func (e *Engine) cancelStrays(ctx context.Context, seen *answer) {
	for i, j := range seen.jobs {
		name := j.sentAs()
		if j.Class != ClassPending && j.Class != ClassRunning || seen.known[i] || !strings.HasPrefix(name, "sg-") {
			continue
		}
		if ended, err := e.Index.Ended(ctx, name); err != nil || !ended {
			continue
		}
		v, err := e.Store.View(ctx, RunOf(name))
		// The folder alone does not prove that a job is the run's.
		if err != nil || j.WorkDir != "" && (v.Submission.JobName != name || v.Submission.JobID != j.ID) {
			continue
		}
		if user := e.userOf(v.Run.ExecutedAs); !ofUser(user, j) {
			e.forged.saw(e.Log, v.Run.ID, user, j)
			continue
		}
		if j.Class == ClassRunning {
			e.orphan(v, j)
			continue
		}
		e.Log.Info("a late job of an ended attempt is cancelled", append(e.aboutJob(ctx, name), "late_job_id", j.ID, "job_name", j.Name)...)
		e.cancels.cancel(Run{ExecutedAs: v.Run.ExecutedAs}, namedJob{id: j.ID, name: name, shown: shownAs(Submission{JobName: name}, j)})
	}
}
