package app

import (
	"cmp"
	"context"
	"path"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

const (
	leastMounted = 1 << 20 // bytes; copying less costs no more than mounting it
	mostMounted  = 512     // of one job: each is a mount in its container
)

// Placing says how jobs of a site get their inputs: from the gateway's store where the nodes see it and the job belongs to the gateway's
// user, else from private copies.
func (g *Gateway) Placing(s *site.Site) run.Placing {
	if s.Storage.BindArtifacts == "" && len(s.Storage.InPlace) == 0 {
		return nil
	}
	return func(_ context.Context, r run.Run, inputs []plan.Input) ([]run.Placed, error) {
		list, mounted := make([]run.Placed, len(inputs)), 0
		for i, in := range inputs {
			list[i] = run.Placed{Input: in, Strength: run.Copied}
			if s.Storage.BindArtifacts == "" || r.ExecutedAs != "" || mounted == mostMounted {
				continue
			}
			if rel, size, ok := g.Store.Located(in.ChecksumSHA256); ok && size >= leastMounted {
				mounted++
				list[i].Strength, list[i].Path = run.Bound, path.Join(s.Storage.BindArtifacts, rel)
			}
		}
		return list, nil
	}
}

// tellStrengths says of each input of a run how its latest attempt gets it.
func tellStrengths(inputs []ArtifactDoc, by map[string]run.Strength) {
	for i := range inputs {
		inputs[i].Strength = cmp.Or(by[inputs[i].Relpath], run.Copied)
	}
}
