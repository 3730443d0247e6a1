package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Order is a request for a run, canonicalised and allowed.
type Order struct {
	ToolID          string
	ToolName        string
	ToolVersion     string
	ContractVersion string
	PackHash        string            // empty for a plan submitted as it is
	Pack            json.RawMessage   // definition of the pack: canonical JSON whose hash is PackHash
	Params          plan.Params       // as requested; its inputs name the artifacts
	Placement       *plan.Placement   // where the first attempt goes; nil if the params are complete
	Warnings        []string          // warnings of the run
	Names           map[string]string // file names of downloaded outputs, by role; no part of the run's identity
	Site            string            // site of a new run; empty: the first site
	SiteWhy         string            // why this site
	// Pick picks the site, and with it the placement, if the run does not exist yet; nil: they are given. Its result is
	// no part of the run's identity.
	Pick       func(ctx context.Context) (Picked, error)
	Options    []Option // the sites that Pick picks from
	considered []Considered
	PolicyHash string
	Policy     json.RawMessage // canonical snapshot
	Actor      string
	Asking     Asking   // who calls, and by which batch
	Prompt     bool     // answer without waiting until the run was sent
	Waited     *WaitRef // the run that waited for the inputs and becomes an alias of this one; nil: none
	Row        *RowRef  // the row of a batch that the run is for; nil: none
}

// Option is a site that a new run may go to.
type Option struct {
	Site      string
	Placement plan.Placement // of the run's job at the site
}

// Picked is the site that policy's rule picked for a new run.
type Picked struct {
	Site      string
	Why       string
	Placement *plan.Placement
	Sites     []Considered
}

// Considered is a site that a run could have gone to, and what spoke for it or against it.
type Considered struct {
	Site string `json:"site"`
	Fits bool   `json:"fits"`
	Why  string `json:"why"`
}

// Identity returns the canonical params of the order and their identity.
func (o Order) Identity() (canonical []byte, id plan.Identity, err error) {
	if err := o.checkUser(); err != nil {
		return nil, plan.Identity{}, err
	}
	canonical, err = o.Params.Canonical()
	if err != nil {
		return nil, plan.Identity{}, err
	}
	id = plan.Identity{ToolName: o.ToolName, ContractVersion: o.ContractVersion, PolicyHash: o.PolicyHash, ParamsHash: plan.Hash(canonical)}
	if o.Params.Site() != "" || o.Params.ExecutedAs != "" {
		anyones, err := o.Params.Anyones().Canonical()
		if err != nil {
			return nil, plan.Identity{}, err
		}
		id.AnyonesHash = plan.Hash(anyones)
	}
	return canonical, id, nil
}

// checkUser returns a fault for a user that no job can be executed as.
func (o Order) checkUser() error {
	user := o.Params.ExecutedAs
	if user == "" {
		return nil
	}
	if msg := plan.CheckUnixUser(user); msg != "" {
		return fault.Invalid("the run cannot be executed as this user", fault.Problem{Code: "EXECUTED-AS", Field: "executed_as",
			Rule: "the name of a Unix user of the cluster", Msg: msg})
	}
	if o.Params.Docker {
		return fault.New(fault.Policy, "docker_as_user", "a docker plan is executed by the gateway's own user, never as "+user)
	}
	return nil
}

// sought returns what the order's run is found by.
func (e *Engine) sought(o Order, id plan.Identity) Sought {
	return Sought{RunID: id.RunID(), PlanHash: id.PlanHash(), PolicyHash: o.PolicyHash, Site: o.Params.Site(),
		ExecutedAs: o.Params.ExecutedAs, Shared: o.Params.ExecutedAs != "" && e.cfg.SharesRuns != nil && e.cfg.SharesRuns(o.Params.ProjectID)}
}

// Submit creates the run of the order, or finds it: the same identity is the same run whatever state it is in (ABI-18).
// The engine stages and sends a new run; Submit waits up to Config.SubmitWait for that and then answers with what is
// known.
func (e *Engine) Submit(ctx context.Context, o Order) (SubmitAnswer, error) {
	f, err := e.find(ctx, o)
	if err != nil {
		return SubmitAnswer{}, err
	}
	return e.submit(ctx, o, f)
}

