package app

import (
	"encoding/json"
	"slices"
	"testing"

	"slurmgate/plan"
)

// Every tool of a pack takes the resources of its job beside its own arguments, and the pack sees none of that; what is not given changes
// nothing.
func TestCallAsks(t *testing.T) {
	g := tableGateway(t)
	p, err := g.Domain.Packs().Get("samtools.flagstat")
	if err != nil {
		t.Fatal(err)
	}
	if _, offered := g.inputOf(p); !slices.Equal(offered, []string{"resources"}) { // one cluster: there is no choice of sites
		t.Error(offered)
	}
	for given, want := range map[string]plan.MoreResources{
		`{"bam":"x"}`:                {},
		`{"bam":"x","resources":{}}`: {},
		`{"bam":"x","resources":{"cpus":4,"mem_mb":8192,"time_limit_seconds":14400}}`: {CPUs: new(4), MemMB: new(8192), TimeLimitSeconds: new(14400)},
	} {
		rest, asks, err := g.takeAsks(p, json.RawMessage(given))
		if err != nil || string(rest) != `{"bam":"x"}` {
			t.Errorf("%s: %s %v", given, rest, err)
		}
		if got, wanted := asks.Resources.On(plan.Resources{}), want.On(plan.Resources{}); got != wanted || asks.Resources.None() != want.None() {
			t.Errorf("%s: %+v", given, got)
		}
	}
	if rest, _, err := g.takeAsks(p, json.RawMessage(`[]`)); string(rest) != `[]` || err != nil {
		t.Error(string(rest), err)
	}
}
