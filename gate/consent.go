package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slurmgate/fault"
)

// consent looks whether somebody has approved just this payload, where policy asks for that (HTC-07). It returns the approval to be used
// up, "" where none is needed. The question is asked by the way: a person answers it, never on the way the call came.
func (g *Gate) consent(ctx context.Context, who Caller, t Tool, args json.RawMessage, binding string) (approvalID string, err error) {
	rule := g.rules(t).Consent
	if rule == nil {
		return "", nil
	}
	const op = "gate.Call"
	if g.promises == nil {
		return "", fault.New(fault.Policy, op, "consent_denied", "policy asks for consent, and nobody can be asked here")
	}
	payload, hash, err := clean(args)
	if err != nil {
		return "", err
	}
	a, err := g.promises.Ask(ctx, Question{Principal: who.Name, ToolID: t.ID, ToolVersion: t.Version, Binding: binding, ArgsHash: hash, Payload: payload, Expires: g.now().Add(rule.Ask)})
	if err != nil {
		return "", err
	}
	switch a.Status {
	case Approved:
		return a.ID, nil
	case Denied:
		return "", fault.New(fault.Policy, op, "consent_denied", fmt.Sprintf("%s was denied (%s)%s", t.ID, a.ID, because(a.Reason))).WithNext("change what you ask for, or talk to who denied it")
	}
	return "", fault.New(fault.Policy, op, "consent_required", fmt.Sprintf("policy asks for a person's approval of this call of %s; it was asked for as %s, until %s", t.ID, a.ID, a.ExpiresAt.UTC().Format(time.RFC3339))).
		WithNext("somebody with the capability approve approves it, then make the same call again").WithSteps(fault.Do("approval.answer", "approval_id", a.ID))
}

func because(reason *string) string {
	if reason == nil {
		return ""
	}
	return ": " + *reason
}
