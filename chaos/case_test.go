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

// The transports divide the cases among them. A case is the same over each, apart from an outage of the network; and what happens to its
// connections follows from the seed and its number.
func TestDeal(t *testing.T) {
	const n = 300
	plain, dealt, again := cases(3, n), deal(3, cases(3, n), carriers), deal(3, cases(3, n), carriers)
	count, faults := map[carrier]int{}, map[string]int{}
	for i, c := range dealt {
		count[c.carrier]++
		faults[c.far.sftp]++
		if len(c.far.networkFaults.cuts) > 0 {
			faults["cut"]++
		}
		if c.String() != again[i].String() {
			t.Errorf("case %d is drawn differently: %s, %s", i, c, again[i])
		}
		faults[c.far.daemon]++
		if c.far.token > 0 {
			faults["token"]++
		}
		if c.far.namesake {
			faults["namesake"]++
		}
		faults["signer "+c.far.signer]++
		if (c.far.signer != "" || c.far.namesake) && c.carrier != caller {
			t.Errorf("case %d has no users: %s", i, c)
		}
		if c.carrier == cli && c.far.String() != "" {
			t.Errorf("case %d has no connection to cut: %s", i, c)
		}
		if c.block >= 0 && c.block%2 == 0 {
			if !c.carrier.ssh() {
				t.Errorf("case %d does not pass the network: %s", i, c)
			}
		} else if c.carrier, c.far = "", (far{}); c.String() != plain[i].String() {
			t.Errorf("case %d is %s, and without transports %s", i, c, plain[i])
		}
	}
	for _, c := range carriers {
		if count[c] < n/2/len(carriers) {
			t.Errorf("%s has %d cases of %d", c, count[c], n)
		}
	}
	for _, name := range []string{"cut", "full", "small", "large", "killed", "restarted", "paused", "token", "namesake",
		"signer killed", "signer paused", "signer refuses the user", "signer signs for seconds", "signer account locked"} {
		if faults[name] == 0 {
			t.Errorf("no case of %d has the fault %s", n, name)
		}
	}
}

// A case of a batch follows from the seed and its number alone, and a batch is never dealt to a transport with several users.
func TestBatchCasesAreRepeatable(t *testing.T) {
	over := []carrier{cli, caller, rest}
	for seed := range uint64(5) {
		long := batchCases(seed, 30, over)
		for i, c := range batchCases(seed, 10, over) {
			if fmt.Sprint(c) != fmt.Sprint(long[i]) || c.carrier == caller {
				t.Errorf("seed %d, case %d of 10 is %q over %s, of 30 it is %q", seed, i, c, c.carrier, long[i])
			}
		}
	}
}
