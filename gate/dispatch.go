package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/plan"
)

// dispatch decides on a call with a valid envelope, step by step, and carries it out. Nothing has an effect before every step has
// succeeded. A *Response as the result is the recorded outcome of an idempotency key.
func (g *Gate) dispatch(ctx context.Context, who Caller, req Request, res *Response, t *trail) (result any, err error) {
	e, err := g.registry.reach(req.ToolID, who.Transport)
	if err != nil {
		return nil, err
	}
	t.tool = e.tool
	if req.ToolVersion != e.tool.Version {
		return nil, fault.New(fault.Validation, "tool_version", fmt.Sprintf("%s has version %s, but the call names version %s",
			req.ToolID, e.tool.Version, req.ToolVersion)).
			WithNext("list the tools again")
	}
	if err := g.allowed(who, e.tool); err != nil {
		return nil, err
	}
	timeout := g.timeout(e.tool)
	ctx, stop := context.WithTimeout(ctx, timeout+e.tool.Grace)
	defer stop()
	if e.tool.Checks {
		var end func()
		ctx, end = g.checking(ctx)
		defer end()
	}
	ctx, release := g.memory.hold(ctx, who.Key())
	defer release()
	if err = g.understand(ctx, who, e, req, t); err != nil {
		return nil, timedOut(ctx, err, req.ToolID, timeout)
	}
	if t.hidden != nil {
		req.Args = t.args.Bytes
	}
	res.Resources = touched(t.args.Bytes)
	if who.Body, t.body, err = readBody(who.Body, e.tool.Body); err != nil {
		return nil, err
	}
	if req.DryRun && e.tool.SideEffect != Read {
		result, err = g.rehearse(ctx, who, e.tool, req, t.args.Doc, t)
	} else {
		result, err = g.perform(ctx, who, e.tool, req, t)
	}
	if ended := who.ended(); ended != nil && (!t.effect || errors.Is(err, context.Canceled)) {
		return nil, ended // return nil, ended // the answer came too late for its caller; a call that had an effect still gets it
	}
	return result, timedOut(ctx, err, req.ToolID, timeout)
}

func (c Caller) ended() error {
	if c.Ended == nil {
		return nil
	}
	return c.Ended()
}

// allowed denies by default: it checks every capability that the tool needs, then policy. On which project the caller needs them
// is checked once the arguments are known, by [Gate.scope] and by the handler.
func (g *Gate) allowed(who Caller, t Tool) error {
	if t.SiteWide && !who.CanAll(t.Capabilities, All) {
		return who.lacks(t.Capabilities, All, t.ID)
	}
	for _, c := range t.Capabilities {
		if !who.CanSomewhere(c) {
			return fault.New(fault.Capability, "capability_denied", fmt.Sprintf("%s needs the capability %q, which %s does not have",
				t.ID, c, orText(who.Name, "an unknown caller"))).
				WithNext("ask the administrator for a token or a grant with this capability")
		}
	}
	if !who.CanSomewhere(t.Capabilities...) {
		return fault.New(fault.Capability, "capability_denied",
			fmt.Sprintf("%s needs the capabilities %s on one project; %s has them on "+
				"different ones", t.ID, strings.Join(t.Capabilities, ", "), orText(who.Name, "an unknown caller"))).
			WithNext("ask the administrator for a grant that has them together")
	}
	if g.policy == nil {
		return nil
	}
	return g.policy.AllowTool(t.Name())
}

func (g *Gate) rules(t Tool) Rules {
	if g.policy == nil {
		return Rules{}
	}
	return g.policy.Rules(t.Name())
}

func (g *Gate) timeout(t Tool) time.Duration {
	switch policy := g.rules(t).Timeout; {
	case t.Timeout > 0:
		return t.Timeout
	case policy > 0:
		return policy
	}
	return defaultTimeout
}

// understand finds the arguments: canonical, without secrets except in sensitive ones, valid for the tool, about things the caller can see.
func (g *Gate) understand(ctx context.Context, who Caller, e entry, req Request, t *trail) (err error) {
	if t.full, err = g.arguments(ctx, who, req, t.given); err != nil {
		return err
	}
	if t.args.Doc, t.hidden = e.tool.masked(t.full); t.hidden != nil && req.ArgsRef != nil && artifactOf(*req.ArgsRef) != "" {
		return notByReference()
	}
	if t.args, err = g.noSecrets(t.args); err != nil {
		return err
	}
	if err := e.checkArgs(t.full.Value); err != nil {
		return err
	}
	return g.scope(ctx, who, e.tool, t.args.Value, req.DryRun && e.tool.SideEffect != Read)
}

