package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
	"slurmgate/site"
)

// A job can hash reference data: an ordinary run, whose program is the gateway's own script instead of a container.
// Its params contain the state of the hashed files. So a repeated call finds the run, even if the first call or the
// gateway died, and another run hashes what has changed meanwhile.

const (
	hashRole    = "list" // of the run's output
	hashOutput  = "out/list"
	hashMemMB   = 1024
	hashAtLeast = 15 * 60        // seconds
	hashRate    = 50 << 20       // bytes a second that even a slow filesystem gives
	mostHashed  = int64(1 << 30) // bytes of the output, which has a line for each file
	hashPoll    = 30 * time.Second
)

// hashedByJob returns a hasher that runs a job of the site for a call, and waits for it.
func (g *Gateway) hashedByJob(c gate.Call) hasher {
	return func(ctx context.Context, s *site.Site, _ opener, root site.InPlace, a ImportArgs, scope artifact.Scope) (
		got artifact.Registered, err error) {
		got.Type, got.Label = a.Type, filepath.Base(*a.Path)
		if a.Type == "" {
			return got, fault.Invalid("", fault.Problem{Code: "IMPORT-TYPE", Field: "type",
				Rule: "the type of what a job hashes; DIRECTORY for a folder",
				Msg:  "a job does not detect the type, and the call does not name it"})
		}
		state, size, err := g.lookAt(ctx, s, root, *a.Path, scope)
		if err != nil {
			return got, err
		}
		order, err := g.hashOrder(ctx, c, s, scope.Project, g.hashPlan(s, root.Path, *a.Path, a.Type == plan.Directory, state, size))
		if err != nil {
			return got, err
		}
		text, err := g.hashInRun(ctx, c, order, *a.Path)
		if err != nil {
			return got, err
		}
		if a.Type != plan.Directory {
			got.SHA256, got.State, got.SizeBytes, err = tree.ParseSum(text, *a.Path)
		} else {
			var list []tree.File
			if list, got.State, err = tree.ParseSums(text, *a.Path); err == nil {
				err = g.directoryBounds().Allow(list)
			}
			if err == nil {
				got.Imported, err = artifact.ListOf(got.Label, list)
			}
		}
		if err == nil && got.State != state {
			err = tree.HalfSums(*a.Path)
		}
		return got, err
	}
}

// lookAt returns the state of a file or directory on a site, and its approximate size in bytes.
func (g *Gateway) lookAt(ctx context.Context, s *site.Site, root site.InPlace, path string, scope artifact.Scope) (string, int64, error) {
	if im := g.inPlace[s.Name]; im != nil {
		return im.Look(ctx, path, scope)
	}
	return g.FarPlaces.Look(ctx, s, "", root.Path, path)
}

// hashPlan returns the plan of a job that hashes a file or a directory below root.
func (g *Gateway) hashPlan(s *site.Site, root, path string, folder bool, state string, size int64) plan.Spec {
	argv := []string{"job", state, "hash", root, path}
	if folder {
		argv = []string{"job", state, "tree", root, path, strconv.Itoa(tree.MaxFiles), strconv.Itoa(tree.MaxDepth)}
	}
	sum, stdout := sha256.Sum256(g.PlaceScript), hashOutput
	spec := plan.Spec{Version: plan.SpecVersion,
		Resources: plan.Resources{CPUs: 1, MemMB: min(hashMemMB, g.Policy.Slurm.MaxMemMB),
			TimeLimitSeconds: int(min(hashAtLeast+size/hashRate, int64(g.Policy.Slurm.MaxTimeLimitSeconds)))},
		Placement: plan.Placement{Site: &s.Name},
		Execution: plan.Execution{Kind: plan.Scripted, Command: plan.Command{Argv: argv, Stdout: &stdout},
			Container: plan.Container{Engine: "bash", Image: "sha256:" + hex.EncodeToString(sum[:]), NetworkMode: "host"}},
		IO: plan.IO{Outputs: []plan.Output{{Role: hashRole, SrcRelpath: hashOutput, Type: "UNKNOWN", Label: "checksums"}}}}
	spec.Fill()
	return spec
}

