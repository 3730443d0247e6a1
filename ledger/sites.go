package ledger

import (
	"context"

	"slurmgate/run"
)

// OpenBySite counts the runs that have a site and are not over, by site and phase, of these projects; nil means all.
func (l *Ledger) OpenBySite(ctx context.Context, projects []string) (map[string]map[run.Phase]int64, error) {
	var w where
	w.add("r.phase <> 'done' AND r.phase <> 'waiting_for_inputs'")
	if projects != nil {
		in, args := among("r.project_id", projects)
		w.add(in, args...)
	}
	out := map[string]map[run.Phase]int64{}
	err := each(ctx, l.r, func(row scanner) error {
		var site string
		var phase run.Phase
		var n int64
		err := row.Scan(&site, &phase, &n)
		if out[site] == nil {
			out[site] = map[run.Phase]int64{}
		}
		out[site][phase] = n
		return err
	}, "SELECT r.site, r.phase, count(*) FROM runs r WHERE "+w.String()+" GROUP BY r.site, r.phase", w.args...)
	return out, err
}

// usesLooked is how many of the newest runs with certain bytes are examined.
const usesLooked = 64

// BytesBySite adds up, for each site, the bytes with these checksums that a workspace of the site has: as an input or an output of one of
// the newest runs that had them, whose workspace was not removed since its last attempt. Only the ledger is read.
func (l *Ledger) BytesBySite(ctx context.Context, sums []string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, sum := range sums {
		err := each(ctx, l.r, func(row scanner) error {
			var site string
			var size int64
			err := row.Scan(&site, &size)
			out[site] += size
			return err
		}, `WITH files AS MATERIALIZED (SELECT artifact_id, size_bytes FROM artifacts WHERE sha256 = ?1),
 ins AS (SELECT i.run_id, f.size_bytes FROM files f CROSS JOIN run_inputs i ON i.artifact_id = f.artifact_id ORDER BY i.rowid DESC LIMIT ?2),
 outs AS (SELECT o.run_id, f.size_bytes FROM files f CROSS JOIN run_outputs o ON o.artifact_id = f.artifact_id ORDER BY o.rowid DESC LIMIT ?2),
 used AS (SELECT * FROM ins UNION ALL SELECT * FROM outs)
 SELECT r.site, max(u.size_bytes) FROM used u JOIN runs r ON r.run_id = u.run_id
 LEFT JOIN workspace_removals w ON w.run_id = r.run_id AND w.attempt_n = r.attempt_n WHERE w.begun_at IS NULL GROUP BY r.site`, sum, usesLooked)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
