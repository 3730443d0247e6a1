package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// GateKey returns the secret that binds keys and approvals to payloads on this ledger.
func (l *Ledger) GateKey(ctx context.Context) ([]byte, error) {
	var key []byte
	err := l.r.QueryRowContext(ctx, "SELECT key FROM gate_key").Scan(&key)
	return key, storage(err)
}

// Key finds an idempotency key.
func (l *Ledger) Key(ctx context.Context, who gate.Principal, keyHash string) (gate.Key, error) {
	k := gate.Key{KeyHash: keyHash}
	err := l.one(ctx, "SELECT principal, tool_id, binding, coalesce(rights, ''), tool_call_id, approval_id, outcome, created_at "+
		"FROM idempotency_keys LEFT JOIN key_rights USING (rights_hash) WHERE principal = ? AND key_hash = ?",
		who.Key(), keyHash).
		Scan(&k.Principal, &k.ToolID, &k.Binding, &k.Rights, &k.ToolCallID, &k.ApprovalID, into{&k.Outcome}, into{&k.CreatedAt})
	if errors.Is(err, sql.ErrNoRows) {
		return k, fault.New(fault.NotFound, "", "this key was never used")
	}
	return k, storage(err)
}

// Begin binds a key and uses up an approval, both or neither.
func (l *Ledger) Begin(ctx context.Context, k *gate.Key, approvalID string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		now := micros(l.now())
		if k != nil {
			hash := plan.Hash([]byte(k.Rights))
			if _, err := tx.ExecContext(ctx, "INSERT INTO key_rights VALUES (?, ?) ON CONFLICT DO NOTHING", hash, k.Rights); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO idempotency_keys (principal, key_hash, tool_id, binding, rights_hash, tool_call_id, "+
				"approval_id, created_at) VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (principal, key_hash) DO UPDATE SET approval_id = excluded.approval_id",
				k.Principal, k.KeyHash, k.ToolID, k.Binding, hash, k.ToolCallID, k.ApprovalID, now); err != nil {
				return err
			}
		}
		if approvalID == "" {
			return nil
		}
		n, err := update(ctx, tx, "UPDATE approvals SET uses_left = uses_left - 1 WHERE approval_id = ? AND status = 'approved' AND "+
			"uses_left > 0 AND expires_at > ?", approvalID, now)
		if err != nil || n != 1 {
			return errors.Join(err, fault.New(fault.Policy, "consent_required",
				"the approval "+approvalID+" was used up by another call").WithNext("make the same call again: it requests a new approval"))
		}
		return nil
	})
}

const approvalQuery = "SELECT a.approval_id, a.principal, a.principal_id, m.name, a.tool_id, a.tool_version, a.covers, a.binding, " +
	"a.args_hash, a.payload_redacted, a.replaces, a.status, a.requested_at, a.expires_at, a.uses_left, a.answered_by, a.answered_by_id, " +
	"a.answered_at, a.reason FROM approvals a LEFT JOIN principals p ON p.principal_id = a.principal_id " +
	"LEFT JOIN principals m ON m.principal_id = p.made_by WHERE "

func scanApproval(row scanner) (a gate.Approval, err error) {
	err = row.Scan(&a.ID, &a.Principal, &a.PrincipalID, into{&a.MadeBy}, &a.ToolID, &a.ToolVersion, into{&a.Covers}, &a.Binding,
		&a.ArgsHash, into{&a.Payload}, into{&a.Replaces}, &a.Status, into{&a.RequestedAt}, into{&a.ExpiresAt}, &a.UsesLeft,
		into{&a.AnsweredBy}, into{&a.AnsweredByID}, into{&a.AnsweredAt}, into{&a.Reason})
	return a, err
}

// live is the condition of an approval that is still valid: pending and not expired, approved and not used up, or denied recently.
const live = "a.expires_at > ? AND (a.status <> 'approved' OR a.uses_left > 0)"

// maxPending bounds the pending requests of one principal.
const maxPending = 100

// Ask finds the live approval request for a binding, or creates it; gate.Promises has the contract.
func (l *Ledger) Ask(ctx context.Context, q gate.Question) (a gate.Approval, err error) {
	who := q.Who.Key()
	find := func(db queryer) (gate.Approval, error) {
		return scanApproval(db.QueryRowContext(ctx, approvalQuery+"a.principal_id = ? AND a.binding = ? AND "+live+
			" ORDER BY a.requested_at DESC LIMIT 1", who, q.Binding, micros(l.now())))
	}
	if a, err = find(l.r); err == nil || !errors.Is(err, sql.ErrNoRows) {
		return a, storage(err)
	}
	covers, err := plan.Marshal(q.Covers)
	if err != nil {
		return a, err
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if a, err = find(tx); err == nil || !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now := l.now()
		before, err := l.voidEarlier(ctx, tx, q)
		if err != nil {
			return err
		}
		var pending int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM approvals WHERE principal_id = ? AND status = 'pending' AND expires_at > ?",
			who, micros(now)).Scan(&pending); err != nil {
			return err
		}
		if pending >= maxPending {
			return fault.New(fault.Policy, gate.ConsentBacklog, fmt.Sprintf("%d of your calls are already waiting for approval",
				pending)).WithNext("have a person answer them").WithSteps(fault.Do("approval.list"))
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO approvals (approval_id, principal, principal_id, project_id, tool_id, tool_version, "+
			"covers, binding, args_hash, payload_redacted, replaces, status, requested_at, expires_at, uses_left) "+
			"VALUES (?,?,?,?,?,?,?,?,?,?,?,'pending',?,?,0)", "apr_"+rand.Text(), q.Who.Name, who, q.Covers.ProjectID, q.ToolID, q.ToolVersion,
			string(covers), q.Binding, q.ArgsHash, string(q.Payload), optText(before), micros(now), micros(q.Expires)); err != nil {
			return err
		}
		a, err = find(tx)
		return err
	})
	return a, err
}

