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

const rowColumns = `w.batch_id, w.row_n, w.sample, w.label, w.tags, w.args, w.run_id, w.waiting_id, w.state, w.todo, w.after_n, w.tries, w.code, w.message FROM batch_rows w`

func scanBatchRow(row scanner) (w BatchRow, err error) {
	var args string
	err = row.Scan(&w.BatchID, &w.N, &w.Sample, &w.Label, into{&w.Tags}, &args, into{&w.RunID}, into{&w.WaitingID}, &w.State, &w.Todo,
		&w.After, &w.Tries, &w.Code,
		&w.Message)
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
// have the names are returned.
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
			}
			now, err := scanBatch(tx.QueryRowContext(ctx, "SELECT "+batchColumns+"batches b WHERE b.project_id = ? AND b.name = ?",
				b.ProjectID, b.Name))
			if errors.Is(err, sql.ErrNoRows) { // another one's name is taken
				now, err = b, nil
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

// Batches lists the batches of some projects (nil: all), newest first, and says how many there are.
func (l *Ledger) Batches(ctx context.Context, projects []string, cursor string, limit int) (out []Batch, next string,
	total int64, err error) {
	w := inProjects(projects)
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

// BatchCause is why rows of a batch did not succeed.
type BatchCause struct {
	State   string // failed, cancelled, blocked or refused
	Cause   string // ending of the run's newest attempt, or the code of what refused the row
	Reason  string // of one of them
	Rows    int64
	Samples []string // some of them
}

// maxCauses bounds how many causes are told.
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

// BatchTodo lists the rows with which the gateway still has to do something: at most perBatch of each batch, without the named batches.
func (l *Ledger) BatchTodo(ctx context.Context, perBatch int, without []string) (out []BatchRow, err error) {
	ids, err := list(ctx, l.r, column[string], "SELECT DISTINCT batch_id FROM batch_rows WHERE todo <> ''")
	for _, id := range ids {
		if err != nil || contains(without, id) {
			continue
		}
		var rows []BatchRow
		rows, err = list(ctx, l.r, scanBatchRow, "SELECT "+rowColumns+
			" INDEXED BY batch_rows_todo WHERE w.batch_id = ? AND w.todo <> '' ORDER BY w.row_n LIMIT ?", id, perBatch)
		out = append(out, rows...)
	}
	return out, err
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// RowIsRun records which run a row became: one that waits for outputs of others is that for as long as it waits.
func (l *Ledger) RowIsRun(ctx context.Context, batchID string, row int, runID string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		w, err := waitingRun(ctx, tx, runID)
		switch {
		case err == nil && w.State != WaitingStarted:
			state, code, message := "waiting", "", ""
			if w.State != WaitingOn {
				state, code, message = string(w.State), w.Code, w.Message
			}
			_, err := tx.ExecContext(ctx, `UPDATE batch_rows SET waiting_id = ?3, state = ?4, code = ?5, message = ?6, tries = 0,
 todo = iif(todo = 'submit', '', todo) WHERE batch_id = ?1 AND row_n = ?2 AND run_id IS NULL AND state <> 'cancelled'`, batchID, row, runID, state, code, message)
			return err
		case err == nil:
			if _, err := tx.ExecContext(ctx, "UPDATE batch_rows SET waiting_id = ? WHERE batch_id = ? AND row_n = ?", runID, batchID,
				row); err != nil {
				return err
			}
			runID = w.Became
		case !fault.Is(err, fault.NotFound):
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE batch_rows SET (run_id, run_at, state) = (SELECT run_id, created_at, state FROM runs WHERE run_id = ?3),
 todo = iif(todo = 'submit', '', todo), tries = 0, code = '', message = '' WHERE batch_id = ?1 AND row_n = ?2 AND run_id IS NULL`, batchID, row, runID)
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE batch_tags SET (run_id, run_at) = (SELECT run_id, created_at FROM runs WHERE run_id = ?3)
 WHERE batch_id = ?1 AND row_n = ?2`, batchID, row, runID)
		}
		return err
	})
}

