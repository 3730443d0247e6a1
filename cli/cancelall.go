package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
)

// CancelAll is the verb that cancels unfinished batches and runs: the caller's own, unless it names others.
type CancelAll struct {
	Tool      string `help:"Only batches and runs of this tool." placeholder:"ID"`
	Project   string `help:"Only those of this project (name or id)." placeholder:"NAME"`
	Principal string `help:"Those that this principal asked for, instead of your own: its name (user:alice, token:ci), its id, or a login name." xor:"whose" placeholder:"NAME"`
	Everyone  bool   `help:"Those that anyone asked for, instead of your own." xor:"whose"`
	Reason    string `help:"Reason; recorded with each run." placeholder:"TEXT"`
	Yes       bool   `help:"Cancel them. Without this option they are only listed."`
}

// whose returns the principal that batches and runs are filtered by.
func (c CancelAll) whose() string {
	if c.Everyone {
		return ""
	}
	return cmp.Or(c.Principal, "me")
}

// others returns for whom the calls are, if not for the caller.
func (c CancelAll) others() app.Whose {
	return app.Whose{ForAll: c.Everyone, ForPrincipal: c.Principal}
}

type cancelAllAnswer struct {
	Batches      []app.BatchChanged `json:"cancelled_batches"`
	Cancelled    []app.CancelAnswer `json:"cancelled"`
	WouldBatches []app.BatchDoc     `json:"would_cancel_batches"`
	Would        []app.RunRow       `json:"would_cancel"`
	Failed       []string           `json:"failed"`
}

// Run cancels batches first, so that none of them makes further runs, then what waits for inputs, then every other
// unfinished run, until a list has nothing new. There is one call for each: each is a separate decision in the history.
func (c CancelAll) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		out := cancelAllAnswer{Batches: []app.BatchChanged{}, Cancelled: []app.CancelAnswer{}, WouldBatches: []app.BatchDoc{},
			Would: []app.RunRow{}, Failed: []string{}}
		batches, err := c.openBatches(ctx, s)
		if err != nil {
			return err
		}
		for _, b := range batches {
			if !c.Yes {
				out.WouldBatches = append(out.WouldBatches, b)
				continue
			}
			var got app.BatchChanged
			of := app.BatchArgs{Batch: b.BatchID, ProjectID: b.ProjectID}
			if err := s.call(ctx, "batch.cancel", app.BatchCancelArgs{BatchArgs: of, Whose: c.others()}, &got); err != nil {
				a.Say("%s: %v", b.Name, err)
				out.Failed = append(out.Failed, b.Name)
				continue
			}
			out.Batches = append(out.Batches, got)
		}
		for seen := map[string]bool{}; ; {
			found, err := c.openRuns(ctx, s, seen)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				break
			}
			for _, r := range found {
				c.cancel(ctx, a, s, r, &out)
			}
		}
		if err := a.show(out, func(w io.Writer) { c.print(w, out) }); err != nil || len(out.Failed) == 0 {
			return err
		}
		return quietFailure{fault.Transport}
	})
}

// cancel cancels a run, or lists it.
func (c CancelAll) cancel(ctx context.Context, a *Shell, s *Session, r app.RunRow, out *cancelAllAnswer) {
	if !c.Yes {
		out.Would = append(out.Would, r)
		return
	}
	var got app.CancelAnswer
	of := app.RunReasonArgs{RunArgs: app.RunArgs{RunID: r.RunID}, Reason: c.Reason}
	if err := s.call(ctx, "slurm.job.cancel", app.CancelArgs{RunReasonArgs: of, Whose: c.others()}, &got); err != nil {
		a.Say("%s: %v", r.RunID, err)
		out.Failed = append(out.Failed, r.RunID)
		return
	}
	out.Cancelled = append(out.Cancelled, got)
}

// openBatches lists the batches that have not ended. The steps of a chain are one, unless one tool is named.
func (c CancelAll) openBatches(ctx context.Context, s *Session) (open []app.BatchDoc, err error) {
	chains := map[string]bool{}
	for args := (app.BatchListArgs{ProjectID: c.Project, Principal: c.whose(), Page: app.Page{Limit: 200}}); ; {
		var l app.BatchList
		if err := s.call(ctx, "batch.list", args, &l); err != nil {
			return nil, err
		}
		for _, b := range l.Batches {
			if b.Over || c.Tool != "" && b.ToolID != c.Tool {
				continue
			}
			if b.Step != "" && c.Tool == "" {
				b.Name = strings.TrimSuffix(b.Name, "."+b.Step)
				b.BatchID = b.Name
			}
			if key := b.ProjectID + " " + b.BatchID; !chains[key] {
				chains[key] = true
				open = append(open, b)
			}
		}
		if l.Cursor == nil {
			return open, nil
		}
		args.Cursor = *l.Cursor
	}
}

// openRuns lists the unfinished runs that were not seen before, those that wait for others first: they do not fail for want of their inputs
// then.
func (c CancelAll) openRuns(ctx context.Context, s *Session, seen map[string]bool) (waiting []app.RunRow, err error) {
	var open []app.RunRow
	fresh := func(list []app.RunRow) (out []app.RunRow) {
		for _, r := range list {
			if !seen[r.RunID] {
				seen[r.RunID] = true
				out = append(out, r)
			}
		}
		return out
	}
	for _, state := range []run.State{run.Queued, run.Running, run.Blocked} {
		args := app.RunListArgs{State: state, ToolID: c.Tool, ProjectID: c.Project, Principal: c.whose(), Page: app.Page{Limit: 200}}
		for {
			var l app.RunList
			if err := s.call(ctx, "run.list", args, &l); err != nil {
				return nil, err
			}
			waiting, open = append(waiting, fresh(l.Waiting)...), append(open, fresh(l.Runs)...)
			if l.Cursor == nil {
				break
			}
			args.Cursor = *l.Cursor
		}
	}
	return append(waiting, open...), nil
}

func (c CancelAll) print(w io.Writer, out cancelAllAnswer) {
	if len(out.WouldBatches) > 0 {
		list(w, "batch|tool|asked for by|rows", out.WouldBatches, func(b app.BatchDoc) []string {
			return []string{b.Name, b.ToolID, b.Principal, fmt.Sprint(b.Rows)}
		})
	}
	if len(out.Would) > 0 {
		list(w, "run|tool|asked for by|state", out.Would, func(r app.RunRow) []string {
			return []string{r.RunID, r.ToolID, r.By(), string(r.State)}
		})
	}
	for _, b := range out.Batches {
		fmt.Fprintf(w, "%s  %s\n", b.Name, b.Message)
	}
	for _, r := range out.Cancelled {
		fmt.Fprintf(w, "%s  %s  %s\n", r.RunID, r.State, r.Message)
	}
	switch {
	case !c.Yes && len(out.WouldBatches)+len(out.Would) > 0:
		fmt.Fprintf(w, "%d batches and %d runs would be cancelled. Next: repeat the command with --yes\n", len(out.WouldBatches), len(out.Would))
	case len(out.WouldBatches)+len(out.Would)+len(out.Batches)+len(out.Cancelled)+len(out.Failed) == 0:
		fmt.Fprintln(w, "nothing to cancel"+c.scope())
	}
}

// scope names in an empty answer the caller whose runs were listed.
func (c CancelAll) scope() string {
	switch whose := c.whose(); whose {
	case "":
		return ""
	case "me":
		return ": you have no unfinished runs (--everyone: those of all callers)"
	default:
		return ": " + whose + " has no unfinished runs"
	}
}
