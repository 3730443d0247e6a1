package ledger

import (
	"context"
	"time"

	"slurmgate/run"
)

// Asker is a principal that asked for a run which another one's call had made.
type Asker struct {
	run.Principal
	AskedAt time.Time // the first time
}

// AskedAgain records that a principal asked for a run, unless its own call made the run or it is recorded already. It is no revision of the
// run, and a repeated request that changes nothing writes nothing.
func (l *Ledger) AskedAgain(ctx context.Context, runID string, who run.Principal) error {
	const isNew = `FROM runs r WHERE r.run_id = ?1 AND (r.principal, r.principal_id) <> (?2, ?3)
 AND NOT EXISTS (SELECT 1 FROM run_askers a WHERE (a.run_id, a.principal, a.principal_id) = (?1, ?2, ?3))`
	var missing bool
	if err := l.one(ctx, "SELECT EXISTS (SELECT 1 "+isNew+")", runID, who.Name, who.ID).Scan(&missing); err != nil || !missing {
		return storage(err)
	}
	return l.write(ctx, "INSERT INTO run_askers SELECT ?1, ?2, ?3, ?4 "+isNew, runID, who.Name, who.ID, micros(l.now()))
}

// Askers lists the principals that asked for a run after it was made, in that order.
func (l *Ledger) Askers(ctx context.Context, runID string) ([]Asker, error) {
	return list(context.WithoutCancel(ctx), l.r, func(row scanner) (a Asker, err error) {
		err = row.Scan(&a.Name, &a.ID, into{&a.AskedAt})
		return a, err
	}, "SELECT principal, principal_id, asked_at FROM run_askers WHERE run_id = ? ORDER BY asked_at, principal, principal_id", runID)
}

// askedBy is the condition that a principal, by name or id, made a run or asked for it later.
const askedBy = `(? IN (r.principal, r.principal_id)
 OR EXISTS (SELECT 1 FROM run_askers k WHERE k.run_id = r.run_id AND ? IN (k.principal, k.principal_id)))`
