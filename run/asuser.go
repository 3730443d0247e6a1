package run

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"slurmgate/fault"
)

// At a site with run_as: caller, a run's job and files belong to the Unix user that the run is executed as. That user
// can forge whatever comes from there, and so the end of that user's own runs, but of no others. Names of jobs are
// public, so a job is a run's only if cluster, id, name and user match; see [hinted] for the id.

// userOf returns the Unix user whose jobs are those of a run that is executed as executedAs; empty: the queue shows no
// other user's jobs.
func (c Config) userOf(executedAs string) string { return cmp.Or(executedAs, c.OwnUser) }

func (e *Engine) userOf(executedAs string) string { return e.cfg.userOf(executedAs) }

// ofWhom returns a phrase that names the owner of a job.
func ofWhom(user string) string {
	if user == "" {
		return ""
	}
	return " of user " + user
}

// userAway reports whether nothing can be done as the run's user for now, or ever again: the account is gone, or the
// signer or the host cannot be reached.
func userAway(v View, code string) bool {
	return v.Run.ExecutedAs != "" && (slices.Contains([]string{"user_refused", "login_refused", "signer_away"}, code) || unreached(code))
}

// declareUnclaimed ends a run whose claim cannot be taken as its user, because an operator declared it absent and Slurm
// shows no job of it that could still execute. Without the claim a job may appear later; such a job is reported.
func (e *Engine) declareUnclaimed(ctx context.Context, v View, why string, unclaimed error) error {
	if v.Run.ExecutedAs == "" {
		return unclaimed
	}
	name, user := v.Submission.JobName, v.Run.ExecutedAs
	jobs, err := e.Queue.Jobs(ctx, nil)
	if err == nil {
		err = e.Queue.SeesAll(ctx)
	}
	if err != nil {
		return err
	}
	seen := index(jobs)
	if hidden := seen.hides(name, user); hidden != nil {
		return fault.New(fault.Transport, recordUnread, "Slurm's answer "+hidden.mayLack()+
			", so it may not show the run's job").WithNext("look for the record in the gateway's log, then try again")
	}
	for _, j := range seen.named(name, user) {
		if j.Class != ClassEnded {
			return fault.New(fault.Conflict, "job_exists", fmt.Sprintf("the run cannot be declared absent: Slurm shows its job %s as %s", j.ID,
				j.State)).WithNext("cancel the job in Slurm as an administrator (scancel " + j.ID + "), then try again")
		}
	}
	return e.finish(ctx, v, verdict{ending: EndedCancelled, reason: declaredAbsent, exit: v.Attempt.ExitCode,
		detail: fmt.Sprintf("%s; Slurm shows no job of it, and the claim could not be taken as %s (%s): a job that appears later is reported",
			cmp.Or(why, "declared absent"), user, fault.Prose(unclaimed))})
}

// declaredAbsent is the reason of a run that a person declared absent.
const declaredAbsent = "declared_absent"

// orphan logs once that a job runs although its run was declared absent without its claim.
func (e *Engine) orphan(v View, j Job) {
	if v.Run.ExecutedAs == "" || v.Attempt.Ending != EndedCancelled || v.Run.Reason != declaredAbsent || v.Submission.JobName != j.Name {
		return
	}
	if e.forged.first(forgery{v.Run.ID, j.User, j.ID}) {
		e.Log.Warn("a job runs although its run was declared absent: an orphan that the gateway does not follow",
			append(about(v), "orphan_job_id", j.ID, "slurm_state", j.State)...)
	}
}

// forgeries counts jobs that have the name of another user's run. The gateway ignores them.
type forgeries struct {
	mu   sync.Mutex
	n    int64
	seen map[forgery]bool
}

type forgery struct{ runID, user, jobID string }

// forgeriesLogged bounds how many are remembered, and so how much one user can make the log grow.
const forgeriesLogged = 10_000

// saw counts and logs such a job once.
func (f *forgeries) saw(log *slog.Logger, runID, owner string, j Job) {
	if !f.first(forgery{runID, j.User, j.ID}) {
		return
	}
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
	log.Warn("a job has the name of another user's run; it is ignored", "run_id", runID, "executed_as", owner, "job_id", j.ID,
		"job_user", j.User)
}

// first reports whether this job is new, and remembers it.
func (f *forgeries) first(this forgery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[this] || len(f.seen) >= forgeriesLogged {
		return false
	}
	if f.seen == nil {
		f.seen = map[forgery]bool{}
	}
	f.seen[this] = true
	return true
}

// Forged returns how many jobs with the name of another user's run were seen since the engine was made.
func (e *Engine) Forged() int64 {
	e.forged.mu.Lock()
	defer e.forged.mu.Unlock()
	return e.forged.n
}
