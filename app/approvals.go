package app

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// approvalsAsked begins an answer about approvals.
type approvalsAsked struct {
	CallRunID
	Snapshot *ledger.ApprovalSnapshot `json:"snapshot"` // null for an answer about one approval, which needs none
}

// ApprovalListArgs are the arguments of approval.list.
type ApprovalListArgs struct {
	All bool `json:"all,omitzero"`
}

// ApprovalList is the answer of approval.list.
type ApprovalList struct {
	approvalsAsked
	Total     int64           `json:"total"` // the list shows the newest 500
	Approvals []gate.Approval `json:"approvals"`
}

type approvalAnswered struct {
	approvalsAsked
	gate.Approval
}

// ApprovalAnswerArgs are the arguments of approval.answer.
type ApprovalAnswerArgs struct {
	ApprovalID       string `json:"approval_id"`
	Approve          bool   `json:"approve"`
	Uses             int    `json:"uses,omitzero"`
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitzero"`
	Reason           string `json:"reason,omitzero"`
}

// approvals are the operations on approvals.
func (g *Gateway) approvals() []Operation {
	return []Operation{{
		ID: "approval.list", Title: "List approvals", Verb: "approvals",
		Description: "Lists the calls that are waiting for a person's approval; with all=true also those answered or expired.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapApprove, Needs: Ledger, Faces: noChat,
		Input: object("", prop("all", yesNo)), Does: look(g, g.listApprovals),
	}, {
		ID: "approval.answer", Title: "Answer a request for approval", Verb: "approve",
		Description: "Approves or denies a call that needs a person's approval. An approval is valid only for this caller and these " +
			"arguments, for the given number of calls and time.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapApprove, Needs: Ledger, Faces: noChat,
		Input: object("approval_id approve", prop("approval_id", `{"type":"string","pattern":"^apr_[A-Z2-7]{26}$"}`), prop("approve", yesNo),
			prop("uses", `{"type":"integer","minimum":1,"maximum":1000,"description":"number of calls allowed; default 1"}`),
			prop("expires_in_seconds", `{"type":"integer","minimum":60,"maximum":2592000,"description":"how long the approval is valid; default: set by policy"}`),
			prop("reason", reasonSchema)),
		Does: look(g, g.answerApproval),
	}}
}

func (g *Gateway) listApprovals(ctx context.Context, c gate.Call, a ApprovalListArgs) (out ApprovalList, params any, err error) {
	found, total, snapshot, err := g.Ledger.Approvals(ctx, a.All)
	return ApprovalList{approvalsAsked{Snapshot: &snapshot}, total, found}, asOf(c, snapshot), err
}

// answerApproval records a person's decision. Nobody may approve their own request, except a person of this host identified by the kernel:
// at the shell, requesting and approving are two commands that somebody types.
func (g *Gateway) answerApproval(ctx context.Context, c gate.Call, a ApprovalAnswerArgs) (out approvalAnswered, params any, err error) {
	was, err := g.Ledger.Approval(ctx, a.ApprovalID)
	if err != nil {
		return out, nil, err
	}
	if was.Principal == c.Caller.Name && a.Approve && c.Caller.Method != gate.ByPeer {
		return out, nil, fault.New(fault.Policy, "approval.answer", "consent_self",
			"you requested this call yourself; somebody else has to approve it")
	}
	if wanted := map[bool]string{true: gate.Approved, false: gate.Denied}[a.Approve]; was.Status == wanted && was.AnsweredBy != nil &&
		*was.AnsweredBy == c.Caller.Name {
		out.Approval = was
		return out, asOf(c, nil), nil // the same answer again
	}
	expires := time.Duration(g.Policy.Consent.ApprovalExpiresSecs) * time.Second
	if a.ExpiresInSeconds > 0 {
		expires = time.Duration(a.ExpiresInSeconds) * time.Second
	}
	out.Approval, err = g.Ledger.AnswerApproval(ctx, a.ApprovalID, ledger.Answer{Approve: a.Approve, By: c.Caller.Name, Reason: a.Reason,
		Uses: max(1, a.Uses), Expires: time.Now().Add(expires)})
	return out, asOf(c, nil), err // an approval is answered once
}
