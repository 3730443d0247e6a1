package app

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

const (
	leastMounted = 1 << 20 // bytes; copying less costs no more than mounting it
	mostMounted  = 512     // of one job: each is a mount in its container
)

// Placing decides how jobs of a site get their inputs: from the gateway's store where the nodes see it and the job
// belongs to the gateway's user, else from the place where they were registered, else from private copies.
func (g *Gateway) Placing(s *site.Site) run.Placing {
	lie := func(s *site.Site) bool { return len(s.Storage.InPlace) > 0 }
	if s.Storage.BindArtifacts == "" && !slices.ContainsFunc(g.Site.All(), lie) {
		return nil
	}
	return func(ctx context.Context, r run.Run, inputs []plan.Input) ([]run.Placed, error) {
		linked, err := g.Ledger.Inputs(ctx, r.ID)
		if err != nil {
			return nil, err
		}
		list, mounted := make([]run.Placed, len(inputs)), 0
		for i, in := range inputs {
			a := run.Artifact{ProjectID: r.ProjectID, SHA256: in.ChecksumSHA256}
			if at := slices.IndexFunc(linked, func(o run.Output) bool { return o.Relpath == in.DestRelpath }); at >= 0 {
				a = linked[at].Artifact
			}
			if list[i], err = g.place(ctx, s, r, in, a, mounted < mostMounted); err != nil {
				return nil, err
			}
			if list[i].Path != "" && !in.Directory {
				mounted++
			}
		}
		return list, nil
	}
}

// place decides how the job of a run gets one input. mount allows it to mount a file.
func (g *Gateway) place(ctx context.Context, s *site.Site, r run.Run, in plan.Input, a run.Artifact, mount bool) (p run.Placed, err error) {
	p = run.Placed{Input: in, Strength: run.Copied}
	if in.Directory {
		there, ok, err := g.placedTree(ctx, s, r, in, a)
		if ok {
			p = there
		}
		return p, err
	}
	rel, size, stored := g.Store.Located(in.ChecksumSHA256)
	if !stored {
		p.Open = func(ctx context.Context) (io.ReadCloser, int64, error) { return g.copyInPlace(ctx, r, a) }
	}
	if mount && stored && size >= leastMounted && s.Storage.BindArtifacts != "" && r.ExecutedAs == "" {
		p.Strength, p.Path = run.Bound, path.Join(s.Storage.BindArtifacts, rel)
		return p, nil
	}
	if mount && (!stored || size >= leastMounted) {
		if there, ok, err := g.placed(ctx, s, r, in, a); err != nil || ok {
			there.Open = p.Open
			return there, err
		}
	}
	return p, nil
}

// copyInPlace opens bytes in place for a copy. The copying side compares their checksum.
func (g *Gateway) copyInPlace(ctx context.Context, r run.Run, a run.Artifact) (io.ReadCloser, int64, error) {
	places, err := g.placesOf(ctx, a)
	if err != nil {
		return nil, 0, err
	}
	f, _, err := g.readInPlace(a, g.registeredFor(places, a, run.ShareOf(r).Caller))
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, 0, fault.Wrap(fault.Transport, "filesystem", "the bytes of "+a.ID+" cannot be read", err)
	}
	return f, size, nil
}

// setStrengths sets, for each input of a run, how its latest attempt gets it.
func setStrengths(inputs []ArtifactDoc, by map[string]run.Got) {
	for i := range inputs {
		got := by[inputs[i].Relpath]
		inputs[i].Strength, inputs[i].InPlace = cmp.Or(got.Strength, run.Copied), got.Rests
	}
}
