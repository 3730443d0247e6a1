package app

import (
	"context"
	"fmt"
	"slices"

	"slurmgate/export"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
)

// references says which inputs had a name of the site when the run ended.
func (x *exporter) references(ctx context.Context, inputs []run.Output) error {
	for i, in := range inputs {
		names, err := x.Ledger.NamesOf(ctx, in.Artifact.SHA256, in.Artifact.Type)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(r ledger.Reference) bool { return r.At.After(*x.v.Run.FinishedAt) })
		x.rec.Run.Inputs[i].ReferenceName = ledger.NameFor(names, x.v.Run.ProjectID, in.Artifact.Source)
	}
	for _, list := range [][]export.Artifact{x.rec.Run.Inputs, x.rec.Run.Outputs} {
		for i := range list {
			if err := x.unfold(ctx, &list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// unfold reads the list of a directory, or says why its files are not in the archive.
func (x *exporter) unfold(ctx context.Context, a *export.Artifact) error {
	const inPlace = "it lies in place on the site, and the gateway has no copy"
	if a.Type != plan.Directory {
		if there, err := x.Ledger.InPlace(ctx, a.SHA256); err != nil || a.Why == "" || !there {
			return err
		}
		a.Why = inPlace
		return nil
	}
	if a.Why != "" {
		return nil
	}
	if only, err := x.Ledger.FilesInPlace(ctx, a.SHA256); err != nil || only {
		if only {
			a.Why = inPlace
		}
		return err
	}
	f, err := x.Store.Open(a.SHA256)
	if err != nil {
		return err
	}
	defer f.Close()
	var list []tree.File
	_, err = tree.Each(f, func(one tree.File) error {
		if a.Why == "" && !x.Store.Has(one.SHA256) {
			a.Why = fmt.Sprintf("the gateway no longer has the bytes of its file %q", one.Path)
		}
		list = append(list, one)
		return ctx.Err()
	})
	if x.rec.Directories == nil {
		x.rec.Directories = map[string][]tree.File{}
	}
	x.rec.Directories[a.SHA256] = list
	return err
}
