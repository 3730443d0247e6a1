package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/toolpack"
)

// promised is an input that an unfinished run will produce.
type promised struct {
	plan.Promise
	info toolpack.ArtifactInfo // what is known in advance: no checksum, no size
}

// promises replaces the outputs of runs among the inputs of a call. An existing output is replaced by its artifact, a
// future one by an id that stands for it in the plan and is a key of later. The error lists all outputs that will
// never exist. With asAsked the states of the runs are ignored, and each output is replaced by the id that stands for
// it.
func (g *Gateway) promises(ctx context.Context, args json.RawMessage, p *toolpack.Pack, project string, asAsked bool) (out json.RawMessage,
	later map[string]promised, err error) {
	var found []fault.Problem
	later = map[string]promised{}
	out, _ = replaceInputs(args, p, func(field, value string) string {
		x, ok := plan.ParsePromise(value)
		if !ok || err != nil {
			return value
		}
		id, info, err1 := g.outputOf(ctx, x, project, asAsked)
		switch {
		case err1 != nil && fault.CodeOf(err1) == noOutput:
			found = append(found, fault.Problem{Code: "ARGS-PROMISE", Field: field, Rule: "run_…:role, an output that a run of this project makes",
				Msg: fault.Prose(err1), Next: fault.StepsOf(err1)})
		case err1 != nil:
			err = err1
		case info != nil:
			later[id] = promised{x, *info}
			return id
		default:
			return id
		}
		return value
	})
	switch {
	case err != nil:
		return args, nil, err
	case len(found) > 0:
		return args, nil, fault.Invalid("the arguments of "+p.ID()+" are not accepted", found...)
	}
	return out, later, nil
}

// inputPattern matches an input of a toolpack: an artifact, a reference, an output of a run.
var inputPattern = strings.TrimSuffix(referencePattern, ")$") + "|" + plan.PromisePattern + ")$"

// allowOutputs makes a schema that accepts the names of references accept outputs of runs too.
func allowOutputs(schema any) { repattern(schema, referencePattern, inputPattern) }

// replaceInputs replaces a call's inputs by other values; field names the place of one. It does not change arguments
// that are not a JSON object: the pack reports what is wrong with them.
func replaceInputs(args json.RawMessage, p *toolpack.Pack, with func(field, value string) string) (out json.RawMessage, changed bool) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(args, &doc) != nil {
		return args, false
	}
	other := func(field, value string) string {
		x := with(field, value)
		changed = changed || x != value
		return x
	}
	for _, name := range paramsOf(p) {
		var value any
		if json.Unmarshal(doc[name], &value) != nil {
			continue
		}
		switch v := value.(type) {
		case string:
			value = other(name, v)
		case []any:
			for i := range v {
				if s, ok := v[i].(string); ok {
					v[i] = other(fmt.Sprintf("%s[%d]", name, i), s)
				}
			}
		default:
			continue
		}
		if raw, err := json.Marshal(value); err == nil { // it was JSON before
			doc[name] = raw
		}
	}
	raw, err := json.Marshal(doc)
	if !changed || err != nil {
		return args, false
	}
	return raw, true
}

// noOutput is the error code of an output that does not exist and never will.
const noOutput = "no_such_output"

