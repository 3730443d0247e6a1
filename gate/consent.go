package gate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Coverage is what an approval covers beyond the arguments of a call. The person who approves is shown all of it, and the approval is
// bound to it: a call that would do something else by now needs another approval.
type Coverage struct {
	ContractVersion string          `json:"contract_version"` // of the tool
	Tool            string          `json:"tool,omitzero" help:"the tool whose jobs another tool's call starts"`
	Attempt         int             `json:"attempt,omitzero" help:"of the run, that a retry opens"`
	Batches         []string        `json:"batches,omitzero" help:"whose runs are retried"`
	ProjectID       string          `json:"project_id" help:"empty where the call concerns the whole site"`
	Site            string          `json:"site,omitzero"` // where the job runs; this and the rest only of a call that starts one
	Partition       string          `json:"partition,omitzero"`
	Account         string          `json:"account,omitzero"` // that the job charges
	QOS             string          `json:"qos,omitzero"`
	ExecutedAs      string          `json:"executed_as,omitzero"` // Unix user whom the job runs as; empty: the gateway's own
	Constraint      string          `json:"constraint,omitzero"`
	Image           string          `json:"image,omitzero"` // name, where images.lock has one
	ImageDigest     string          `json:"image_digest,omitzero"`
	Resources       *plan.Resources `json:"resources,omitzero"`
	PackHash        string          `json:"pack_hash,omitzero"`   // of the toolpack's definition
	ParamsHash      string          `json:"params_hash,omitzero"` // of all that the program sees
	// names of reference data in the arguments, resolved: ref:NAME → sha256:<hex>
	References map[string]string `json:"references,omitzero"`

	// Of a call that starts many runs: [Coverage.Kind] of each of them, once. The rest has what they have in common
	Kinds []string `json:"kinds,omitzero"`

	// Waits: the call starts nothing. Another call asks for the same when it can start, and that one needs the
	// approval.
	Waits bool `json:"-"`
}

// Kind identifies what many runs of one call may have in common: all but what their arguments say.
func (c Coverage) Kind() string {
	c.ContractVersion, c.Tool, c.Attempt, c.ParamsHash, c.References, c.Kinds = "", "", 0, "", nil, nil // the toolpack's hash has the version
	c.Batches = nil
	doc, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return plan.Hash(doc)
}

// Equal reports whether two approvals cover the same.
func (c Coverage) Equal(o Coverage) bool { return reflect.DeepEqual(c, o) }

// references returns the names of reference data with their contents, as a text.
func (c Coverage) references() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.References)) {
		list = append(list, name+" as "+c.References[name])
	}
	return strings.Join(list, " and ")
}

func (c Coverage) resources() string {
	if c.Resources == nil {
		return ""
	}
	r := *c.Resources
	gpus := ""
	if r.GPUs != nil {
		gpus = fmt.Sprintf(", %d GPUs", *r.GPUs)
	}
	return fmt.Sprintf("%d CPUs, %d MiB%s, %d s", r.CPUs, r.MemMB, gpus, r.TimeLimitSeconds)
}

// Changes lists what has changed since the approval was requested.
func (a Approval) Changes(toolVersion string, later Coverage) string {
	c, out := a.Covers, []string{}
	for _, x := range []struct{ what, was, is string }{
		{"version", a.ToolVersion, toolVersion}, {"project", c.ProjectID, later.ProjectID}, {"site", c.Site, later.Site},
		{"partition", c.Partition, later.Partition},
		{"Unix user", c.ExecutedAs, later.ExecutedAs},
		{"account", c.Account, later.Account}, {"QOS", c.QOS, later.QOS}, {"constraint", c.Constraint, later.Constraint},
		{"image", c.Image, later.Image}, {"image digest", c.ImageDigest, later.ImageDigest},
		{"resources", c.resources(), later.resources()}, {"contract version", c.ContractVersion, later.ContractVersion},
		{"toolpack", c.PackHash, later.PackHash},
		{"reference data", c.references(), later.references()},
	} {
		if x.was != x.is {
			out = append(out, fmt.Sprintf("%s %s instead of %s", x.what, orText(x.is, "(none)"), orText(x.was, "(none)")))
		}
	}
	return orText(strings.Join(out, ", "), "another job or other sensitive arguments")
}

