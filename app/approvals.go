package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// approvalsAsked is the first part of an answer about approvals.
type approvalsAsked struct {
	CallRunID
	Snapshot *ledger.ApprovalSnapshot `json:"snapshot"` // null for an answer about one approval, which needs none
}

// ApprovalListArgs are the arguments of approval.list.
type ApprovalListArgs struct {
	All bool `json:"all,omitzero" help:"Also list those answered or expired."`
}

// ApprovalList is the answer of approval.list.
type ApprovalList struct {
	approvalsAsked
	Total     int64           `json:"total" help:"how many there are in all; the list has the newest 500"`
	Approvals []gate.Approval `json:"approvals"`
}

// ApprovalAnswered is the answer of approval.answer.
type ApprovalAnswered struct {
	approvalsAsked
	gate.Approval
}

// ApprovalAnswerArgs are the arguments of approval.answer.
type ApprovalAnswerArgs struct {
	ApprovalShowArgs
	Approve          bool   `json:"approve"`
	Uses             int    `json:"uses,omitzero" min:"1" max:"1000" about:"number of calls allowed; default 1"`
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitzero" min:"60" max:"2592000" about:"how long the approval is valid; default: set by policy"`
	Reason           string `json:"reason,omitzero" max:"512"`
	Seen             string `json:"seen,omitzero" max:"64" about:"the code of approval.show, where a list does not show everything"`
}

// approvals returns the operations on approvals.
func (g *Gateway) approvals() []Operation {
	return []Operation{{
		ID: "approval.list", Title: "List approvals", Verb: "approvals list",
		Description: "Lists the calls that are waiting for a person's approval; with all=true also those answered or expired.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapApprove, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.listApprovals),
	}, {
		ID: "approval.show", Title: "Show a request for approval", Verb: "approvals show",
		Description: "Returns everything that a request for approval is about: its arguments, the sheet that they name, and the plan of each " +
			"run that is retried. Its code shows that all of it was seen.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapApprove, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.showApproval),
	}, {
		ID: "approval.answer", Title: "Answer a request for approval", Verb: "approve",
		Description: "Approves or denies a call that needs a person's approval. An approval is valid only for this caller and these " +
			"arguments, for the given number of calls and time.",
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapApprove, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.answerApproval),
	}}
}

func (g *Gateway) listApprovals(ctx context.Context, c gate.Call, a ApprovalListArgs) (out ApprovalList, err error) {
	found, total, snapshot, err := g.Ledger.Approvals(ctx, c.Projects(), a.All)
	if err == nil {
		err = g.listed(ctx, found)
	}
	return ApprovalList{approvalsAsked{Snapshot: &snapshot}, total, found}, err
}

// visibleApproval reads an approval that the caller may answer.
func (g *Gateway) visibleApproval(ctx context.Context, c gate.Call, id string) (gate.Approval, error) {
	was, err := g.Ledger.Approval(ctx, id)
	if err == nil && !c.Caller.CanAll(c.Needs, cmp.Or(was.Covers.ProjectID, gate.All)) {
		err = ledger.NoApproval(id)
	}
	return was, err
}

// answerApproval records a person's decision. It confirms a decision that the same person made before.
func (g *Gateway) answerApproval(ctx context.Context, c gate.Call, a ApprovalAnswerArgs) (out ApprovalAnswered, err error) {
	was, err := g.visibleApproval(ctx, c, a.ApprovalID)
	if err == nil && a.Approve && was.Status == gate.Pending {
		if err = g.unchanged(ctx, was); err == nil {
			err = g.seen(ctx, was, a.Seen)
		}
	}
	if err == nil && a.Approve {
		err = g.mayApprove(ctx, c.Caller.Principal, was)
	}
	if err != nil {
		return out, err
	}
	if wanted := map[bool]string{true: gate.Approved, false: gate.Denied}[a.Approve]; was.Status == wanted && was.AnsweredByID != nil &&
		*was.AnsweredByID == c.Caller.Key() {
		out.Approval = was
		return out, nil // the same answer again
	}
	expires := time.Duration(g.Policy.Consent.ApprovalExpiresSecs) * time.Second
	if a.ExpiresInSeconds > 0 {
		expires = time.Duration(a.ExpiresInSeconds) * time.Second
	}
	out.Approval, err = g.Ledger.AnswerApproval(ctx, a.ApprovalID, ledger.Answer{Approve: a.Approve, By: c.Caller.Principal, Reason: a.Reason,
		Uses: max(1, a.Uses), Expires: time.Now().Add(expires)})
	if err == nil {
		g.answered(ctx, a.ApprovalID)
	}
	return out, err
}

