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
// user, else from where they were registered in place, else from private copies.
func (g *Gateway) Placing(s *site.Site) run.Placing {
	if s.Storage.BindArtifacts == "" && len(s.Storage.InPlace) == 0 {
		return nil
	}
	return func(ctx context.Context, r run.Run, inputs []plan.Input) ([]run.Placed, error) {
		list, mounted := make([]run.Placed, len(inputs)), 0
		for i, in := range inputs {
			list[i] = run.Placed{Input: in, Strength: run.Copied}
			if in.Directory {
				p, ok, err := g.placedTree(ctx, s, r, in)
				if err != nil {
					return nil, err
				}
				if ok {
					list[i] = p
				}
				continue
			}
			if mounted == mostMounted {
				continue
			}
			rel, size, stored := g.Store.Located(in.ChecksumSHA256)
			if stored && size >= leastMounted && s.Storage.BindArtifacts != "" && r.ExecutedAs == "" {
				mounted++
				list[i].Strength, list[i].Path = run.Bound, path.Join(s.Storage.BindArtifacts, rel)
			} else if !stored || size >= leastMounted {
				p, ok, err := g.placed(ctx, s, r, in)
				if err != nil {
					return nil, err
				}
				if ok {
					mounted++
					list[i] = p
				}
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
