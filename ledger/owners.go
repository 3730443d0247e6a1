package ledger

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"slurmgate/fault"
)

// owners remembers whose runs and artifacts are. That never changes, and no row is ever deleted: triggers see to both.
type owners struct {
	mu sync.RWMutex
	of map[string]owner
}

type owner struct {
	projectID string
	started   bool // a run that does not wait for inputs, and never did under this id
}

// maxOwners bounds the memory, some 3 MB. A full one begins anew.
const maxOwners = 1 << 14

func (o *owners) find(id string) owner {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.of[id]
}

func (o *owners) add(id string, x owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || len(o.of) == maxOwners {
		o.of = map[string]owner{}
	}
	o.of[id] = x
}

// OwnerSeen implements gate.Owners.
func (l *Ledger) OwnerSeen(id string) string { return l.owners.find(id).projectID }

// Owner returns the project of a run or an artifact.
func (l *Ledger) Owner(ctx context.Context, id string) (projectID string, err error) {
	var x owner
	err = l.one(ctx, "SELECT project_id, NOT EXISTS (SELECT 1 FROM waits w WHERE w.run_id = runs.run_id) FROM runs WHERE run_id = ?1 "+
		"UNION ALL SELECT project_id, 0 FROM artifacts WHERE artifact_id = ?1 "+
		"UNION ALL SELECT r.project_id, 0 FROM run_aliases x JOIN runs r ON r.run_id = x.run_id WHERE x.alias = ?1", id).
		Scan(&x.projectID, &x.started)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.New(fault.NotFound, "", id+" does not exist")
	}
	if err == nil {
		l.owners.add(id, x)
	}
	return x.projectID, storage(err)
}
