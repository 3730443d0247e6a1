package app

import (
	"context"
	"strings"
	"time"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// Who may see the names: whoever may read a run sees who asked for it. All of them had a right on the run's project when they asked.

// AskerDoc is a principal that asked for a run after another one's call had made it.
type AskerDoc struct {
	Principal   string    `json:"principal"`
	PrincipalID string    `json:"principal_id"`
	AskedAt     time.Time `json:"asked_at"`
}

func askerDocs(list []ledger.Asker) []AskerDoc {
	out := []AskerDoc{}
	for _, a := range list {
		out = append(out, AskerDoc{a.Name, a.ID, a.AskedAt})
	}
	return out
}

func askerOf(c gate.Call) run.Principal { return run.Principal{Name: c.Caller.Name, ID: c.Caller.ID} }

// submitted is the answer to a submit. Who asked for a run that was there already is recorded.
func (g *Gateway) submitted(ctx context.Context, c gate.Call, r run.SubmitAnswer, err error) (run.SubmitAnswer, error) {
	if err == nil && r.Replayed {
		g.askedAgain(ctx, c, r.RunID)
	}
	r.Reason = g.hide(c, r.Reason)
	return r, err
}

// askedAgain must not cost the caller its answer: a run is found again also while the ledger's disk is full.
func (g *Gateway) askedAgain(ctx context.Context, c gate.Call, runID string) {
	if err := g.Ledger.AskedAgain(ctx, runID, askerOf(c)); err != nil {
		g.Log.Warn("it is not recorded who asked for a run again", "run_id", runID, "principal", c.Caller.Name, "tool", c.Request.ToolID, "err",
			err)
	}
}

// named records what the call names the outputs of a run that was there already, for its caller. It must not cost the caller its answer.
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

// principalAsked is the principal that a filter names: by name or id, "me" for the caller, and without a kind for a user of this host.
func principalAsked(c gate.Call, named string) string {
	switch {
	case named == "me":
		return c.Caller.Key()
	case named == "", strings.Contains(named, ":"), strings.HasPrefix(named, "prn_"):
		return named
	}
	return "user:" + named
}

// known is nil for what an older ledger did not record.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
