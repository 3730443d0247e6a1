package ledger

import "context"

// fillSites gives every run of an earlier slurmgate its site, in one transaction: docker runs, which the key of their canonical params
// tells, were made on the gateway's own host, all others on the one cluster there was. It is no revision of a run, so the history and its
// hashes stay as they are.
func (l *Ledger) fillSites(ctx context.Context, first, local string) error {
	var siteless bool
	if err := l.w.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM runs WHERE site = '')").Scan(&siteless); err != nil || !siteless {
		return err
	}
	return l.write(ctx, `UPDATE runs SET site = CASE WHEN EXISTS (SELECT 1 FROM param_sets p WHERE p.params_hash = runs.params_hash
 AND p.params GLOB '{"docker":*') THEN ? ELSE ? END WHERE site = ''`, local, first)
}