// consent checks whether a person has approved exactly this call, if policy requires that (HTC-07): the arguments,
// and all that [Coverage] has. It notes the result in the call and returns the approval to be used up, "" if none is
// needed. Without an approval it creates a request; a person answers it, never over the transport of the call. used
// is the approval that an interrupted call with the same key used up.
func (g *Gate) consent(ctx context.Context, who Caller, t Tool, c *Call, tr *trail, used string) (approvalID string, err error) {
	rule, judged, err := g.consentRule(ctx, t, c.withoutSensitive(tr))
	if c.judged = judged; err != nil || rule == nil {
		return "", err
	}
	if g.promises == nil {
		return "", fault.New(fault.Policy, "consent_denied", "policy requires an approval, which cannot be requested here")
	}
	covers := Coverage{}
	if t.Covers != nil {
		found, err := guard(ctx, g.log, func(ctx context.Context, c Call) (any, error) { return t.Covers(ctx, c) }, c.withoutSensitive(tr))
		if err != nil {
			return "", err
		}
		if covers = found.(Coverage); covers.Waits {
			c.Unapproved = true
			return "", nil
		}
	}
	c.Covered = &covers
	if under := approvalOf(ctx); under.id != "" {
		return "", g.covered(ctx, who, t, under, covers)
	}
	covers.ContractVersion, covers.References = t.ContractVersion, c.Names
	binding, err := g.approvalBinding(t, tr.input(), tr.body, covers)
	if err != nil {
		return "", err
	}
	if used != "" {
		if a, err := g.promises.Approval(ctx, used); err != nil || a.Binding == binding {
			return "", err
		}
	}
	args, _, err := g.redact(tr.args, true)
	if err != nil {
		return "", err
	}
	a, err := g.promises.Ask(ctx, Question{Who: who.Principal, ToolID: t.ID, ToolVersion: t.Version, Covers: covers, Binding: binding,
		ArgsHash: args.hash(), Payload: args.Bytes, Expires: g.now().Add(rule.Ask)})
	if err != nil {
		return "", err
	}
	switch a.Status {
	case Approved:
		return a.ID, nil
	case Denied:
		return "", fault.New(fault.Policy, "consent_denied", fmt.Sprintf("%s was denied (%s)%s", t.ID, a.ID, because(a.Reason))).
			WithNext("change the call, or talk to the person who denied it")
	}
	return "", fault.New(fault.Policy, ConsentRequired, g.asked(ctx, t, a)).
		WithNext("repeat the call once a person with the capability approve has approved it").
		WithSteps(fault.Do("approval.answer", "approval_id", a.ID))
}

// consentRule returns the approval rule of a call: that of its tool, or of a tool whose jobs it may start. nil: no
// rule. judged has the names of all of these tools.
func (g *Gate) consentRule(ctx context.Context, t Tool, c Call) (rule *ConsentRule, judged []string, err error) {
	judged = []string{t.Name()}
	if t.Starts != nil {
		found, err := guard(ctx, g.log, func(ctx context.Context, c Call) (any, error) { return t.Starts(ctx, c) }, c)
		if err != nil {
			return nil, nil, err
		}
		judged = append(judged, found.([]string)...)
	}
	for _, name := range judged {
		if g.policy != nil && rule == nil {
			rule = g.policy.Rules(name).Consent
		}
	}
	return rule, judged, nil
}

// under is an approval under which a call is made.
type under struct {
	id    string
	asker string // who must have asked for it; empty: the caller
}

type underKey struct{}

// UnderApproval marks a call as one of many that a call with a used approval starts: it needs no other approval, as
// long as it starts what that one covers. asker is the principal whose call used the approval; empty: the principal
// of this call. Only the gateway itself makes such calls.
func UnderApproval(ctx context.Context, approvalID, asker string) context.Context {
	return context.WithValue(ctx, underKey{}, under{approvalID, asker})
}

// ApprovalOf returns the approval under which a call is made, see [UnderApproval]; "": none.
func ApprovalOf(ctx context.Context) string { return approvalOf(ctx).id }

func approvalOf(ctx context.Context) under {
	u, _ := ctx.Value(underKey{}).(under)
	return u
}

// covered refuses a call that is not of the kind that an approval covers.
func (g *Gate) covered(ctx context.Context, who Caller, t Tool, u under, covers Coverage) error {
	a, err := g.promises.Approval(ctx, u.id)
	if err != nil || a.Status == Approved && a.PrincipalID == orText(u.asker, who.Key()) && slices.Contains(a.Covers.Kinds, covers.Kind()) {
		return err
	}
	return fault.New(fault.Policy, "approval_void", fmt.Sprintf("the approval %s does not cover this run of %s: its image, toolpack, "+
		"resources, account, partition or site has changed since", u.id, t.ID)).
		WithNext("ask for what is left anew, which requests another approval")
}

// asked returns the message that a call waits for an approval, and why an earlier one does not cover it.
func (g *Gate) asked(ctx context.Context, t Tool, a Approval) string {
	expires := a.ExpiresAt.UTC().Format(time.RFC3339)
	if a.Replaces != nil {
		if before, err := g.promises.Approval(ctx, *a.Replaces); err == nil {
			was := before.Changes(a.ToolVersion, a.Covers)
			return fmt.Sprintf("this call of %s is not what %s was about: it would now have %s; a new approval was requested as %s, which "+
				"expires at %s",
				t.ID, before.ID, was, a.ID, expires)
		}
	}
	return fmt.Sprintf("this call of %s needs a person's approval; it was requested as %s, which expires at %s", t.ID, a.ID, expires)
}

// approvalBinding identifies what an approval covers without revealing it.
func (g *Gate) approvalBinding(t Tool, args plan.Doc, body []byte, covers Coverage) (string, error) {
	doc, err := plan.Marshal(covers)
	if err != nil {
		return "", err
	}
	m := hmac.New(sha256.New, g.key)
	fmt.Fprintf(m, "approval|payload=%s|covers=%s", g.binding(t, args.Bytes, body, covers.References), doc)
	return hex.EncodeToString(m.Sum(nil)), nil
}

// withoutSensitive returns the call as an approval covers it and shows it.
func (c Call) withoutSensitive(tr *trail) Call {
	c.Args, c.Value = tr.args.Bytes, tr.args.Value
	return c
}

// The codes of a call that waits for a person's approval, and of one that cannot ask for it because too many of the caller's do.
const (
	ConsentRequired = "consent_required"
	ConsentBacklog  = "consent_backlog"
)

func because(reason *string) string {
	if reason == nil {
		return ""
	}
	return ": " + *reason
}
