package app

import (
	"context"
	"fmt"
	"slices"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
	"slurmgate/site"
)

// Where slurm.run_as is caller, jobs and their files belong to the Unix user of whoever made the call. What each operation does as such a
// user, and who may have it done, is decided here.

// Acting is what an operation does as a Unix user of the cluster.
type Acting string

// The kinds of operations.
const (
	ActsAsNobody     Acting = "nobody"       // reads or changes what is the gateway's own
	ActsAsCaller     Acting = "caller"       // acts as the caller's Unix user, so the caller must have one
	ActsOnOwnRun     Acting = "own run"      // acts as the run's user: for that user, and for whoever has operate or admin
	ActsOnOwnLiveRun Acting = "own live run" // the same while the run has not ended; afterwards it reads what is the gateway's own
	ActsOnAnyRun     Acting = "any run"      // acts as the run's user, for those with operate or admin, which it needs anyway
)

// acting says it of every operation; the tools of toolpacks act as their callers. A test fails for an operation that is not here.
var acting = map[Acting][]string{
	ActsAsCaller:     {"slurm.submit", "artifact.import"},
	ActsOnOwnRun:     {"slurm.job.cancel", "slurm.job.recollect", "slurm.job.retry"},
	ActsOnOwnLiveRun: {"slurm.job.logs"},
	ActsOnAnyRun:     {"slurm.job.absent", "slurm.job.adopt", "gateway.gc", "secret.erase", "artifact.remove", "run.remove"},
	ActsAsNobody: {"approval.answer", "approval.list", "artifact.find", // its files as the caller's user, and none for a caller without one
		"artifact.get", "artifact.list", "artifact.preview.image", "artifact.preview.table",
		"batch.cancel", "batch.list", "batch.retry", "batch.rows", "batch.run", "batch.status", "batch.table", // each row is a call of its own
		"batch.export", "call.progress",
		"artifact.preview.text", "artifact.trace", "artifact.verify", "config.check", "config.show", "domain.check", "event.list", "event.record", "event.show",
		"event.verify", "export.verify", "gateway.backup", "gateway.drain", "gateway.restore", "gateway.resume", "gateway.status", "image.add",
		"image.list", "image.pull", "image.verify", "key.list", "key.rotate", "reference.add",
		"reference.list", "reference.remove", "reference.show", "run.diff", "run.export", "run.list", "run.notify", "run.provenance", "run.receipt",
		"run.show", "site.doctor", "site.init", "site.list", "slurm.job.collect",
		"slurm.job.get", "token.create", "token.list", "token.revoke", "tool.check", "tool.convert", "tool.init", "tool.list", "tool.runner",
		"tool.schema", "tool.show", "usage.month"},
}

// Acts is what the operation does as a Unix user; empty for one that nobody has classified.
func (o Operation) Acts() Acting {
	for a, ids := range acting {
		if slices.Contains(ids, o.ID) {
			return a
		}
	}
	return ""
}

// unixUser is the Unix user whom the principal's jobs run as on a cluster; empty where they run as the gateway's own user.
func (g *Gateway) unixUser(ctx context.Context, site string, p gate.Principal) (string, error) {
	if g.UnixUser == nil {
		return "", nil
	}
	return g.UnixUser(ctx, site, p)
}

// countsAs is the caller by whom shares, caps and quotas count: where jobs are their callers', a Unix user is one person, by whatever
// credentials he comes.
func (g *Gateway) countsAs(p gate.Principal) string {
	if g.UnixUser != nil && p.UnixUser != "" {
		return run.UnixCaller(p.UnixUser)
	}
	return p.Key()
}

// executedAs is the user whom a new run of the caller would run as: that of the first of the sites which takes the caller. It is part of
// the run's identity, so an answer that is merely unknown is an error.
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

// mayActOn refuses an effect on a run that is another Unix user's. Whoever has operate on the run's project, or admin, may act on it.
func (g *Gateway) mayActOn(ctx context.Context, c gate.Call, r run.Run) error {
	if r.ExecutedAs == "" || c.Caller.Can(gate.CapOperate, r.ProjectID) || c.Caller.Can(gate.CapAdmin, gate.All) {
		return nil
	}
	user, err := g.unixUser(ctx, r.Site, c.Caller.Principal)
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

// guarded is an operation whose calls, dry runs and requests for approval are refused for runs on which the caller may not act.
func (g *Gateway) guarded(o Operation) Operation {
	acts := o.Acts()
	if acts != ActsOnOwnRun && acts != ActsOnOwnLiveRun {
		return o
	}
	mine := func(ctx context.Context, c gate.Call) error {
		args, _ := c.Value.(map[string]any)
		id, _ := args["run_id"].(string)
		v, err := g.Ledger.View(ctx, id)
		if fault.Is(err, fault.NotFound) || err == nil && acts == ActsOnOwnLiveRun && v.Run.State.Terminal() {
			return nil // the operation answers
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

// importAs imports a file by its path where jobs are their callers': it is read as the caller's Unix user on the first such cluster, and
// never with the gateway's own rights; below an import root if the site has any.
func (g *Gateway) importAs(ctx context.Context, c gate.Call, importer *artifact.Importer, path string, in artifact.Scope) (
	got artifact.Imported, err error) {
	refused := fault.New(fault.Policy, "no_unix_user", "no cluster of this gateway runs jobs as their callers")
	for _, s := range g.Site.Clusters() {
		user, err := g.unixUser(ctx, s.Name, c.Caller.Principal)
		switch {
		case err != nil:
			return got, err
		case user != "":
			err = g.ReadAs(ctx, s.Name, user, func(open artifact.OpenAs) error {
				got, err = importer.ImportAs(ctx, path, in, open)
				return err
			})
			return got, err
		}
	}
	return got, refused
}