// hashOrder returns the order of a run of such a plan. It never runs as a user: users can forge the end of their own
// runs and must not vouch for what others use.
func (g *Gateway) hashOrder(ctx context.Context, c gate.Call, s *site.Site, project string, spec plan.Spec) (o run.Order, err error) {
	user, err := g.executedAs(ctx, c, []*site.Site{s})
	if err == nil && user != "" {
		err = fault.New(fault.Policy, "reference_forgeable", "jobs on the site "+s.Name+" are executed as their callers, and "+user+
			" could forge what this one says").WithNext("leave by_job out: the gateway's own login hashes it then")
	}
	if err != nil {
		return o, err
	}
	at, err := g.charged(ctx, c, s, project, "", spec.Placement)
	if err != nil {
		return o, err
	}
	there := spec
	there.Placement = *at
	if err := there.Validate(plan.Rules{Stored: true}); err != nil {
		return o, err
	}
	if err := g.Policy.AllowPlan(there, false, ""); err != nil {
		return o, err
	}
	return run.Order{ToolID: "reference.add", ToolName: "reference_add", ToolVersion: BuiltinVersion, ContractVersion: builtinContract,
		Params: plan.Params{ProjectID: project, Script: g.Script, Spec: spec}, Placement: at, Site: s.Name,
		SiteWhy: "what it hashes is there", PolicyHash: g.Policy.Hash, Policy: g.Policy.Snapshot, Actor: c.Request.Actor.Kind,
		Asking: g.asking(ctx, c)}, nil
}

// hashInRun submits the order, or finds its run, waits for the end, and returns what the run printed.
func (g *Gateway) hashInRun(ctx context.Context, c gate.Call, o run.Order, path string) (string, error) {
	if err := c.MayStart(o.ToolName); err != nil {
		return "", err
	}
	r, err := g.Sites.Submit(ctx, o)
	if r, err = g.submitted(c, r, err); err != nil {
		return "", err
	}
	for state := r.State; !state.Terminal(); {
		now, err := g.Sites.Get(ctx, r.RunID, hashPoll)
		if err != nil {
			return "", fault.Wrap(fault.KindOf(err), "", "the run "+r.RunID+" hashes "+path+", and continues without this call", err).
				WithNext("make the same call again: it finds the run")
		}
		state = now.State
	}
	v, err := g.Ledger.View(ctx, r.RunID)
	if err != nil {
		return "", err
	}
	outputs, err := g.Ledger.Outputs(ctx, r.RunID)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(outputs, func(x run.Output) bool { return x.Role == hashRole })
	if v.Run.State != run.Succeeded || v.Run.Removed != "" || i < 0 {
		return "", notHashed(v, path)
	}
	b, _, err := g.Store.Reader(ctx, outputs[i].Artifact.SHA256)
	if err != nil {
		return "", err
	}
	defer b.Close()
	text, err := io.ReadAll(io.LimitReader(b, mostHashed))
	return string(text), err
}

// notHashed returns the error of a job that gave no checksums.
func notHashed(v run.View, path string) error {
	e := fault.New(fault.Tool, "hash_job_failed", fmt.Sprintf("the run %s, which was to hash %s, is %s", v.Run.ID, path, v.Run.State))
	switch {
	case v.Run.ExitCode != nil && *v.Run.ExitCode == 7:
		e.Kind, e.Code, e.Msg = fault.Validation, "import_changed", path+" changed before or while the run "+v.Run.ID+" hashed it"
		return e.WithNext("register it again when nothing writes to it")
	case v.Run.Reason != "":
		e.Msg += ": " + string(v.Run.Reason)
	}
	return e.WithNext("see why, retry the run, and make the same call again").
		WithSteps(fault.Do("slurm.job.logs", "run_id", v.Run.ID), fault.Do("slurm.job.retry", "run_id", v.Run.ID))
}