// RowDone records that a retry or a cancel of a row was carried out. A newer request for the row stays.
func (l *Ledger) RowDone(ctx context.Context, w BatchRow) error {
	return l.write(ctx, "UPDATE batch_rows SET todo = '', tries = 0 WHERE batch_id = ? AND row_n = ? AND todo = ?", w.BatchID, w.N, w.Todo)
}

// RowRefused records that a row was refused for good: it is not tried again, unless somebody asks for it.
func (l *Ledger) RowRefused(ctx context.Context, w BatchRow, code, message string) error {
	return l.write(ctx, `UPDATE batch_rows SET todo = '', tries = 0, code = ?, message = ?, state = iif(run_id IS NULL, 'refused', state)
 WHERE batch_id = ? AND row_n = ? AND todo = ?`, code, message, w.BatchID, w.N, w.Todo)
}

// RowPutOff counts that a row could not be carried out for now.
func (l *Ledger) RowPutOff(ctx context.Context, w BatchRow) error {
	return l.write(ctx, "UPDATE batch_rows SET tries = tries + 1 WHERE batch_id = ? AND row_n = ?", w.BatchID, w.N)
}

// RetryBatch has the rows of a batch that failed or were refused submitted again, on request also cancelled ones, and returns how many.
func (l *Ledger) RetryBatch(ctx context.Context, batchID string, cancelled bool) (n int64, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n, err = update(ctx, tx, `UPDATE batch_rows SET tries = 0, code = '', message = '', todo = iif(run_id IS NULL, 'submit', 'retry'),
 after_n = coalesce((SELECT r.attempt_n FROM runs r WHERE r.run_id = batch_rows.run_id), 0), state = iif(run_id IS NULL, 'waiting', state)
 WHERE batch_id = ? AND (state IN ('failed', 'refused') OR ? AND state = 'cancelled') AND todo = ''`, batchID, cancelled)
		return err
	})
	return n, err
}

// BatchCancelled says what a cancel of a batch does.
type BatchCancelled struct {
	Dropped    int64 // rows that were not submitted, and never will be
	Cancelling int64 // rows whose runs are being cancelled
	Spared     int64 // rows whose runs go on, because others asked for them or another batch has them
}

// others is the condition that the run of a row is not the batch's principal's alone: somebody else asked for it, or another batch has it.
const others = `(EXISTS (SELECT 1 FROM runs r, batches b WHERE r.run_id = w.run_id AND b.batch_id = w.batch_id
  AND (r.principal, r.principal_id) <> (b.principal, b.principal_id))
 OR EXISTS (SELECT 1 FROM run_askers k, batches b WHERE k.run_id = w.run_id AND b.batch_id = w.batch_id
  AND (k.principal, k.principal_id) <> (b.principal, b.principal_id))
 OR EXISTS (SELECT 1 FROM batch_rows x WHERE x.run_id = w.run_id AND x.batch_id <> w.batch_id AND x.todo <> 'cancel'))`

// CancelBatch drops the rows of a batch that were not submitted, and has the runs of the others cancelled that nobody else asked for.
func (l *Ledger) CancelBatch(ctx context.Context, batchID string) (c BatchCancelled, err error) {
	const open = "w.batch_id = ?1 AND w.state IN ('queued', 'running', 'blocked')"
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) (err error) {
		if err = l.cancelWaiting(ctx, tx, batchID); err != nil {
			return err
		}
		if c.Dropped, err = update(ctx, tx, `UPDATE batch_rows SET state = 'cancelled', todo = '', code = 'cancelled', message = 'cancelled with the batch'
 WHERE batch_id = ? AND run_id IS NULL AND (todo = 'submit' OR state = 'waiting')`, batchID); err != nil {
			return err
		}
		if _, err = update(ctx, tx, "UPDATE batch_rows SET todo = '' WHERE batch_id = ? AND todo = 'retry'", batchID); err != nil {
			return err
		}
		if err = tx.QueryRowContext(ctx, "SELECT count(*) FROM batch_rows w WHERE "+open+" AND "+others, batchID).Scan(&c.Spared); err != nil {
			return err
		}
		c.Cancelling, err = update(ctx, tx, "UPDATE batch_rows AS w SET todo = 'cancel', tries = 0 WHERE "+open+" AND NOT "+others, batchID)
		return err
	})
	return c, err
}