// voidEarlier ends what the principal asked, or was granted, for the same tool and arguments with another binding. It
// returns the newest of these requests, "" without any. A denial stays, since it allows nothing.
func (l *Ledger) voidEarlier(ctx context.Context, tx *sql.Conn, q gate.Question) (newest string, err error) {
	which := " FROM approvals a WHERE a.principal_id = ? AND a.tool_id = ? AND a.args_hash = ? AND a.status <> 'denied' AND " + live
	now := micros(l.now())
	args := []any{q.Who.Key(), q.ToolID, q.ArgsHash, now}
	err = tx.QueryRowContext(ctx, "SELECT a.approval_id"+which+" ORDER BY a.requested_at DESC LIMIT 1", args...).Scan(&newest)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE approvals SET uses_left = 0, expires_at = iif(status = 'pending', ?, expires_at) "+
			"WHERE approval_id IN (SELECT a.approval_id"+which+")", append([]any{now}, args...)...)
	}
	return newest, err
}

// Approval reads one approval.
func (l *Ledger) Approval(ctx context.Context, id string) (gate.Approval, error) {
	a, err := scanApproval(l.one(ctx, approvalQuery+"a.approval_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return a, NoApproval(id)
	}
	return a, storage(err)
}

// NoApproval returns the error for an approval that does not exist, and for one that the caller does not see.
func NoApproval(id string) error {
	return fault.New(fault.NotFound, "approval_not_found", "there is no approval "+id).WithSteps(fault.Do("approval.list"))
}

// ApprovalSnapshot counts the approvals of the projects that a list selects from. An approval is asked, answered once, used up or expires,
// so the numbers change exactly when the list does.
type ApprovalSnapshot struct {
	Approvals int64 `json:"approvals"` // ever asked
	Answered  int64 `json:"answered"`
	Expired   int64 `json:"expired"`   // without an answer; 0 in the list of all, which does not depend on the time
	UsesLeft  int64 `json:"uses_left"` // of all; 0 in the list of those that wait, which have none
}

// Approvals lists approvals of the projects (nil: of all, and those that concern the whole site), newest first, at most 500: those that
// wait for an answer, or with all every one. total counts them beyond the 500 too.
func (l *Ledger) Approvals(ctx context.Context, projects []string, all bool) (out []gate.Approval, total int64, s ApprovalSnapshot,
	err error) {
	now := micros(l.now())
	var of where
	if projects != nil {
		in, args := among("a.project_id", projects)
		of.add(in, args...)
	}
	err = l.snapshot(ctx, func(tx *sql.Tx) error { // list and numbers are of the same moment
		err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE a.status <> 'pending'),
 count(*) FILTER (WHERE a.status = 'pending' AND a.expires_at <= ?), coalesce(sum(a.uses_left), 0) FROM approvals a WHERE `+of.String(),
			append([]any{now}, of.args...)...).Scan(&s.Approvals, &s.Answered, &s.Expired, &s.UsesLeft)
		if err != nil {
			return err
		}
		if !all {
			of.add("a.status = 'pending' AND a.expires_at > ?", now)
		}
		out, err = list(ctx, tx, scanApproval, approvalQuery+of.String()+" ORDER BY a.requested_at DESC, a.approval_id LIMIT 500", of.args...)
		return err
	})
	if all {
		total, s.Expired = s.Approvals, 0
	} else {
		total, s.UsesLeft = s.Approvals-s.Answered-s.Expired, 0
	}
	return out, total, s, err
}

// Answer is a person's decision on a request.
type Answer struct {
	Approve bool
	By      gate.Principal
	Reason  string
	Uses    int       // number of calls it allows
	Expires time.Time // when it expires
}

// AnswerApproval answers a pending request. A request that was already answered or has expired is a Conflict.
func (l *Ledger) AnswerApproval(ctx context.Context, id string, w Answer) (gate.Approval, error) {
	status, uses := gate.Denied, 0
	if w.Approve {
		status, uses = gate.Approved, w.Uses
	}
	err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n, err := update(ctx, tx, "UPDATE approvals SET status = ?, uses_left = ?, answered_by = ?, answered_by_id = ?, answered_at = ?, "+
			"expires_at = ?, reason = ? WHERE approval_id = ? AND status = 'pending' AND expires_at > ?",
			status, uses, w.By.Name, w.By.Key(), micros(l.now()), micros(w.Expires), optText(w.Reason), id, micros(l.now()))
		if err != nil || n != 1 {
			return errors.Join(err, fault.New(fault.Conflict, "approval_answered",
				id+" was already answered or has expired").WithSteps(fault.Do("approval.list", "all", true)))
		}
		return nil
	})
	if err != nil {
		if _, missing := l.Approval(ctx, id); fault.Is(missing, fault.NotFound) {
			err = missing
		}
		return gate.Approval{}, err
	}
	return l.Approval(ctx, id)
}