// lookup is what the ledger knows of an order.
type lookup struct {
	canonical  []byte
	id         plan.Identity
	sought     Sought
	view       *View // of the order's run; nil: absent
	equivalent []string
}

func (e *Engine) find(ctx context.Context, o Order) (f lookup, err error) {
	if f.canonical, f.id, err = o.Identity(); err != nil {
		return f, err
	}
	f.sought = e.sought(o, f.id)
	known, equivalent, err := e.Index.Find(ctx, f.sought)
	f.equivalent = equivalent
	if err != nil || known == "" {
		return f, err
	}
	v, err := e.Store.View(ctx, known)
	f.view = &v
	return f, err
}

// reusable returns a run of the same plan made under another policy, if policy reuses those, or for another user, if
// policy shares runs between users; or nil. A run on another site than the caller named does not count.
func (e *Engine) reusable(ctx context.Context, o Order, f lookup) (*View, error) {
	if o.Params.Docker || !e.cfg.ReuseAcross && !f.sought.Shared {
		return nil, nil
	}
	for _, id := range f.equivalent {
		v, err := e.Store.View(ctx, id)
		if err != nil {
			return &v, err
		}
		if v.Run.Removed == "" && (e.cfg.ReuseAcross || v.Run.PolicyHash == o.PolicyHash) &&
			(o.Params.Site() == "" || v.Run.Site == o.Params.Site()) {
			return &v, nil
		}
	}
	return nil, nil
}

// ofAnother returns the warning that the answer is about an equivalent run.
func ofAnother(o Order, r Run) string {
	switch {
	case r.ExecutedAs == o.Params.ExecutedAs:
		return fmt.Sprintf("this is run %s, made for the same plan under another policy (equivalent_runs: reuse)", r.ID)
	case r.ExecutedAs == "":
		return fmt.Sprintf("this is run %s, which the gateway's own user executed; policy shares runs in this project", r.ID)
	}
	return fmt.Sprintf("this is run %s of user %s, who could have forged its outputs; policy shares runs in this project", r.ID, r.ExecutedAs)
}

func (e *Engine) submit(ctx context.Context, o Order, f lookup) (SubmitAnswer, error) {
	switch {
	case f.view != nil && o.Params.Docker:
		return e.repeatDocker(ctx, f, o)
	case f.view != nil:
		v, err := e.askAgain(ctx, *f.view, o)
		return e.submitAnswer(v, true, f.equivalent), err
	}
	if v, err := e.reusable(ctx, o, f); v != nil || err != nil {
		if err == nil {
			*v, err = e.askAgain(ctx, *v, o)
		}
		if err != nil {
			return SubmitAnswer{}, err
		}
		a := e.submitAnswer(*v, true, f.equivalent)
		a.Warnings = append(slices.Clip(a.Warnings), ofAnother(o, v.Run))
		return a, nil
	}
	if err := e.accepts(); err != nil {
		return SubmitAnswer{}, err
	}
	// Nothing is recorded for an image that is missing or has the wrong checksum. A site that is away shows neither:
	// its runs wait for it.
	if _, err := e.verifyProgram(ctx, o.Params.Spec); err != nil && !unreached(fault.CodeOf(err)) {
		return SubmitAnswer{}, err
	}
	share := ShareOf(Run{ProjectID: o.Params.ProjectID, Principal: o.Asking.Principal, ExecutedAs: o.Params.ExecutedAs})
	if err := e.Room(ctx, share); err != nil {
		return SubmitAnswer{}, err
	}
	if err := e.mayOpen(ctx, o.Params.ProjectID); err != nil {
		return SubmitAnswer{}, err
	}
	v, created, err := e.insert(ctx, o, f.sought, f.id, f.canonical)
	if err != nil {
		return SubmitAnswer{}, err
	}
	if !created {
		return e.submitAnswer(v, true, f.equivalent), nil
	}
	changes, stop := e.waiters.listen(v.Run.ID)
	defer stop()
	e.waiters.hand(v, o.Params.Stored())
	e.work.add(ShareOf(v.Run), v.Run.ID)
	e.watcher.wake()
	if o.Prompt {
		return e.submitAnswer(v, false, f.equivalent), nil
	}
	v, err = e.wait(ctx, v, changes, e.cfg.SubmitWait, func(v View) bool { return sentOrOver(v, o.Params.Docker) || v.Run.Reason == SiteAway })
	if err != nil && fault.CodeOf(err) != tooManyWaits { // the run is stored: a caller that may not wait gets what is known
		return SubmitAnswer{}, err
	}
	return e.submitAnswer(v, false, f.equivalent), nil
}

