package main

import (
	"testing"
)

// Jobs are renamed in both ways over each transport, alone and in arrays, and one job outlives the time after which one that Slurm does
// not show is given up. Nothing else of a case changes.
func TestRenames(t *testing.T) {
	over := []carrier{cli, login, dtn, caller, rest, restsftp}
	ways, arrays, long := map[carrier]map[renaming]int{}, 0, 0
	for seed := range uint64(10) {
		plain := withMates(seed, deal(seed, cases(seed, 300), over), []int{1, 7}, len(over))
		list := withRenames(seed, withMates(seed, deal(seed, cases(seed, 300), over), []int{1, 7}, len(over)))
		for i, c := range list {
			if c.scenario.name == outlives {
				long++
				continue
			}
			if c.rename != "" && c.k > 1 {
				arrays++
			}
			if ways[c.carrier] == nil {
				ways[c.carrier] = map[renaming]int{}
			}
			ways[c.carrier][c.rename]++
			if c.rename = ""; c.String() != plain[i].String() {
				t.Errorf("seed %d: case %d is %s, and was %s", seed, i, c, plain[i])
			}
		}
	}
	for _, c := range over {
		if ways[c][byPlugin] == 0 || ways[c][byHand] == 0 {
			t.Errorf("over %s %v cases are renamed, want some in each way", c, ways[c])
		}
	}
	if arrays == 0 || long < 20 {
		t.Errorf("%d renamed arrays and %d long jobs in 3000 cases, want some arrays and 20 long ones at least", arrays, long)
	}
}
