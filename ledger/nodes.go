package ledger

import (
	"context"
	"time"

	"slurmgate/run"
)

// NodeFault counts the attempts that ended at a node by one fault of the node.
type NodeFault struct {
	Site  string
	Node  string
	Fault run.Ending
	Count int
	Last  time.Time
	RunID string // of the last one
}

// NodeFaults lists the faults of nodes that attempts met since a time, the most frequent first. A fault that only a
// job's files report counts where the files are the gateway's: a user could forge others.
func (l *Ledger) NodeFaults(ctx context.Context, since time.Time) ([]NodeFault, error) {
	cond, args := among("a.ending", run.NodeFaults)
	return list(ctx, l.r, func(row scanner) (f NodeFault, err error) {
		err = row.Scan(&f.Site, &f.Node, &f.Fault, &f.Count, into{&f.Last}, &f.RunID)
		return f, err
	}, `SELECT r.site, a.node, a.ending, count(*), max(a.ended_at), a.run_id FROM attempts a JOIN runs r ON r.run_id = a.run_id
 WHERE `+cond+` AND a.ended_at >= ? AND a.ending NOT IN ('', 'ok') AND a.node <> ''
 AND (r.executed_as = '' OR a.ending IN ('node_fail', 'boot_fail', 'prolog_failed')) GROUP BY r.site, a.node, a.ending ORDER BY count(*) DESC, a.node LIMIT 1000`,
		append(args, micros(since))...)
}