// asked returns the order's asking of its run; nil: the order is for a run that waited, whose askings the new run gets.
func (o Order) asked() *Asking {
	if o.Waited != nil {
		return nil
	}
	return &o.Asking
}

// askAgain records that an order asks for an existing run, and reads the run in the same transaction.
func (e *Engine) askAgain(ctx context.Context, v View, o Order) (View, error) {
	if o.Waited != nil {
		return v, nil
	}
	return e.Store.AskFor(ctx, v.Run.ID, o.Asking, o.Row)
}

// mayOpen returns a fault if the project has as many unfinished runs as the site allows.
func (e *Engine) mayOpen(ctx context.Context, projectID string) error {
	if e.cfg.OpenRuns == 0 {
		return nil
	}
	n, err := e.Index.Open(ctx, projectID)
	if err != nil || n < int64(e.cfg.OpenRuns) {
		return err
	}
	return fault.New(fault.Transport, "too_many_runs",
		fmt.Sprintf("the project has %d runs that are not over, which is as many as this site allows", n)).
		WithNext("submit again when some have ended, or cancel some").WithRetry(LongWait)
}

func (e *Engine) insert(ctx context.Context, o Order, s Sought, id plan.Identity, canonical []byte) (View, bool, error) {
	runID, planHash := s.RunID, id.PlanHash()
	r := Run{
		ID: runID, ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion, ContractVersion: o.ContractVersion, PackHash: o.PackHash,
		PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: planHash, ProjectID: o.Params.ProjectID,
		Site: e.cfg.Site, ExecutedAs: o.Params.ExecutedAs, Actor: o.Actor, Principal: o.Asking.Principal,
		State: Queued, Phase: Staging, AttemptN: 1, Warnings: slices.Concat(e.cfg.Warnings, o.Warnings), CreatedAt: e.Now(), UpdatedAt: e.Now(),
	}
	sub := newSubmission(runID, 1, e.Now())
	first := View{Run: r}
	result, err := plan.Marshal(e.submitAnswer(first, false, nil))
	if err != nil {
		return View{}, false, err
	}
	r.ResultJSON = result
	var inputs []Link
	for _, in := range o.Params.Spec.IO.Inputs {
		inputs = append(inputs, Link{Role: in.Role, ArtifactID: in.ArtifactID, Relpath: in.DestRelpath})
	}
	v, created, err := e.Store.Insert(ctx, New{Run: r, Submission: sub, Params: canonical, Policy: o.Policy, Pack: o.Pack,
		Placement: o.Placement, Sought: s, Inputs: inputs, Names: o.Names, Waited: o.Waited, Row: o.Row,
		Asking: o.asked(), Admit: e.admit(r),
		Event: Event{Type: "run.created", Data: withUser(withSite(withPlacement(map[string]any{"tool_id": o.ToolID,
			"params_hash": id.ParamsHash, "policy_hash": o.PolicyHash, "plan_hash": planHash, "actor": o.Actor,
			"principal": o.Asking.Name, "principal_id": o.Asking.ID}, o.Placement), o), o)}})
	if err == nil && created {
		e.logChange("run.created", v, time.Time{})
	}
	return v, created, err
}
