package app

import (
	"cmp"
	"context"
	"fmt"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
	"slurmgate/site"
)

// Where slurm.run_as is caller, jobs and their files belong to the caller's Unix user. What an operation does as such
// a user, and for which callers, is its field Acts; the tools of toolpacks act as their callers.

// Acting is what an operation does as a Unix user of the cluster.
type Acting string

// The kinds of operations.
const (
	ActsAsGateway    Acting = ""             // reads or changes data of the gateway itself, or only calls other tools
	ActsAsCaller     Acting = "caller"       // acts as the caller's Unix user, so the caller must have one
	ActsForAskers    Acting = "askers"       // acts as the run's user, for callers who asked for the run or have operate or admin
	ActsOnOwnRun     Acting = "own run"      // acts as the run's user, for that user and for callers with operate or admin
	ActsOnOwnLiveRun Acting = "own live run" // the same while the run has not ended; afterwards it reads data of the gateway itself
	ActsOnAnyRun     Acting = "any run"      // acts as the run's user, for callers with operate or admin, which the operation requires anyway
)

// unixUser returns the Unix user whom the principal's jobs run as on a cluster; empty where they run as the gateway's
// own user.
func (g *Gateway) unixUser(ctx context.Context, site string, p gate.Principal) (string, error) {
	if g.UnixUser == nil {
		return "", nil
	}
	return g.UnixUser(ctx, site, p)
}

// countsAs returns the caller for shares, caps and quotas: where jobs run as their callers, a Unix user counts as one
// person with any credentials.
func (g *Gateway) countsAs(p gate.Principal) string {
	if g.UnixUser != nil && p.UnixUser != "" {
		return run.UnixCaller(p.UnixUser)
	}
	return p.Key()
}

// executedAs returns the user whom a new run of the caller would run as: that of the first site that accepts the
// caller. It is part of the run's identity, so if it cannot be determined now that is an error.
func (g *Gateway) executedAs(ctx context.Context, c gate.Call, sites []*site.Site) (user string, err error) {
	for i, s := range sites {
		as, refused := g.unixUser(ctx, s.Name, c.Caller.Principal)
		if refused == nil || !fault.Is(refused, fault.Policy) {
			return as, refused
		}
		if i == 0 {
			err = refused
		}
	}
	return "", err
}

// runsAs refuses a site on which the caller's runs have another user.
func (g *Gateway) runsAs(ctx context.Context, c gate.Call, s *site.Site, user string) error {
	there, err := g.unixUser(ctx, s.Name, c.Caller.Principal)
	if err == nil && there != user {
		err = fault.New(fault.Policy, "other_unix_user", "jobs on the site "+s.Name+" run as another user than on the first site of this call").
			WithNext("name the site")
	}
	return err
}

// mayActOn refuses an effect on another Unix user's run, unless the caller has operate on the run's project, or
// admin.
func (g *Gateway) mayActOn(ctx context.Context, c gate.Call, r run.Run) error {
	if r.ExecutedAs == "" || c.Caller.Can(gate.CapOperate, r.ProjectID) || c.Caller.Can(gate.CapAdmin, gate.All) {
		return nil
	}
	user, err := g.unixUser(ctx, cmp.Or(r.Site, g.Site.Name), c.Caller.Principal)
	if err != nil || user == r.ExecutedAs {
		return err
	}
	return fault.New(fault.Policy, "not_your_run", fmt.Sprintf("the run %s belongs to the Unix user %s, and your calls act as %s", r.ID,
		r.ExecutedAs, orNobody(user))).
		WithNext("ask that user, or someone with the capability operate on the project")
}

func orNobody(user string) string {
	if user == "" {
		return "no Unix user"
	}
	return user
}

// guarded returns an operation that refuses calls, dry runs and requests for approval for runs on which the caller
// may not act.
func (g *Gateway) guarded(o Operation) Operation {
	acts := o.Acts
	if acts != ActsOnOwnRun && acts != ActsOnOwnLiveRun && o.ID != "slurm.job.retry" {
		return o
	}
	mine := func(ctx context.Context, c gate.Call) error {
		args, _ := c.Value.(map[string]any)
		id, _ := args["run_id"].(string)
		v, err := g.Ledger.View(ctx, id)
		if fault.Is(err, fault.NotFound) || err == nil && acts == ActsOnOwnLiveRun && v.Run.State.Terminal() {
			return nil // the operation reports that
		}
		if err == nil && acts == ActsForAskers {
			err = g.mayChange(ctx, c, id, v.Run.ProjectID)
		}
		if err != nil {
			return err
		}
		return g.mayActOn(ctx, c, v.Run)
	}
	before := func(h gate.Handler) gate.Handler {
		if h == nil {
			return nil
		}
		return func(ctx context.Context, c gate.Call) (any, error) {
			if err := mine(ctx, c); err != nil {
				return nil, err
			}
			return h(ctx, c)
		}
	}
	o.Does.handle, o.DryRun.handle = before(o.Does.handle), before(o.DryRun.handle)
	if covers := o.Covers; covers != nil {
		o.Covers = func(ctx context.Context, c gate.Call) (gate.Coverage, error) {
			if err := mine(ctx, c); err != nil {
				return gate.Coverage{}, err
			}
			return covers(ctx, c)
		}
	}
	return o
}
