package app

import (
	"context"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// Callers who may read a run see who asked for it: all who asked had a right on the run's project at the time.

// AskerDoc describes a principal that asked for a run, and how.
type AskerDoc struct {
	Principal   string     `json:"principal"`
	PrincipalID string     `json:"principal_id"`
	BatchID     *string    `json:"batch_id"` // the batch by which it asks; null: by direct calls
	AskedAt     time.Time  `json:"asked_at"`
	WithdrawnAt *time.Time `json:"withdrawn_at"` // null: it still asks for the run
}

func askerDocs(list []run.Asker) []AskerDoc {
	out := []AskerDoc{}
	for _, a := range list {
		out = append(out, AskerDoc{a.Name, a.ID, known(a.Batch), a.AskedAt, a.WithdrawnAt})
	}
	return out
}

func askerOf(c gate.Call) run.Principal { return run.Principal{Name: c.Caller.Name, ID: c.Caller.ID} }

// asking returns the record that the caller wants what a call creates or finds, with the batch that the call is made
// for. While the user database does not answer, the record has no Unix user.
func (g *Gateway) asking(ctx context.Context, c gate.Call) run.Asking {
	a, _ := g.askingOf(ctx, c)
	return a
}

func (g *Gateway) askingOf(ctx context.Context, c gate.Call) (a run.Asking, err error) {
	a = run.Asking{Principal: askerOf(c), CallID: c.ID}
	if r := rowFor(ctx); r != nil {
		a.Batch = r.BatchID
	}
	a.Person, err = g.personOf(ctx, c.Caller.Principal)
	return a, err
}

// personOf returns the Unix user to whom a principal is mapped: always for a user of this host, and for a token or a
// subject where jobs run as their callers or users have projects for themselves. What one person asks for with
// several credentials counts as that person's.
func (g *Gateway) personOf(ctx context.Context, p gate.Principal) (string, error) {
	if g.Person == nil || p.Method != gate.ByPeer && g.UnixUser == nil && p.UserProject == "" {
		return "", nil
	}
	return g.Person(ctx, p)
}

// operates reports whether a caller may act on what others of a project asked for.
func operates(c gate.Call, project string) bool {
	return c.Caller.Can(gate.CapOperate, project) || c.Caller.Can(gate.CapAdmin, gate.All)
}

// Whose selects for whom a call ends or removes a thing that several principals asked for. Empty: for the caller.
type Whose struct {
	ForPrincipal string `json:"for_principal,omitzero" min:"1" max:"1024" about:"for this principal who asked for it, by name or id, instead of for you (needs operate)" name:"principal" xor:"whose" help:"Take back what this principal asked for, instead of what you did: its name (user:alice, token:ci), its id, or a login name. Needs operate." placeholder:"NAME"` // see [principalAsked]
	ForAll       bool   `json:"for_all,omitzero" about:"also for all others who asked for it (needs operate)" name:"everyone" xor:"whose" help:"End it for everyone who asked for it. Needs operate."`
}

// withdrawal returns the right with which a caller ends or removes a thing: as one who asked for it, or for others,
// as a caller who may operate on its project. A caller who did not ask and names no principal acts for everyone or is
// refused.
func (g *Gateway) withdrawal(ctx context.Context, c gate.Call, thing, project string, whose Whose) (w run.Withdrawal, err error) {
	has, who := g.Ledger.HasAsked, g.Ledger.Askings
	if plan.IsArtifactID(thing) {
		has, who = g.Ledger.HasAskedArtifact, g.Ledger.AskersOfArtifact
	}
	a, unknown := g.askingOf(ctx, c)
	w = run.Withdrawal{By: a.Principal, Of: a}
	asked, err := has(ctx, thing, a)
	others := whose != Whose{}
	switch {
	case err != nil:
		return w, err
	case others && !operates(c, project):
		return w, fault.New(fault.Capability, "capability_denied", "this would end what others asked for, which needs the capability "+
			"\"operate\" on the project").WithNext("leave for_all and for_principal out: then you no longer ask for it, and it ends when no " +
			"one else does")
	case whose.ForAll || !others && !asked && operates(c, project):
		w.All = true
		return w, nil
	case asked && !others:
		return w, nil
	case !others && unknown != nil:
		return w, unknown
	}
	list, err := who(ctx, thing)
	if err != nil {
		return w, err
	}
	for name, i := principalAsked(c, whose.ForPrincipal), 0; others && i < len(list); i++ {
		if p := list[i].Principal; list[i].WithdrawnAt == nil && (p.Name == name || p.ID == name) {
			w.Of = run.Asking{Principal: p}
			return w, nil
		}
	}
	if others {
		return w, fault.New(fault.Validation, "not_asked", whose.ForPrincipal+" does not ask for "+thing).WithNext(
			"run.show lists who does; for_all ends it for everyone")
	}
	return w, run.NotAsked(thing, list)
}

// cancels returns the withdrawal with which a caller cancels a run or a batch of a tool. A model acts on ids that it
// has read, so a chat must state that it acts for others.
func (g *Gateway) cancels(ctx context.Context, c gate.Call, thing, tool, project string, whose Whose) (w run.Withdrawal, err error) {
	w, err = g.withdrawal(ctx, c, thing, project, whose)
	if err != nil || !w.All || whose.ForAll || c.Caller.Transport != gate.MCP {
		return w, err
	}
	list, err := g.Ledger.Askings(ctx, thing)
	if err != nil {
		return w, err
	}
	return w, fault.New(fault.Policy, "for_others", thing+", of "+tool+", was asked for by "+orNone(names(list))+", and not by you").
		WithNext("if a person wants it ended for all who asked for it, repeat the call with for_all")
}

// names returns the principals of askings.
func names(list []run.Asker) []string {
	names, _ := run.NamesOf(list)
	return names
}

// mayChange refuses a caller who neither asked for a run nor may operate on its project.
func (g *Gateway) mayChange(ctx context.Context, c gate.Call, runID, project string) error {
	_, err := g.withdrawal(ctx, c, runID, project, Whose{})
	return err
}

// retries returns in whose name the caller repeats a run: as the caller, if it asked for the run or nothing else asks
// for it, else as those who ask for it now.
func (g *Gateway) retries(ctx context.Context, c gate.Call, runID, project string) (own *run.Asking, by string, err error) {
	w, err := g.withdrawal(ctx, c, runID, project, Whose{})
	if err != nil || !w.All {
		return &w.Of, "", err
	}
	list, err := g.Ledger.Askings(ctx, runID)
	for _, a := range list {
		if a.WithdrawnAt == nil {
			return nil, c.Caller.Name, err
		}
	}
	return &w.Of, c.Caller.Name, err
}

// CancelPreview shows what a cancel would do.
type CancelPreview struct {
	run.GetState
	ToolID  string   `json:"tool_id"`
	Askers  []string `json:"askers"` // who asks for the run now
	Ends    bool     `json:"ends"`   // whether the run would end; false: others still want it, or it has ended
	Message string   `json:"message"`
}

// previewCancel describes a run, its tool and what a cancel would do.
func (g *Gateway) previewCancel(ctx context.Context, state run.GetState, toolID string, by run.Withdrawal) (p CancelPreview, err error) {
	all, left, err := g.askersLeft(ctx, state.RunID, by)
	if err != nil {
		return p, err
	}
	p = CancelPreview{GetState: state, ToolID: toolID, Askers: append([]string{}, names(all)...)}
	p.Ends = !state.State.Terminal() && len(left) == 0
	p.Message = "nothing was changed. It is a run of " + toolID + ", asked for by " + orNone(p.Askers) + "; "
	switch {
	case state.State.Terminal():
		p.Message += "it is over, so a cancel changes nothing"
	case p.Ends:
		p.Message += "a cancel ends it"
	default:
		p.Message += "a cancel takes back what you asked for, and the run continues for " + run.AskersText(left)
	}
	return p, nil
}

// askersLeft lists who asks for a thing now, and who would after a withdrawal.
func (g *Gateway) askersLeft(ctx context.Context, thing string, by run.Withdrawal) (all, left []run.Asker, err error) {
	list, err := g.Ledger.Askings(ctx, thing)
	for _, a := range list {
		if a.WithdrawnAt != nil {
			continue
		}
		if all = append(all, a); !by.All && !a.Of(by.Of) {
			left = append(left, a)
		}
	}
	return all, left, err
}

// submitted returns the answer to a submit.
func (g *Gateway) submitted(c gate.Call, r run.SubmitAnswer, err error) (run.SubmitAnswer, error) {
	r.Reason = g.hide(c, r.Reason)
	return r, err
}

// named records the names that a call gives the outputs of a run that existed before it, for its caller. A failure is
// only logged: the caller must still get its answer.
func (g *Gateway) named(ctx context.Context, c gate.Call, runID string, names map[string]string) {
	if err := g.Ledger.NameOutputs(ctx, runID, askerOf(c), names); err != nil {
		g.Log.Warn("the names of a run's outputs are not recorded", "run_id", runID, "principal", c.Caller.Name, "err", err)
	}
}

// withNames gives the outputs of a run the names by which the caller downloads them.
func (g *Gateway) withNames(ctx context.Context, c gate.Call, runID string, outputs []ArtifactDoc) error {
	names, err := g.Ledger.OutputNames(ctx, runID, askerOf(c))
	for i := range outputs {
		outputs[i].DownloadName = names[outputs[i].Role]
	}
	return err
}

// principalAsked returns the principal that a filter names: by name or id, "me" for the caller, and a name without a
// kind for a user of this host.
func principalAsked(c gate.Call, named string) string {
	switch {
	case named == "me":
		return c.Caller.Key()
	case named == "", strings.Contains(named, ":"), strings.HasPrefix(named, "prn_"):
		return named
	}
	return "user:" + named
}

// known returns nil for an empty text, so that it is not recorded.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
