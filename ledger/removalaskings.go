package ledger

import (
	"context"
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/retention"
	"slurmgate/run"
)

// A removal takes away what one principal asked for. What others ask for too stays, for them.

// withdraw withdraws the principal's askings of what is to be removed, and leaves to the removal only what has no
// other requester.
func (x *removing) withdraw(ctx context.Context) error {
	keep := func(ids []string, over func(context.Context, string) error, thing func(context.Context, string) ([]run.Asker, error)) (
		left []string, err error) {
		for _, id := range ids {
			if err := over(ctx, id); err != nil {
				return nil, err
			}
			held, err := thing(ctx, id)
			if err != nil {
				return nil, err
			}
			if len(held) == 0 {
				left = append(left, id)
				continue
			}
			names, _ := run.NamesOf(held)
			x.out.Withdrawn = append(x.out.Withdrawn, retention.Withdrawn{ID: id, Askers: names})
		}
		return left, nil
	}
	var err error
	if x.r.Runs, err = keep(x.r.Runs, x.isOver, x.takeBack); err == nil {
		x.r.Artifacts, err = keep(x.r.Artifacts, x.isArtifact, x.takeBackArtifact)
	}
	return err
}

func (x *removing) by(id string) run.Withdrawal {
	by := run.Principal{Name: x.r.By, ID: x.r.ByID}
	return run.Withdrawal{By: by, Of: run.Asking{Principal: by, Person: x.r.Person}, All: slices.Contains(x.r.ForAll, id)}
}

// isOver refuses to remove a run that is not over, or has nothing to remove.
func (x *removing) isOver(ctx context.Context, id string) error {
	v, err := view(ctx, x.tx, id)
	switch {
	case err != nil || v.Run.Removed != "":
		return err
	case v.Waiting != nil:
		return run.NotStarted(v)
	case v.Run.Site == run.WorkerSite:
		return fault.New(fault.Conflict, "run_of_worker", id+" is a call of a service worker: its answer is in the record of the run").
			WithNext("remove its artifacts with artifact rm, or take a text out of the ledger with slurmgate erase")
	case v.Run.Phase != run.Done:
		return fault.New(fault.Conflict, "run_active", fmt.Sprintf("%s is %s (%s), so nothing was removed", id, v.Run.State, v.Run.Phase)).
			WithNext("wait until it ends, or cancel it").WithSteps(fault.Do("slurm.job.cancel", "run_id", id))
	}
	return nil
}

func (x *removing) isArtifact(ctx context.Context, id string) error {
	var there bool
	err := x.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM artifacts WHERE artifact_id = ?)", id).Scan(&there)
	if err == nil && !there {
		err = fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id).WithSteps(fault.Do("artifact.list"))
	}
	return err
}

// takeBack withdraws the principal's askings of a thing and lists those that hold still.
func (x *removing) takeBack(ctx context.Context, id string) ([]run.Asker, error) {
	w := x.by(id)
	held, n, err := x.l.withdraw(ctx, x.tx, id, w)
	if err == nil && n > 0 && len(held) > 0 {
		err = x.l.sayWithdrawn(ctx, x.tx, id, w, held)
	}
	return held, err
}

// takeBackArtifact is takeBack for an artifact: it stays also for requesters of a run that made it.
func (x *removing) takeBackArtifact(ctx context.Context, id string) ([]run.Asker, error) {
	held, err := x.takeBack(ctx, id)
	if err != nil {
		return nil, err
	}
	runs, err := list(ctx, x.tx, column[string], makers, id)
	for _, runID := range runs {
		var more []run.Asker
		if err == nil {
			more, err = x.othersAsk(ctx, runID, x.by(id).All)
		}
		held = append(held, more...)
	}
	return held, err
}

// makers lists the runs that made an artifact and that were not removed.
const makers = `SELECT r.run_id FROM runs r WHERE (r.run_id IN (SELECT run_id FROM run_outputs WHERE artifact_id = ?1)
 OR r.log_artifact_id = ?1 OR r.script_artifact_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM run_removals x WHERE x.run_id = r.run_id AND x.attempt_n = r.attempt_n)`

// othersAsk lists the other requesters of a thing; none where it is removed for everyone.
func (x *removing) othersAsk(ctx context.Context, thing string, forAll bool) ([]run.Asker, error) {
	if forAll {
		return nil, nil
	}
	held, err := holders(ctx, x.tx, thing)
	return slices.DeleteFunc(held, func(a run.Asker) bool { return a.Of(x.by(thing).Of) }), err
}

// HasAskedArtifact reports whether the principal, or its person, ever imported an artifact or asked for a run that
// made it.
func (l *Ledger) HasAskedArtifact(ctx context.Context, id string, a run.Asking) (asked bool, err error) {
	if asked, err = l.HasAsked(ctx, id, a); err != nil || asked {
		return asked, err
	}
	runs, err := list(context.WithoutCancel(ctx), l.r, column[string], makers, id)
	for _, runID := range runs {
		if err == nil && !asked {
			asked, err = l.HasAsked(ctx, runID, a)
		}
	}
	return asked, err
}

// AskersOfArtifact lists who imported an artifact or asked for a run that made it, and still does.
func (l *Ledger) AskersOfArtifact(ctx context.Context, id string) (held []run.Asker, err error) {
	if held, err = holders(context.WithoutCancel(ctx), l.r, id); err != nil {
		return nil, err
	}
	runs, err := list(context.WithoutCancel(ctx), l.r, column[string], makers, id)
	for _, runID := range runs {
		var more []run.Asker
		if err == nil {
			more, err = holders(context.WithoutCancel(ctx), l.r, runID)
		}
		held = append(held, more...)
	}
	return held, err
}
