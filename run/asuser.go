package run

import (
	"log/slog"
	"sync"
)

// Where a site has run_as: caller, a run's job and files belong to the Unix user it is executed as. All that comes from there is that
// user's word: he can forge the end of his own runs, and of nobody else's. Names of jobs are public, so a job is such a run's only by
// cluster, id, name and user; see [hinted] for the id.

// userOf is whose jobs those of a run are that is executed as a user; empty: nobody else's are seen.
func (e *Engine) userOf(executedAs string) string {
	if executedAs == "" {
		return e.cfg.OwnUser
	}
	return executedAs
}

// ofWhom names the owner of a job in a sentence.
func ofWhom(user string) string {
	if user == "" {
		return ""
	}
	return " of user " + user
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
	f.mu.Lock()
	defer f.mu.Unlock()
	this := forgery{runID, j.User, j.ID}
	if f.seen[this] || len(f.seen) >= forgeriesLogged {
		return
	}
	if f.seen == nil {
		f.seen = map[forgery]bool{}
	}
	f.seen[this] = true
	f.n++
	log.Warn("a job has the name of another user's run; it is ignored", "run_id", runID, "executed_as", owner, "job_id", j.ID,
		"job_user", j.User)
}

// Forged is how many jobs with the name of another user's run were seen since the engine was made.
func (e *Engine) Forged() int64 {
	e.forged.mu.Lock()
	defer e.forged.mu.Unlock()
	return e.forged.n
}
