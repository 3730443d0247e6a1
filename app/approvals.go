package app

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

type ApprovalListArgs struct {
	All bool `json:"all,omitzero"`
}

type ApprovalList struct {
	approvalsAsked
	Total     int64           `json:"total"` // the list shows the newest 500
	Approvals []gate.Approval `json:"approvals"`
}

type approvalAnswered struct {
	approvalsAsked
	gate.Approval
}

type ApprovalAnswerArgs struct {
	ApprovalID       string `json:"approval_id"`
	Approve          bool   `json:"approve"`
	Uses             int    `json:"uses,omitzero"`
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitzero"`
	Reason           string `json:"reason,omitzero"`
}

func (g *Gateway) approvalTools() []gate.Tool {
	idSchema := `{"type":"string","pattern":"^apr_[A-Z2-7]{26}$"}`
	list := builtin("approval.list", "List approvals", "Lists the calls that are waiting for a person's approval; with all=true also those "+
		"answered or expired.", gate.Read,
		object("", prop("all", `{"type":"boolean"}`)), handler(func(ctx context.Context, c gate.Call, a ApprovalListArgs) (any, error) {
			found, total, snapshot, err := g.Ledger.Approvals(ctx, a.All)
			if err != nil {
				return nil, err
			}
			prov, err := g.about(ctx, "approval.list", c, snapshot)
			return ApprovalList{approvalsAsked{prov, &snapshot}, total, found}, err
		}))
	answer := builtin("approval.answer", "Answer a request for approval",
		"Approves or denies a call that needs a person's approval. An approval is valid only for this caller and these arguments, for the "+
			"given number of calls and time.", gate.Write,
		object("approval_id approve", prop("approval_id", idSchema), prop("approve", `{"type":"boolean"}`),
			prop("uses", `{"type":"integer","minimum":1,"maximum":1000,"description":"number of calls allowed; default 1"}`),
			prop("expires_in_seconds", `{"type":"integer","minimum":60,"maximum":2592000,"description":"how long the approval is valid; default: set by policy"}`), prop("reason", `{"type":"string","maxLength":512}`)),
		handler(g.answerApproval))
	return []gate.Tool{list, answer}
}

// answerApproval records a person's decision. Nobody may approve their own request, except a person of this host identified by the kernel:
// at the shell, requesting and approving are two commands that somebody types.
func (g *Gateway) answerApproval(ctx context.Context, c gate.Call, a ApprovalAnswerArgs) (any, error) {
	was, err := g.Ledger.Approval(ctx, a.ApprovalID)
	if err != nil {
		return nil, err
	}
	if was.Principal == c.Caller.Name && a.Approve && c.Caller.Method != gate.ByPeer {
		return nil, fault.New(fault.Policy, "approval.answer", "consent_self",
			"you requested this call yourself; somebody else has to approve it")
	}
	if wanted := map[bool]string{true: gate.Approved, false: gate.Denied}[a.Approve]; was.Status == wanted && was.AnsweredBy != nil &&
		*was.AnsweredBy == c.Caller.Name {
		prov, err := g.about(ctx, "approval.answer", c, nil) // the same answer again
		return approvalAnswered{approvalsAsked{ProvenanceRunID: prov}, was}, err
	}
	expires := time.Duration(g.Policy.Consent.ApprovalExpiresSecs) * time.Second
	if a.ExpiresInSeconds > 0 {
		expires = time.Duration(a.ExpiresInSeconds) * time.Second
	}
	answered, err := g.Ledger.AnswerApproval(ctx, a.ApprovalID, ledger.Answer{Approve: a.Approve, By: c.Caller.Name, Reason: a.Reason,
		Uses: max(1, a.Uses), Expires: time.Now().Add(expires)})
	if err != nil {
		return nil, err
	}
	prov, err := g.about(ctx, "approval.answer", c, nil) // an approval is answered once
	return approvalAnswered{approvalsAsked{ProvenanceRunID: prov}, answered}, err
}
