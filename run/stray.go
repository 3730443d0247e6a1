package run

import (
	"context"
	"strings"
	"time"
)

// A job may show up after its attempt ended: sbatch was in doubt, the gateway took the claim, and only then did the controller take in what
// it had accepted. Such a job executes nothing, but it would wait in the queue for its turn.

// strayWatch is how long the watcher still asks for such jobs when nothing else is open. A controller that takes in a job later than
// that shows it to the next cycle there is, or the job ends by itself without the claim.
const strayWatch = 10 * time.Minute

// expectStrays keeps the watcher asking after an attempt whose job may still show up.
func (e *Engine) expectStrays(v View, ending Ending) {
	if v.Sends == 0 || ending != EndedAbsent && ending != EndedCancelled {
		return
	}
	e.mu.Lock()
	e.strayUntil = e.Now().Add(strayWatch)
	e.mu.Unlock()
	if v.Submission.JobID == "" { // else Slurm is asked to cancel it anyway
		e.poke()
	}
}

// strays tells whether there is reason to ask Slurm although no run is open.
func (e *Engine) strays() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Now().Before(e.strayUntil)
}

// recallStrays takes up what an earlier gateway expected.
func (e *Engine) recallStrays(ctx context.Context) error {
	since := e.Now().Add(-strayWatch)
	last, err := e.Index.Voided(ctx, since)
	if err != nil || last == nil {
		return err
	}
	e.mu.Lock()
	e.strayUntil = last.Add(strayWatch)
	e.mu.Unlock()
	return nil
}

// cancelStrays cancels pending jobs of attempts that have ended. They would end by themselves without the
// claim; cancelling keeps the queue clean. Jobs this ledger never sent are left alone: another gateway of the
// same user may have a run of the same id.
func (e *Engine) cancelStrays(ctx context.Context, seen *answer) {
	for i, j := range seen.jobs {
		if j.Class != ClassPending || seen.known[i] || !strings.HasPrefix(j.Name, "sg-") {
			continue
		}
		if ended, err := e.Index.Ended(ctx, j.Name); err != nil || !ended {
			continue
		}
		e.Log.Info("a late job of an ended attempt is cancelled", "job_name", j.Name, "job_id", j.ID)
		e.cancelJob(j.ID, j.Name)
	}
}
