package gate

import (
	"context"
	"fmt"
	"time"

	"slurmgate/fault"
)

// consent checks whether somebody has approved exactly this payload, if policy requires that (HTC-07). It returns the approval to be used
// up, "" if none is needed. If there is none it creates a request; a person answers it, never over the transport of the call.
func (g *Gate) consent(ctx context.Context, who Caller, t Tool, args document, binding string) (approvalID string, err error) {
	rule := g.rules(t).Consent
	if rule == nil {
		return "", nil
	}
	const op = "gate.Call"
	if g.promises == nil {
		return "", fault.New(fault.Policy, op, "consent_denied", "policy requires an approval, which cannot be requested here")
	}
	args, _, err = g.redact(args, true)
	if err != nil {
		return "", err
	}
	a, err := g.promises.Ask(ctx, Question{Principal: who.Name, ToolID: t.ID, ToolVersion: t.Version, Binding: binding, ArgsHash: args.hash(),
		Payload: args.Bytes, Expires: g.now().Add(rule.Ask)})
	if err != nil {
		return "", err
	}
	switch a.Status {
	case Approved:
		return a.ID, nil
	case Denied:
		return "", fault.New(fault.Policy, op, "consent_denied", fmt.Sprintf("%s was denied (%s)%s", t.ID, a.ID, because(a.Reason))).
			WithNext("change the call, or talk to the person who denied it")
	}
	return "", fault.New(fault.Policy, op, "consent_required",
		fmt.Sprintf("this call of %s needs a person's approval; it was requested as %s, which expires at %s", t.ID, a.ID, a.ExpiresAt.UTC().
			Format(time.RFC3339))).
		WithNext("repeat the call once somebody with the capability approve has approved it").
		WithSteps(fault.Do("approval.answer", "approval_id", a.ID))
}

func because(reason *string) string {
	if reason == nil {
		return ""
	}
	return ": " + *reason
}