// unchanged refuses to approve a call that would now do something else: with another version of the tool, another
// image, or reference data whose name now means other content. The account, the partition and the site depend on who
// asks, and are compared when the call is repeated.
func (g *Gateway) unchanged(ctx context.Context, was gate.Approval) error {
	now, is := was.Covers, was.ToolVersion
	if t, err := g.Gate.Registry().Find(was.ToolID); err == nil {
		is, now.ContractVersion = t.Version, t.ContractVersion
	}
	if p, err := g.Domain.Packs().Get(was.ToolID); err == nil {
		now.PackHash = p.Hash()
		now.ImageDigest, _ = g.Domain.Lock().Digest(p.Image())
		now.Image = g.Domain.Lock().NameOf(now.ImageDigest)
	}
	now.References = maps.Clone(was.Covers.References)
	for name := range now.References {
		a, err := g.standsFor(ctx, name, was.Covers.ProjectID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if now.References[name] = "sha256:" + a.SHA256; err != nil {
			now.References[name] = "withdrawn"
		}
	}
	if is == was.ToolVersion && now.Equal(was.Covers) {
		return nil
	}
	return fault.New(fault.Conflict, "approval_void",
		was.ToolID+" has changed since this approval was requested: "+was.Changes(is, now)).
		WithNext("the requester must make the call again, which requests a new approval")
}

// mayApprove refuses an approval by the principal that asks, whether in person or through tokens: otherwise a token
// could approve what its creator cannot. A principal and those who created it, directly or through other tokens,
// count as one, and so do principals that act as one Unix user where jobs run as their callers. So two tokens with a
// common creator cannot approve for each other, and a token's creator cannot approve what the token asks. Anyone else
// who may approve can, and so can the gateway's own user and root, who may do everything.
func (g *Gateway) mayApprove(ctx context.Context, by gate.Principal, was gate.Approval) error {
	asking, err := g.Ledger.Identity(ctx, was.PrincipalID)
	user := was.Covers.ExecutedAs // of the principal that asks, if an OpenID principal's is known
	if _, name, ok := strings.Cut(asking.Subject, " "); ok && asking.Method == gate.ByPeer {
		user = name
	}
	if err == nil && asking.Method == gate.ByToken {
		t, err := g.Ledger.Token(ctx, asking.Subject)
		if err != nil {
			return err
		}
		user = t.UnixUser
		if t.RevokedAt != nil || !time.Now().Before(t.ExpiresAt) {
			return fault.New(fault.Policy, "requester_gone", "the token that requested this call, "+t.ID+", was revoked or has expired").
				WithNext("deny the request, or let it expire")
		}
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if by.Owner {
		return nil
	}
	if g.UnixUser != nil && user != "" && user == by.UnixUser {
		return fault.New(fault.Policy, "consent_self", "this call was requested by "+was.Principal+
			", which acts as the same Unix user as you, "+user).WithNext("have another person approve it")
	}
	behind, err := g.Ledger.Line(ctx, was.PrincipalID)
	if err != nil {
		return err
	}
	mine := []string{by.Key()}
	if by.Method == gate.ByToken {
		if mine, err = g.Ledger.Line(ctx, by.Key()); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(mine, func(who string) bool { return who != "" && slices.Contains(behind, who) }) {
		return nil
	}
	if by.Key() == was.PrincipalID {
		return fault.New(fault.Policy, "consent_self", "you requested this call yourself; another person has to approve it")
	}
	return fault.New(fault.Policy, "consent_self",
		"this call was requested by "+was.Principal+", and the same person is behind that principal and your credentials").
		WithNext("have another person approve it; a token cannot approve for a token that has the same creator")
}
