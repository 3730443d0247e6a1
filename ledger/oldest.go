package ledger

import (
	"context"
	"time"

	"slurmgate/run"
)

// Oldest is the run of a site that has been longest in a phase.
type Oldest struct {
	Site  string
	Phase run.Phase
	Since time.Time
}

// Oldest lists, for each site and each phase that should be short, since when its oldest run is in it: staging and deferred since the
// attempt was opened, the others since the last change. That none of these phases is done lets SQLite walk the index of unfinished runs.
func (l *Ledger) Oldest(ctx context.Context) ([]Oldest, error) {
	return list(ctx, l.r, func(row scanner) (o Oldest, err error) {
		err = row.Scan(&o.Site, &o.Phase, into{&o.Since})
		return o, err
	}, `SELECT r.site, r.phase, min(iif(r.phase IN ('staging', 'deferred'), s.created_at, r.updated_at)) FROM runs r
 JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n JOIN submissions s ON s.token = a.token
 WHERE r.phase <> 'done' AND r.phase IN ('staging', 'submitting', 'unconfirmed', 'deferred', 'completing', 'collecting') GROUP BY r.site, r.phase`)
}
