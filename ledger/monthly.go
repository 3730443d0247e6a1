package ledger

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"slurmgate/run"
)

// Spent selects attempts by their end, and what they are added up by.
type Spent struct {
	From, To time.Time // ended at or after From and before To
	Projects []string  // any of these; nil: all
	By       []string  // of [SpentBy]
}

// SpentBy returns what attempts can be added up by.
func SpentBy() []string { return []string{"project", "account", "caller", "tool"} }

// spentColumns are the same in SQL. What is not known is ”.
var spentColumns = map[string]string{
	"project": "r.project_id",
	"account": `coalesce(json_extract(a.placement, '$.account'), (SELECT json_extract(p.params, '$.slurm.placement.account') FROM param_sets p WHERE p.params_hash = r.params_hash), '')`,
	"caller":  "r.principal",
	"tool":    "r.tool_id",
}

// SpentRow is the use of the attempts of one project, account, caller and tool, or of fewer of these. nil: none of
// them is known.
type SpentRow struct {
	Project, Account, Caller, Tool string // "" where not asked for, and where unknown
	Runs                           int64
	Attempts                       int64 // that ended, whichever way
	Succeeded, Failed, Cancelled   int64 // of them
	CPUSeconds                     *float64
	AllocatedCPUSeconds            *float64 // what Slurm reserved; nil without accounting
	MaxRSSBytes                    *int64   // of the largest
	InputBytes                     int64    // of the runs whose first attempt is among them
	OutputBytes                    int64
	Unmeasured                     int64 // attempts that ran and whose CPU time is not known
}

// Spent adds up what attempts used: by accounting if it measured them, else by the job's own record. Calls of service workers are no jobs.
func (l *Ledger) Spent(ctx context.Context, f Spent) (rows []SpentRow, err error) {
	var w where
	w.add("a.ended_at >= ? AND a.ended_at < ? AND a.ending <> '' AND r.site <> ?", micros(f.From), micros(f.To), run.WorkerSite)
	if f.Projects != nil {
		cond, args := among("r.project_id", f.Projects)
		w.add(cond, args...)
	}
	var keys []string
	for _, name := range SpentBy() {
		if key := "''"; slices.Contains(f.By, name) {
			keys = append(keys, spentColumns[name]+" AS "+name)
		} else {
			keys = append(keys, key+" AS "+name)
		}
	}
	query := `SELECT project, account, caller, tool, count(DISTINCT run_id), count(*), sum(ending = 'ok'), sum(ending NOT IN ('ok', 'cancelled')),
 sum(ending = 'cancelled'), sum(cpu), sum(allocated), max(rss), sum(inputs), sum(outputs), sum(ran AND cpu IS NULL)
 FROM (SELECT ` + strings.Join(keys, ", ") + `, a.run_id, a.ending, a.started_at IS NOT NULL AS ran,
 coalesce(u.cpu_seconds, json_extract(a.usage, '$.user_seconds') + json_extract(a.usage, '$.system_seconds')) AS cpu,
 u.elapsed_seconds * u.alloc_cpus AS allocated, u.max_rss_bytes AS rss,
 iif(a.n = 1, (SELECT coalesce(sum(x.size_bytes), 0) FROM run_inputs i JOIN artifacts x USING (artifact_id) WHERE i.run_id = a.run_id), 0) AS inputs,
 (SELECT coalesce(sum(x.size_bytes), 0) FROM run_outputs o JOIN artifacts x USING (artifact_id) WHERE o.run_id = a.run_id AND o.attempt_n = a.n) AS outputs
 FROM attempts a JOIN runs r USING (run_id) LEFT JOIN job_usage u ON u.token = a.token WHERE ` + w.String() + `)
 GROUP BY project, account, caller, tool ORDER BY project, account, caller, tool`
	ctx = context.WithoutCancel(ctx)
	err = l.snapshot(ctx, func(tx *sql.Tx) error {
		// With the usual 2 MB most rows would be read from the file many times: more than half of the time.
		if _, err := tx.ExecContext(ctx, "PRAGMA cache_size = -65536"); err != nil {
			return err
		}
		defer tx.ExecContext(ctx, "PRAGMA cache_size = -2000")
		rows, err = list(ctx, tx, func(row scanner) (r SpentRow, err error) {
			err = row.Scan(&r.Project, &r.Account, &r.Caller, &r.Tool, &r.Runs, &r.Attempts, &r.Succeeded, &r.Failed, &r.Cancelled, &r.CPUSeconds,
				&r.AllocatedCPUSeconds, &r.MaxRSSBytes, &r.InputBytes, &r.OutputBytes, &r.Unmeasured)
			return r, err
		}, query, w.args...)
		return err
	})
	return rows, err
}
