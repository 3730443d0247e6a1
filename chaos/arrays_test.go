package main

import (
	"slices"
	"strings"
	"testing"
)

// Half of the cases have mates, over each transport; 120 of them deal every seam of arrays. Cases without mates are
// unchanged.
func TestCompany(t *testing.T) {
	over := []carrier{cli, login, rest}
	for seed := range uint64(10) {
		plain := deal(seed, cases(seed, 240), over)
		list := withMates(seed, deal(seed, cases(seed, 240), over), []int{1, 7}, len(over))
		dealt, with := map[string]bool{}, map[carrier]int{}
		for i, c := range list {
			if c.k == 7 {
				with[c.carrier]++
				for _, s := range c.starts {
					dealt[place(s.kill)] = true
				}
			} else if c.k = 0; c.String() != plain[i].String() {
				t.Errorf("seed %d: case %d is %s, and was %s", seed, i, c, plain[i])
			}
		}
		for _, c := range over {
			if with[c] < 30 {
				t.Errorf("seed %d: %d cases over %s have mates", seed, with[c], c)
			}
		}
		for _, p := range arrayPlaces {
			for _, when := range []string{".before", ".after"} {
				if !dealt[p.name+when] {
					t.Errorf("seed %d: no case dies at %s%s", seed, p.name, when)
				}
			}
		}
	}
	if _, err := parseSizes("1,x"); err == nil {
		t.Error("x runs")
	}
}

// A task that Slurm starts again, cancels or fails alone is part of each case of five runs or more.
func TestMates(t *testing.T) {
	c := testCase{scenario: scenarioNamed("sbatch_loses"), k: 5}
	var ends []string
	for i := range 4 {
		m := mateOf(c, i)
		ends = append(ends, m.scenario.end...)
		if len(m.scenario.flags) > 0 || m.scenario.requeue != (i == 3) {
			t.Errorf("mate %d has the scenario %+v, want no flags, and a requeue only of mate 3", i, m.scenario)
		}
	}
	if want := []string{endOK, endTool, endCancelled, endOK}; !slices.Equal(ends, want) {
		t.Errorf("the mates end as %q, want %q", ends, want)
	}
	if m := mateOf(testCase{scenario: scenarioNamed("cancel_pending")}, 2); m.scenario.cancel != "pending" || m.scenario.requeue {
		t.Errorf("the mate of a pending cancel has the scenario %+v, want the cancel and no requeue", m.scenario)
	}
	if n := tasksIn(strings.Fields("7_3 7_[0-2,5] 8_[0-9] 9"), 2); n != 2 {
		t.Errorf("%d jobs of the task", n)
	}
}