// readBody reads the body that a tool's calls come with.
func readBody(r io.Reader, most int64) (again io.Reader, body []byte, err error) {
	if most == 0 || r == nil {
		return r, nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, nil, fault.Wrap(fault.Transport, "body_cut_off", "the body did not arrive whole", err).WithNext("send it again")
	}
	if int64(len(body)) > most {
		return nil, nil, fault.New(fault.Validation, "body_too_large", fmt.Sprintf("the body has more than %d bytes", most))
	}
	return bytes.NewReader(body), body, nil
}

// rehearse returns what a call would do. It neither needs an approval nor binds a key, and reports whether the call would need an approval.
func (g *Gate) rehearse(ctx context.Context, who Caller, t Tool, req Request, args plan.Doc, tr *trail) (any, error) {
	held, err := g.limiter.take(ctx, who, t.ID)
	if err != nil {
		return nil, err
	}
	defer held.release()
	rule, _, err := g.consentRule(ctx, t, Call{Caller: who, Needs: t.Capabilities, Request: req, Args: args.Bytes, Value: args.Value})
	if err != nil {
		return nil, err
	}
	d := Rehearsal{DryRun: true, LeftOut: []string{}, ToolID: t.ID, ToolVersion: t.Version, SideEffect: t.SideEffect, Args: args.Bytes,
		ConsentRequired: rule != nil, Would: null}
	if t.DryRun != nil {
		tr.reached = true
		would, err := guard(ctx, g.log, t.DryRun, Call{Caller: who, Needs: t.Capabilities, Request: req, Args: args.Bytes,
			Value: args.Value, Stored: args.Bytes, Hidden: tr.hidden})
		if err != nil {
			return nil, err
		}
		if d.Would, err = json.Marshal(would); err != nil {
			return nil, fault.Wrap(fault.Internal, "result_not_json", "the result of the dry run cannot be encoded", err)
		}
	}
	return d, nil
}

// Rehearsal is the answer to a dry run of a tool that writes or executes.
type Rehearsal struct {
	DryRun          bool            `json:"dry_run"` // true
	ToolID          string          `json:"tool_id"`
	ToolVersion     string          `json:"tool_version"`
	SideEffect      SideEffect      `json:"side_effect"`
	Args            json.RawMessage `json:"args"` // canonical, as the call would be bound to
	ConsentRequired bool            `json:"consent_required"`
	Would           json.RawMessage `json:"would"`    // what the tool would do; null when it does not say
	LeftOut         []string        `json:"left_out"` // parts that were too large and are null, as args or would.params
}

// Says describes the dry run as a document.
func (d Rehearsal) Says(t Tool) blocks.Document {
	doc := blocks.Document{blocks.Say("%v would be called with %v.", d.ToolID, blocks.Data(d.Args))}
	if t.SaysDryRun != nil && !bytes.Equal(d.Would, null) {
		if said, err := t.SaysDryRun(d.Would); err == nil {
			doc = said
		}
	}
	if d.ConsentRequired {
		doc = append(doc, blocks.Say("A person's approval would be needed."))
	}
	if len(d.LeftOut) > 0 {
		doc = append(doc, blocks.Say("Left out because it is too large for a dry run: %v.", strings.Join(d.LeftOut, ", ")))
	}
	return doc
}

// null is the JSON of a part that a dry run does not have.
var null = json.RawMessage("null")

