package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"slurmgate/run"
)

// avoidText is the column of the nodes that an attempt does not use.
func avoidText(list []run.Avoided) (sql.NullString, error) {
	if len(list) == 0 {
		return sql.NullString{}, nil
	}
	b, err := json.Marshal(list)
	return sql.NullString{String: string(b), Valid: true}, err
}

// strengthText is the column of how an attempt gets its inputs.
func strengthText(by map[string]run.Strength) (sql.NullString, error) {
	if len(by) == 0 {
		return sql.NullString{}, nil
	}
	b, err := json.Marshal(by)
	return sql.NullString{String: string(b), Valid: true}, err
}

// NodeFault is how many attempts ended at a node by one fault of the node.
type NodeFault struct {
	Site  string
	Node  string
	Fault run.Ending
	Count int
	Last  time.Time
	RunID string // of the last one
}

// NodeFaults lists the faults of nodes that attempts met since a time, the most frequent first. What only a job's files say counts where
// they are the gateway's: a user could forge his own.
func (l *Ledger) NodeFaults(ctx context.Context, since time.Time) ([]NodeFault, error) {
	cond, args := among("a.ending", run.NodeFaults)
	return list(ctx, l.r, func(row scanner) (f NodeFault, err error) {
		err = row.Scan(&f.Site, &f.Node, &f.Fault, &f.Count, into{&f.Last}, &f.RunID)
		return f, err
	}, `SELECT r.site, a.node, a.ending, count(*), max(a.ended_at), a.run_id FROM attempts a JOIN runs r ON r.run_id = a.run_id
 WHERE `+cond+` AND a.ended_at >= ? AND a.ending NOT IN ('', 'ok') AND a.node <> ''
 AND (r.executed_as = '' OR a.ending IN ('node_fail', 'boot_fail')) GROUP BY r.site, a.node, a.ending ORDER BY count(*) DESC, a.node LIMIT 1000`,
		append(args, micros(since))...)
}