// outputOf finds an output of a run: its artifact or, with info, the id that stands for it while the run has not
// ended. With asAsked it always returns the latter.
func (g *Gateway) outputOf(ctx context.Context, x plan.Promise, project string, asAsked bool) (id string, info *toolpack.ArtifactInfo,
	err error) {
	asked := x.String()
	declared, over, broken, err := g.madeBy(ctx, &x, project)
	if err != nil {
		return "", nil, cmp.Or(broken, err)
	}
	i := slices.IndexFunc(declared, func(o plan.Output) bool { return o.Role == x.Role })
	if i < 0 {
		var roles []string
		for _, o := range declared {
			roles = append(roles, o.Role)
		}
		msg := fmt.Sprintf("%s has no output %q", x.RunID, x.Role) + plan.Suggestion(plan.Nearest(x.Role, roles))
		return "", nil, fault.New(fault.Validation, noOutput, msg+" (its outputs: "+orNone(roles)+")")
	}
	if broken != nil && !asAsked {
		return "", nil, broken
	}
	if !over || asAsked {
		o := declared[i]
		info = &toolpack.ArtifactInfo{SHA256: plan.Unknown, Type: o.Type, Label: o.Label}
		id, err = plan.ArtifactID(project, plan.Hash([]byte(asked)), o.Type, o.Label)
		return id, info, err
	}
	outputs, err := g.Ledger.Outputs(ctx, x.RunID)
	for _, o := range outputs {
		if o.Role == x.Role && o.Relpath != "" && o.Artifact.Removed == "" && o.Artifact.Erased == "" {
			return o.Artifact.ID, nil, err
		}
	}
	if err == nil {
		err = fault.New(fault.Validation, noOutput, fmt.Sprintf("the output %s of %s was removed", x.Role, x.RunID)).
			WithSteps(fault.Do("slurm.job.get", "run_id", x.RunID))
	}
	return "", nil, err
}

// madeBy lists the declared outputs of a run that produces an input, and reports whether it has ended. broken is the
// reason why its outputs will never exist, or nil. It replaces a run that waited by the run that it became.
func (g *Gateway) madeBy(ctx context.Context, x *plan.Promise, project string) (outputs []plan.Output, over bool, broken, err error) {
	if s, ok := supposedRuns(ctx)[x.RunID]; ok && s.project == project {
		return s.outputs, false, nil, nil
	}
	nowhere := fault.New(fault.Validation, noOutput, "this project has no run "+x.RunID).WithSteps(fault.Do("run.list"))
	v, err := g.Ledger.View(ctx, x.RunID)
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && v.Run.ProjectID != project:
		return nil, false, nil, nowhere
	case err != nil:
		return nil, false, nil, err
	case v.Run.Site == run.WorkerSite:
		return nil, false, nil, fault.New(fault.Validation, noOutput, x.RunID+" is a call of a service worker, which has no outputs by role").
			WithNext("name the artifact of its answer")
	case v.Run.Removed != "":
		broken = fault.New(fault.Validation, noOutput, "what "+x.RunID+" made was removed").
			WithSteps(fault.Do("slurm.job.retry", "run_id", x.RunID, "after_attempt", v.Run.AttemptN))
	case v.Run.State == run.Failed || v.Run.State == run.Cancelled:
		broken = g.notMade(ctx, v, x.Role)
	}
	x.RunID = v.Run.ID
	params, err := g.Ledger.Params(ctx, v.Run.ParamsHash)
	if err != nil {
		return nil, false, broken, err
	}
	p, err := plan.DecodeParams(params)
	return p.Spec.IO.Outputs, v.Run.State == run.Succeeded, broken, err
}

