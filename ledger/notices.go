package ledger

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/notify"
)

var _ notify.Store = (*Ledger)(nil)

const noticeColumns = `notice_id, coalesce(run_id, ''), waited_as, coalesce(batch_id, ''), url, origin, principal,
 principal_id, asked_at, due_at, iif(ended = '', '{}', ended), next_at, tries, result, settled_at, delivered`

func scanNotice(row scanner) (n notify.Notice, err error) {
	err = row.Scan(&n.ID, &n.RunID, &n.WaitedAs, &n.BatchID, &n.URL, &n.Origin, &n.By, &n.ByID, into{&n.AskedAt}, into{&n.DueAt},
		into{&n.Counts}, into{&n.NextAt}, &n.Tries, &n.Result, into{&n.SettledAt}, &n.Delivered)
	return n, err
}

// AddNotice records that a principal wants a notice of the end of a run or a batch: at most most notices of one run
// and principal, and of one batch that are not settled. If the same is recorded and not settled, it returns that one.
// A notice of a finished run or batch is due at once.
func (l *Ledger) AddNotice(ctx context.Context, n notify.Notice, most int) (out notify.Notice, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		was, err := list(ctx, tx, scanNotice, "SELECT "+noticeColumns+" FROM notices WHERE "+noticesOf(n)+
			" AND (principal, principal_id) = (?2,?3) AND (batch_id IS NULL OR settled_at IS NULL)", n.RunID+n.BatchID, n.By, n.ByID)
		if err != nil {
			return err
		}
		for _, o := range was {
			if o.URL == n.URL && o.SettledAt == nil {
				out = o
				return nil
			}
		}
		if len(was) >= most {
			return fault.New(fault.Conflict, "too_many_notices", fmt.Sprintf("you asked for %d notices of this already", len(was))).
				WithNext("wait for it instead")
		}
		q := `INSERT INTO notices (notice_id, run_id, url, origin, principal, principal_id, asked_at, due_at, next_at)
 SELECT ?1, run_id, ?2, ?3, ?4, ?5, ?6, finished_at, iif(finished_at IS NULL, NULL, ?6) FROM runs WHERE run_id = ?7`
		if n.BatchID != "" {
			q = `INSERT INTO notices (notice_id, batch_id, url, origin, principal, principal_id, asked_at, due_at, next_at, ended)
 SELECT ?1, b.batch_id, ?2, ?3, ?4, ?5, ?6, iif(open, NULL, max(b.created_at, coalesce((SELECT max(r.finished_at) FROM batch_rows w
   JOIN runs r ON r.run_id = w.run_id WHERE w.batch_id = b.batch_id), 0))), iif(open, NULL, ?6),
  iif(open, '', (SELECT json_group_object(c.state, c.n) FROM batch_counts c WHERE c.batch_id = b.batch_id AND c.n > 0))
 FROM (SELECT *, ` + batchOpen + ` AS open FROM batches) b WHERE b.batch_id = ?7`
		}
		_, err = tx.ExecContext(ctx, q, n.ID, n.URL, n.Origin, n.By, n.ByID, micros(l.now()), n.RunID+n.BatchID)
		if err == nil {
			out, err = scanNotice(tx.QueryRowContext(ctx, "SELECT "+noticeColumns+" FROM notices WHERE notice_id = ?", n.ID))
		}
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.New(fault.NotFound, "no_such_run", "there is no run "+n.RunID)
	}
	return out, err
}

// batchOpen is the condition that a row of a batch has not ended.
const batchOpen = `(EXISTS (SELECT 1 FROM batch_counts c WHERE c.batch_id = batches.batch_id AND c.n > 0 AND c.state IN ('waiting', 'queued', 'running', 'blocked'))
  OR EXISTS (SELECT 1 FROM batch_rows t WHERE t.batch_id = batches.batch_id AND t.todo <> ''))`

func noticesOf(n notify.Notice) string {
	if n.BatchID != "" {
		return "batch_id = ?1"
	}
	return "run_id = ?1"
}

// Notices returns the notices of the same run or batch, oldest first.
func (l *Ledger) Notices(ctx context.Context, of notify.Notice) ([]notify.Notice, error) {
	return list(ctx, l.r, scanNotice, "SELECT "+noticeColumns+" FROM notices WHERE "+noticesOf(of)+" ORDER BY asked_at, notice_id",
		of.RunID+of.BatchID)
}

