package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Batch is a group of runs that one call asked for.
type Batch struct {
	ID, ProjectID, Name string
	ToolID, ToolVersion string
	RowsHash            string // of all that was asked for
	Principal           run.Principal
	Asking              run.Asking      // whose request it is; only written
	Caller              json.RawMessage // with which rights the rows are submitted
	ApprovalID          string          // that it was started with; empty: none was needed
	Chain, Step         string          // of which chain of batches it is which step; empty: of none
	CreatedAt           time.Time
	Rows                int64
	Counts              map[string]int64 // rows by state
	Todo                int64            // rows that the gateway still has to do something with
}

// BatchRow is a row of a batch, and the run it became.
type BatchRow struct {
	BatchID       string
	N             int // line of the sheet
	Sample, Label string
	Tags          []string
	Args          json.RawMessage
	RunID         string // empty until the row was submitted
	WaitingID     string // the run it is, or was, while that waits for outputs of others
	State         string // waiting, refused, or the run's
	Todo          string // submit, retry, cancel; empty: nothing
	After         int    // of a retry: the attempt it follows
	Tries         int
	Code, Message string // why it was refused
	ApprovalID    string // that it was last retried under; empty: none was needed
}

// What the gateway still has to do with a row.
const (
	TodoSubmit = "submit"
	TodoRetry  = "retry"
	TodoCancel = "cancel"
)

const batchColumns = `b.batch_id, b.project_id, b.name, b.tool_id, b.tool_version, b.rows_hash, b.row_count, b.principal, b.principal_id, b.caller, b.created_at, b.chain, b.step, b.approval_id,
 (SELECT json_group_object(c.state, c.n) FROM batch_counts c WHERE c.batch_id = b.batch_id AND c.n > 0),
 (SELECT count(*) FROM batch_rows t INDEXED BY batch_rows_todo WHERE t.batch_id = b.batch_id AND t.todo <> '') FROM `

func scanBatch(row scanner) (b Batch, err error) {
	var caller string
	err = row.Scan(&b.ID, &b.ProjectID, &b.Name, &b.ToolID, &b.ToolVersion, &b.RowsHash, &b.Rows, &b.Principal.Name, &b.Principal.ID, &caller,
		into{&b.CreatedAt}, &b.Chain, &b.Step, &b.ApprovalID, into{&b.Counts}, &b.Todo)
	b.Caller = json.RawMessage(caller)
	return b, err
}

const rowColumns = `w.batch_id, w.row_n, w.sample, w.label, w.tags, w.args, w.run_id, w.waiting_id, w.state, w.todo, w.after_n, w.tries, w.code, w.message, w.approval_id FROM batch_rows w`

func scanBatchRow(row scanner) (w BatchRow, err error) {
	var args string
	err = row.Scan(&w.BatchID, &w.N, &w.Sample, &w.Label, into{&w.Tags}, &args, into{&w.RunID}, into{&w.WaitingID}, &w.State, &w.Todo,
		&w.After, &w.Tries, &w.Code,
		&w.Message, &w.ApprovalID)
	w.Args = json.RawMessage(args)
	return w, err
}

// NewBatch stores a batch with its rows, or returns the one that has its name in the project. Nothing is submitted by it: the rows say what
// is left to do.
func (l *Ledger) NewBatch(ctx context.Context, b Batch, rows []BatchRow) (stored Batch, created bool, err error) {
	list, created, err := l.NewBatches(ctx, []Batch{b}, [][]BatchRow{rows})
	if err != nil {
		return b, false, err
	}
	return list[0], created, nil
}

