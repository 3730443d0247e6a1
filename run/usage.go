package run

import (
	"context"
	"time"

	"slurmgate/fault"
)

// Resource usage is for people who read about a run: it is queried in bulk, rarely, and decides nothing.
const (
	usageEvery    = 5 * time.Minute  // between two queries
	usageAfter    = 30 * time.Second // accounting takes a while to get a job's final figures
	usageGiveUp   = time.Hour        // a job that accounting does not know by then is not queried again
	usageWindow   = 7 * 24 * time.Hour
	usagePerQuery = 5000
)

// measure queries accounting once for all attempts that have ended since it last answered.
func (e *Engine) measure(ctx context.Context) {
	now := e.Now()
	if now.Before(e.watcher.measureAt) {
		return
	}
	e.watcher.measureAt = now.Add(usageEvery)
	list, err := e.Index.Unmeasured(ctx, now.Add(-usageWindow), now.Add(-usageAfter), usagePerQuery)
	if err != nil || len(list) == 0 {
		e.unmeasured(err)
		return
	}
	since := list[0].CreatedAt
	keys := make([]JobKey, 0, len(list))
	for _, u := range list {
		keys = append(keys, JobKey{ID: u.JobID, User: u.ExecutedAs})
		if u.CreatedAt.Before(since) {
			since = u.CreatedAt
		}
	}
	used, err := e.Accounting.Usage(ctx, since.Add(-time.Hour), keys...)
	if err != nil && !fault.Is(err, fault.NotFound) {
		e.unmeasured(err)
		return
	}
	e.unmeasured(e.Index.Measure(ctx, match(list, used, now, err != nil)))
}

func (e *Engine) unmeasured(err error) {
	if err != nil {
		e.Log.Warn("resource usage of ended jobs is not known yet", "err", err)
	}
}

// match finds the record of each attempt's job by its id, its user and its time of submission, since ids are reused.
// none: there is no accounting at all.
func match(list []Unmeasured, used []Usage, now time.Time, none bool) map[string]*Usage {
	byID := map[string][]*Usage{}
	for i, u := range used {
		byID[u.JobID] = append(byID[u.JobID], &used[i])
	}
	out := map[string]*Usage{}
	for _, a := range list {
		var found *Usage
		for _, u := range byID[a.JobID] {
			if a.ExecutedAs != "" && u.User != a.ExecutedAs {
				continue // the id comes from the user's side, which may have forged it
			}
			if a.Submitted != nil && u.Submitted != nil && a.Submitted.Equal(*u.Submitted) || a.Submitted == nil && len(byID[a.JobID]) == 1 {
				found = u
			}
		}
		if found != nil || none || now.Sub(a.EndedAt) > usageGiveUp {
			out[a.Token] = found
		}
	}
	return out
}
