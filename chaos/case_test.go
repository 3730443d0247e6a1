package main

import (
	"fmt"
	"slices"
	"testing"
)

// A case follows from the seed and its number alone, however many there are.
func TestCasesAreRepeatable(t *testing.T) {
	text := func(list []testCase) []string {
		var out []string
		for _, c := range list {
			out = append(out, fmt.Sprint(c.n, c, c.may, c.scenario.work))
		}
		return out
	}
	for seed := range uint64(20) {
		long := text(cases(seed, 300))
		for _, n := range []int{1, 59, 60, 299, 300} {
			if !slices.Equal(text(cases(seed, n)), long[:n]) {
				t.Fatalf("seed %d: %d cases are not the beginning of 300", seed, n)
			}
		}
	}
}

// Sixty cases deal every seam, and three hundred every call that fails as well.
func TestCasesCover(t *testing.T) {
	for seed := range uint64(20) {
		dealt := func(n int) (kill, fail map[string]bool) {
			kill, fail = map[string]bool{}, map[string]bool{}
			for _, c := range cases(seed, n) {
				for _, s := range c.starts {
					kill[place(s.kill)], fail[place(s.fail)] = true, true
				}
			}
			return kill, fail
		}
		kill, _ := dealt(60)
		for _, s := range seams(false) {
			if !kill[s.name] {
				t.Errorf("seed %d: 60 cases do not deal %s", seed, s.name)
			}
		}
		_, fail := dealt(300)
		for _, s := range seams(true) {
			if !fail[s.name] {
				t.Errorf("seed %d: 300 cases do not deal the failing %s", seed, s.name)
			}
		}
	}
}

func TestPlacesNameScenarios(t *testing.T) {
	for _, p := range places {
		if len(p.in) == 0 {
			t.Errorf("no scenario leads to %s", p.name)
		}
		for _, name := range p.in {
			scenarioNamed(name)
		}
	}
}
