package cli

import (
	"testing"

	"slurmgate/fault"
)

func TestSizesAndTimes(t *testing.T) {
	for s, want := range map[string]int{"8G": 8192, "1500M": 1500, "1.5g": 1536, "0.1M": 1, "2T": 2 << 20, "8GiB": 8192, "8gb": 8192,
		"8": 0, "8K": 0, "G": 0, "-1G": 0, "0M": 0, "99999999999T": 0, "8 G": 0, "1e3M": 0, "": 0} {
		if got, ok := memoryMB(s); got != want && ok || ok != (want > 0) {
			t.Errorf("%q: %d %v, want %d", s, got, ok, want)
		}
	}
	for s, want := range map[string]int{"4h": 14400, "90m": 5400, "1d": 86400, "1d12h": 129600, "1h30m10s": 5410, "0.5s": 1, "4:00:00": 14400,
		"1-00:00:00": 86400, "100:00:01": 360001, "60": 0, "0s": 0, "-4h": 0, "4:60:00": 0, "h": 0, "d": 0, "0d": 0, "99999999h": 0} {
		if got, ok := wholeSeconds(s); got != want && ok || ok != (want > 0) {
			t.Errorf("%q: %d %v, want %d", s, got, ok, want)
		}
	}
	if _, err := (moreResources{Mem: "8", Time: "4"}).asked(0); len(fault.ProblemsOf(err)) != 2 {
		t.Error(err)
	}
	if more, err := (moreResources{}).asked(0); err != nil || !more.None() {
		t.Error(more, err)
	}
}