// NewBatches stores several batches with their rows, all of them or, where one of their names is taken by another request, none. Those that
// have the names are returned. The askings of the batches are recorded in the same transaction.
func (l *Ledger) NewBatches(ctx context.Context, batches []Batch, rows [][]BatchRow) (stored []Batch, created bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		stored, created = nil, false
		taken := false
		for _, b := range batches {
			there, err := scanBatch(tx.QueryRowContext(ctx, "SELECT "+batchColumns+"batches b WHERE b.project_id = ? AND b.name = ?",
				b.ProjectID, b.Name))
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			taken = taken || err == nil && there.RowsHash != b.RowsHash
			if err := chainFree(ctx, tx, b); err != nil {
				return err
			}
		}
		for i, b := range batches {
			n := int64(0)
			if !taken {
				if n, err = update(ctx, tx, `INSERT INTO batches (batch_id, project_id, name, tool_id, tool_version, rows_hash, row_count, principal, principal_id,
 caller, created_at, chain, step, approval_id) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (project_id, name) DO NOTHING`,
					b.ID, b.ProjectID, b.Name, b.ToolID, b.ToolVersion, b.RowsHash, len(rows[i]), b.Principal.Name, b.Principal.ID,
					string(b.Caller), micros(l.now()), b.Chain, b.Step, b.ApprovalID); err != nil {
					return err
				}
			}
			if n == 1 {
				created = true
				if err := insertRows(ctx, tx, b.ID, rows[i]); err != nil {
					return err
				}
				if err := l.ask(ctx, tx, b.ID, b.Asking, b.Caller, b.ApprovalID); err != nil {
					return err
				}
			}
			now, err := scanBatch(tx.QueryRowContext(ctx, "SELECT "+batchColumns+"batches b WHERE b.project_id = ? AND b.name = ?",
				b.ProjectID, b.Name))
			if errors.Is(err, sql.ErrNoRows) { // another one's name is taken
				now, err = b, nil
			}
			if err == nil && n == 0 && !taken {
				b.ID = now.ID
				err = l.joinBatch(ctx, tx, b)
			}
			if err != nil {
				return err
			}
			stored = append(stored, now)
		}
		return nil
	})
	return stored, created && err == nil, err
}