// DueNotices implements [notify.Store].
func (l *Ledger) DueNotices(ctx context.Context, now time.Time, perCaller int) ([]notify.Notice, error) {
	return list(ctx, l.r, scanNotice, "SELECT "+noticeColumns+` FROM
 (SELECT *, row_number() OVER (PARTITION BY origin, principal, principal_id ORDER BY next_at, notice_id) AS nth FROM notices WHERE next_at <= ? OR next_at > ?)
 WHERE nth <= ? ORDER BY next_at, notice_id`, micros(now), micros(now.Add(notify.LongestPause)), perCaller)
}

// NoticeEvent implements [notify.Store].
func (l *Ledger) NoticeEvent(ctx context.Context, n notify.Notice) (notify.Ended, error) {
	e, err := l.noticeEvent(ctx, n)
	if err != nil {
		return nil, err
	}
	var due bool // read last: the other columns are of the end that the notice reports
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM notices WHERE "+stillDue+")", n.ID, optMicros(n.DueAt)).Scan(&due)
	if err != nil || !due {
		return nil, storage(err)
	}
	return e, nil
}

// stillDue is the condition that notice ?1 is to report the end at ?2.
const stillDue = "notice_id = ?1 AND due_at = ?2 AND settled_at IS NULL"

func (l *Ledger) noticeEvent(ctx context.Context, n notify.Notice) (notify.Ended, error) {
	if n.BatchID != "" {
		b, err := l.Batch(ctx, n.BatchID)
		return notify.BatchData{NoticeID: n.ID, GatewayID: l.ID(), BatchID: b.ID, Name: b.Name, ToolID: b.ToolID, ProjectID: b.ProjectID,
			Rows: b.Rows, Counts: n.Counts, FinishedAt: n.DueAt.UTC()}, err
	}
	v, err := l.View(ctx, n.RunID)
	if err != nil {
		return nil, err
	}
	r := v.Run
	e := notify.EventData{NoticeID: n.ID, GatewayID: l.ID(), RunID: r.ID, ToolID: r.ToolID, ProjectID: r.ProjectID, State: string(r.State),
		WaitedAs: n.WaitedAs, Reason: r.Reason, Attempt: r.AttemptN, SlurmJobID: v.Submission.JobID}
	if r.FinishedAt != nil {
		e.FinishedAt = r.FinishedAt.UTC()
	}
	return e, nil
}

// SignNotice implements [notify.Store], with the key that signs receipts. What it signs of the two begins differently.
func (l *Ledger) SignNotice(ctx context.Context, data []byte) (keyID string, signature []byte, err error) {
	var secret []byte
	if err := l.one(ctx, "SELECT key_id, secret FROM receipt_keys WHERE retired_at IS NULL").Scan(&keyID, &secret); err != nil {
		return "", nil, storage(err)
	}
	return keyID, ed25519.Sign(secret, data), nil
}

// NoticeTried implements [notify.Store].
func (l *Ledger) NoticeTried(ctx context.Context, n notify.Notice, result string, delivered bool, next *time.Time) error {
	var settled any
	if next == nil {
		settled = micros(l.now())
	}
	return l.write(ctx, "UPDATE notices SET tries = tries + 1, result = ?3, delivered = ?4, next_at = ?5, settled_at = ?6 WHERE "+stillDue,
		n.ID, optMicros(n.DueAt), fault.ClipTo(result, 512), delivered, optMicros(next), settled)
}

// HoldPlace implements [notify.Store].
func (l *Ledger) HoldPlace(ctx context.Context, n notify.Notice, now, until time.Time) error {
	return l.write(ctx, "UPDATE notices SET next_at = ?3 WHERE next_at <= ?2 AND url = ?1", n.URL, micros(now), micros(until))
}

// HoldCaller implements [notify.Store].
func (l *Ledger) HoldCaller(ctx context.Context, n notify.Notice, now, until time.Time) error {
	return l.write(ctx, "UPDATE notices SET next_at = ?5 WHERE next_at <= ?4 AND (origin, principal, principal_id) = (?1, ?2, ?3)", n.Origin,
		n.By, n.ByID, micros(now), micros(until))
}

// NoticesDelivered implements [notify.Store].
func (l *Ledger) NoticesDelivered(ctx context.Context, n notify.Notice, since time.Time) (caller, all int, err error) {
	err = l.one(ctx, "SELECT coalesce(sum((principal, principal_id) = (?3, ?4)), 0), count(*) FROM notices WHERE origin = ?1 AND "+
		"settled_at >= ?2 AND delivered", n.Origin, micros(since), n.By, n.ByID).Scan(&caller, &all)
	return caller, all, storage(err)
}
