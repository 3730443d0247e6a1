package app

import (
	"context"
	"fmt"

	"slurmgate/export"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
)

// references adds which inputs had a site's name when the run ended, and what the bytes of those in place rest on.
// The receipt has both.
func (x *exporter) references(ctx context.Context) error {
	for i, in := range x.rec.Run.Inputs {
		for _, d := range x.signed.Predicate.ResolvedDependencies {
			if d.Name == "input/"+in.Relpath {
				x.rec.Run.Inputs[i].ReferenceName, x.rec.Run.Inputs[i].InPlace = d.Annotations.Reference, d.Annotations.InPlace
			}
		}
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

// unfold reads the file list of a directory, or records why its files are not in the archive.
func (x *exporter) unfold(ctx context.Context, a *export.Artifact) error {
	const inPlace = "it stays in place on the site, and the gateway has no copy"
	if a.Type != plan.Directory {
		if a.Why == "" {
			return nil
		}
		places, err := x.placesOf(ctx, run.Artifact{ID: a.ArtifactID, ProjectID: x.of.Run.ProjectID, SHA256: a.SHA256})
		if len(places) > 0 {
			a.Why = inPlace
		}
		return err
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