// chainFree refuses a batch whose name, or that of its chain, is that of other steps or of a batch.
func chainFree(ctx context.Context, tx *sql.Conn, b Batch) error {
	var other bool
	err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM batches WHERE chain = ?2 AND chain <> '' AND project_id = ?1)
 OR ?3 <> '' AND (EXISTS (SELECT 1 FROM batches WHERE name = ?3 AND project_id = ?1) OR EXISTS (SELECT 1 FROM batches WHERE chain = ?3 AND project_id = ?1
  AND NOT EXISTS (SELECT 1 FROM batches WHERE name = ?2 AND project_id = ?1)))`, b.ProjectID, b.Name, b.Chain).Scan(&other)
	if err == nil && other {
		name := b.Name
		if b.Chain != "" {
			name = b.Chain
		}
		err = fault.New(fault.Conflict, "batch_name_taken", "the project has another batch named "+name).
			WithNext("choose another name; rows that ask for the same find the same runs")
	}
	return err
}

func insertRows(ctx context.Context, tx *sql.Conn, batchID string, rows []BatchRow) error {
	one, err := tx.PrepareContext(ctx, `INSERT INTO batch_rows (batch_id, row_n, sample, label, tags, args, state, todo) VALUES (?,?,?,?,?,?,'waiting','submit')`)
	if err != nil {
		return err
	}
	defer one.Close()
	for _, w := range rows {
		tags, err := warningsJSON(w.Tags)
		if err == nil {
			_, err = one.ExecContext(ctx, batchID, w.N, w.Sample, w.Label, tags, string(w.Args))
		}
		for _, tag := range w.Tags {
			if err == nil {
				_, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO batch_tags (tag, batch_id, row_n) VALUES (?,?,?)", tag, batchID, w.N)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Batch reads a batch by its id.
func (l *Ledger) Batch(ctx context.Context, id string) (Batch, error) {
	return l.batch(ctx, id, "b.batch_id = ?", id)
}

// BatchNamed reads the batch of a name in one of some projects (nil: any), the newest first.
func (l *Ledger) BatchNamed(ctx context.Context, projects []string, name string) (Batch, error) {
	w := inProjects(projects)
	w.add("b.name = ?", name)
	return l.batch(ctx, name, w.String()+" ORDER BY b.created_at DESC LIMIT 1", w.args...)
}

func inProjects(projects []string) (w where) {
	if projects != nil {
		in, args := among("b.project_id", projects)
		w.add(in, args...)
	}
	return w
}

func (l *Ledger) batch(ctx context.Context, named, cond string, args ...any) (Batch, error) {
	b, err := scanBatch(l.one(ctx, "SELECT "+batchColumns+"batches b WHERE "+cond, args...))
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.NotFound, "batch_not_found", "there is no batch "+named).WithSteps(fault.Do("batch.list"))
	}
	return b, storage(err)
}

// Batches lists the batches of some projects (nil: all), newest first, and returns how many there are. With a
// principal (name or id) it lists those with that requester, or with that former requester and no other.
func (l *Ledger) Batches(ctx context.Context, projects []string, principal, cursor string, limit int) (out []Batch, next string,
	total int64, err error) {
	w := inProjects(projects)
	if principal != "" {
		w.add(askedFor("b.batch_id"), principal)
	}
	limit = pageLimit(limit)
	if err = l.one(ctx, "SELECT count(*) FROM batches b WHERE "+w.String(), w.args...).Scan(&total); err != nil {
		return nil, "", 0, storage(err)
	}
	if cursor != "" {
		var at int64
		var id string
		if err := decodeCursor(cursor, &at, &id); err != nil {
			return nil, "", 0, err
		}
		w.add("(b.created_at, b.batch_id) < (?, ?)", at, id)
	}
	// Only the rows of the batches of the page are counted.
	out, err = list(context.WithoutCancel(ctx), l.r, scanBatch, "SELECT "+batchColumns+"(SELECT * FROM batches b WHERE "+w.String()+
		" ORDER BY b.created_at DESC, b.batch_id DESC LIMIT ?) b ORDER BY b.created_at DESC, b.batch_id DESC", append(w.args, limit+1)...)
	out, next = page(out, limit, func(b Batch) []any { return []any{micros(b.CreatedAt), b.ID} })
	return out, next, total, err
}

// RowFilter selects rows of a batch.
type RowFilter struct {
	State  string // empty: any
	Sample string
	After  int // only rows behind this one
	Limit  int
}

// BatchRows reads rows of a batch in the order of its sheet.
func (l *Ledger) BatchRows(ctx context.Context, batchID string, f RowFilter) ([]BatchRow, error) {
	var w where
	w.add("w.batch_id = ? AND w.row_n > ?", batchID, f.After)
	w.is("w.state", f.State)
	w.is("w.sample", f.Sample)
	return list(context.WithoutCancel(ctx), l.r, scanBatchRow, "SELECT "+rowColumns+" WHERE "+w.String()+" ORDER BY w.row_n LIMIT ?",
		append(w.args, f.Limit)...)
}

// BatchCause is a reason why rows of a batch did not succeed.
type BatchCause struct {
	State   string // failed, cancelled, blocked or refused
	Cause   string // ending of the run's newest attempt, or the code of what refused the row
	Reason  string // of one of them
	Rows    int64
	Samples []string // some of them
}

// maxCauses bounds how many causes are reported.
const maxCauses = 20

// BatchCauses groups the rows of a batch that failed, are blocked, were cancelled or refused, the most frequent cause first.
func (l *Ledger) BatchCauses(ctx context.Context, batchID string) ([]BatchCause, error) {
	return list(context.WithoutCancel(ctx), l.r, func(row scanner) (c BatchCause, err error) {
		var samples string
		err = row.Scan(&c.State, &c.Cause, &c.Reason, &c.Rows, &samples)
		c.Samples = strings.SplitN(samples, "\x1f", 6)
		c.Samples = c.Samples[:min(len(c.Samples), 5)]
		return c, err
	}, `SELECT state, cause, min(reason), count(*), group_concat(sample, char(31)) FROM (SELECT w.state, w.sample, iif(w.run_id IS NULL, w.code,
 (SELECT coalesce(nullif(a.ending, ''), r.phase) || iif(a.ending = 'tool_failed', coalesce(', exit code ' || r.exit_code, ''), '')
  FROM attempts a WHERE a.run_id = r.run_id AND a.n = r.attempt_n)) AS cause,
 iif(w.run_id IS NULL, w.message, coalesce(nullif(r.detail, ''), r.reason)) AS reason
 FROM batch_rows w LEFT JOIN runs r ON r.run_id = w.run_id WHERE w.batch_id = ? AND w.state IN ('failed','blocked','cancelled','refused'))
 GROUP BY state, cause ORDER BY state = 'cancelled', count(*) DESC, cause LIMIT ?`, batchID, maxCauses)
}