// within shortens a dry run's answer to at most n bytes: an answer too large for an envelope would become an artifact, and a dry run
// creates none. The largest parts are removed first.
func (d Rehearsal) within(n int) (plan.Doc, error) {
	var would map[string]json.RawMessage
	_ = json.Unmarshal(d.Would, &would) // it may be something else, which is then removed as a whole
	for {
		name, size := "args", len(d.Args)
		for k, v := range would {
			if len(v) > size {
				name, size = "would."+k, len(v)
			}
		}
		if would == nil && len(d.Would) > size {
			name, size = "would", len(d.Would)
		}
		if size <= len(null) {
			return plan.Doc{}, fault.New(fault.Internal, "result_too_large", "the result of the dry run is too large for an answer")
		}
		d.LeftOut = append(d.LeftOut, name)
		switch key, in := strings.CutPrefix(name, "would."); {
		case in:
			would[key] = null
		case name == "args":
			d.Args = null
		default:
			d.Would = null
		}
		if would != nil {
			raw, err := json.Marshal(would)
			if err != nil {
				return plan.Doc{}, err
			}
			d.Would = raw
		}
		if doc, err := plan.Of(d); err != nil || len(doc.Bytes) <= n {
			return doc, err
		}
	}
}

// perform carries out a call: idempotency key, approval, limiter, and then the tool.
func (g *Gate) perform(ctx context.Context, who Caller, t Tool, req Request, tr *trail) (any, error) {
	if who.Body != nil && t.Body == 0 && (req.IdempotencyKey != nil || g.rules(t).Consent != nil) {
		return nil, fault.New(fault.Validation, "body_unbound", "an upload cannot have an idempotency key or an approval").
			WithNext("send it without a key: the same bytes become the same artifact anyway")
	}
	in := tr.input()
	call := Call{Caller: who, Needs: t.Capabilities, Request: req, Args: in.Bytes, Value: in.Value, Stored: tr.args.Bytes, Hidden: tr.hidden,
		ID: req.ToolCallID}
	if t.Names != nil {
		found, err := guard(ctx, g.log, func(ctx context.Context, c Call) (any, error) { return t.Names(ctx, c) }, call.withoutSensitive(tr))
		if err != nil {
			return nil, err
		}
		call.Names = found.(map[string]string)
	}
	used := "" // the approval that this very call used up, before the gateway died
	if req.IdempotencyKey != nil && t.SideEffect != Read {
		if g.promises == nil {
			return nil, fault.New(fault.Validation, "idempotency_key_unsupported", "this tool does not support idempotency keys").
				WithNext("leave the key out")
		}
		key := g.keyHash(*req.IdempotencyKey)
		leave, err := g.flights.enter(ctx, who, key, g.limiter.waits)
		if err != nil {
			return nil, err
		}
		tr.leave = leave
		binding := g.binding(t, in.Bytes, tr.body, call.Names)
		k, first, err := g.known(ctx, who, t, key, binding, call.Names)
		if err != nil || first != nil {
			return first, err
		}
		if k != nil {
			used, call.ID, call.Interrupted = k.ApprovalID, k.ToolCallID, true
		} else {
			k = &Key{Principal: who.Key(), KeyHash: key, ToolID: t.ID, Binding: binding, Rights: who.standing(), ToolCallID: req.ToolCallID}
		}
		tr.key = k
	}
	if t.SideEffect != Read && !who.Continues {
		if err := g.records.take(who.Key(), g.now()); err != nil {
			tr.key = nil
			return nil, err
		}
		tr.counted = true
	}
	approval, err := g.consent(ctx, who, t, &call, tr, used)
	if call.ApprovalID = orText(approval, used); err != nil {
		tr.key = nil
		return nil, err
	}
	held, err := g.limiter.take(ctx, who, t.ID)
	if err != nil {
		tr.key = nil
		return nil, err
	}
	defer held.release()
	tr.slot = held
	if err := who.ended(); err != nil {
		tr.key = nil
		return nil, err
	}
	if tr.key != nil || approval != "" {
		if tr.key != nil {
			tr.key.ApprovalID = orText(approval, used)
		}
		if err := g.promises.Begin(ctx, tr.key, approval); err != nil {
			tr.key = nil
			return nil, err
		}
	}
	tr.reached, tr.effect = true, t.SideEffect != Read
	result, err := guard(context.WithValue(ctx, provenanceKey{}, tr), g.log, t.Handle, call)
	if u, ok := result.(Unchanged); ok && err == nil && u.Unchanged() {
		tr.effect = false
	}
	return result, err
}

// Unchanged is a result that can report that the call changed nothing: a submit that found its run. Such a call is
// recorded as read-only, so that ten thousand repeated requests do not fill the permanent record.
type Unchanged interface{ Unchanged() bool }