// notMade returns the fault of a run that ended without its outputs. If an output of a failed run was collected the
// fault names it, so that the caller can ask for it by its artifact id.
func (g *Gateway) notMade(ctx context.Context, v run.View, role string) error {
	list, err := g.Ledger.Outputs(ctx, v.Run.ID)
	if err != nil {
		return err
	}
	failed := fault.New(fault.Validation, noOutput, fmt.Sprintf("%s is %s, so it makes no %s", v.Run.ID, v.Run.State, role))
	for _, o := range list {
		if o.Role == role {
			failed = failed.WithNext("the output was collected although the run failed: name it as " + o.ArtifactID)
		}
	}
	return failed.WithSteps(run.NextSteps(v)...)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// promise names the inputs in a plan whose bytes are not known: these names identify the run that waits.
func promise(c *toolpack.Canonical, later map[string]promised) {
	for _, in := range c.Spec.IO.Inputs {
		if x, ok := later[in.ArtifactID]; ok {
			c.Extra.Promises = append(c.Extra.Promises, plan.Promised{DestRelpath: in.DestRelpath, Output: x.Promise.String()})
		}
	}
}

type waitedKey struct{}

// waitedAs returns the run that waited, in the context of the call that is made for it when its inputs are there,
// else nil.
func waitedAs(ctx context.Context) *run.WaitRef {
	w, _ := ctx.Value(waitedKey{}).(*run.WaitRef)
	return w
}

// askedBefore reports whether a run that waits, or did, has the identity of an order. For that run's own call it
// returns false.
func (g *Gateway) askedBefore(ctx context.Context, o run.Order) (bool, error) {
	if waitedAs(ctx) != nil {
		return false, nil
	}
	_, id, err := o.Identity()
	if err != nil {
		return false, err
	}
	v, err := g.Ledger.View(ctx, id.RunID())
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return v.Waiting != nil || v.Run.ID != id.RunID(), err
}

// waitForInputs records the run of an order with some future inputs, or finds it.
func (g *Gateway) waitForInputs(ctx context.Context, c gate.Call, p *toolpack.Pack, o run.Order, first before) (run.SubmitAnswer, error) {
	args, err := g.pinReferences(ctx, o.Params.ProjectID, p, c.Stored)
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	canonical, id, err := o.Identity()
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	caller, err := json.Marshal(g.batchCallerOf(ctx, c))
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	var from []plan.Promise
	for _, x := range first.promised {
		from = append(from, x.Promise)
	}
	slices.SortFunc(from, func(a, b plan.Promise) int { return strings.Compare(a.String(), b.String()) })
	var beside []string
	for _, in := range o.Params.Spec.IO.Inputs {
		_, later := first.promised[in.ArtifactID]
		_, site := first.references[in.ArtifactID] // the site stores those
		made := slices.ContainsFunc(first.made, func(m toolpack.Made) bool { return m.ID == in.ArtifactID })
		if !later && !site && !made {
			beside = append(beside, in.ArtifactID)
		}
	}
	var warnings []string
	if g.Policy.NeedsConsent(o.ToolName) {
		warnings = []string{"each run of " + o.ToolID + " needs a person's approval, which is requested when the inputs are there"}
	}
	v, created, err := g.Ledger.AddWaiting(ctx, ledger.Waits{For: from, Artifacts: beside, Most: int64(g.Site.Limits.OpenRunsPerProject),
		Row: rowFor(ctx), Asking: o.Asking,
		Policy: o.Policy, Pack: o.Pack,
		Params: canonical, Args: args, Caller: caller, ApprovalID: gate.ApprovalOf(ctx),
		Run: run.Run{ID: id.RunID(), ProjectID: o.Params.ProjectID, ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion,
			ContractVersion: o.ContractVersion, PackHash: o.PackHash, PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash,
			PlanHash: id.PlanHash(), Actor: o.Actor, Principal: o.Asking.Principal, ExecutedAs: o.Params.ExecutedAs, Warnings: warnings}})
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	g.loop.wakeUp()
	r, err := g.Sites.Answer(ctx, v.Run.ID, !created)
	if err == nil && v.Waiting == nil {
		g.named(ctx, c, r.RunID, o.Names)
	}
	return g.submitted(c, r, err)
}

// rehearseWaiting returns the dry run of a run that would wait: it has no script yet.
func (g *Gateway) rehearseWaiting(ctx context.Context, o run.Order) (run.Preview, error) {
	canonical, id, err := o.Identity()
	if err != nil {
		return run.Preview{}, err
	}
	p := run.Preview{RunID: id.RunID(), Site: o.Site, SiteWhy: o.SiteWhy, Sites: []run.Considered{}, ExecutedAs: o.Params.ExecutedAs,
		ParamsHash: id.ParamsHash, PolicyHash: id.PolicyHash, PlanHash: id.PlanHash(), EquivalentRuns: []string{}, Params: canonical,
		Placement: o.Params.Spec.Placement}
	v, err := g.Ledger.View(ctx, p.RunID)
	if fault.Is(err, fault.NotFound) {
		return p, nil
	}
	p.RunID, p.Site, p.Exists, p.State = cmp.Or(v.Run.ID, p.RunID), cmp.Or(v.Run.Site, p.Site), err == nil, &v.Run.State
	return p, err
}
