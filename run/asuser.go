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

// Where a site has run_as: caller, a run's job and files belong to the Unix user it is executed as. All that comes from there is that
// user's word: he can forge the end of his own runs, and of nobody else's. Names of jobs are public, so a job is such a run's only by
// cluster, id, name and user; see [hinted] for the id.

// userOf is whose jobs those of a run are that is executed as a user; empty: nobody else's are seen.
func (c Config) userOf(executedAs string) string { return cmp.Or(executedAs, c.OwnUser) }

func (e *Engine) userOf(executedAs string) string { return e.cfg.userOf(executedAs) }

// ofWhom names the owner of a job in a sentence.
func ofWhom(user string) string {
	if user == "" {
		return ""
	}
	return " of user " + user
}

// userAway reports whether nothing can be done as the run's user for now, or ever again: the account is gone, the signer or
// the host is away.
func userAway(v View, code string) bool {
	return v.Run.ExecutedAs != "" && (slices.Contains([]string{"user_refused", "login_refused", "signer_away"}, code) || unreached(code))
}

// declareUnclaimed ends a run whose claim cannot be taken as its user, on an operator's word and the service's own look:
// Slurm shows no job of
// it that could still execute. Without the claim a job may appear later; such a job is reported.
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

// orphan logs once that a job runs whose run was declared absent without its claim.
func (e *Engine) orphan(v View, j Job) {
	if v.Run.ExecutedAs == "" || v.Attempt.Ending != EndedCancelled || v.Run.Reason != declaredAbsent || v.Submission.JobName != j.Name {
		return
	}
	if e.forged.first(forgery{v.Run.ID, j.User, j.ID}) {
		e.Log.Warn("a job runs although its run was declared absent: an orphan that the gateway does not follow",
			append(about(v), "orphan_job_id", j.ID, "slurm_state", j.State)...)
	}
}

// forgeries counts jobs that have the name of a run of another user. They are left alone.
type forgeries struct {
	mu   sync.Mutex
	n    int64
	seen map[forgery]bool
}

type forgery struct{ runID, user, jobID string }

// forgeriesLogged bounds what is remembered, and so what one user can make the log grow by at a time.
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

// first reports whether this is seen for the first time.
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

// Forged is how many jobs with the name of another user's run were seen since the engine was made.
func (e *Engine) Forged() int64 {
	e.forged.mu.Lock()
	defer e.forged.mu.Unlock()
	return e.forged.n
}
