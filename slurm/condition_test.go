package slurm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What scontrol and sinfo print, with nodes that are down and do not answer (*), and a partition that is not there.
func TestConditionTexts(t *testing.T) {
	if at := answeredAt("Configuration data as of 1795361949\nKey = 1\n"); !at.Equal(time.Unix(1795361949, 0)) {
		t.Error(at)
	}
	for _, none := range []string{"", "\n", "Configuration data as of 2026-11-22T15:00:00\n", "x"} {
		if at := answeredAt(none); !at.IsZero() {
			t.Errorf("%q: %v", none, at)
		}
	}
	list := partitionStates("PartitionName=main AllowGroups=ALL MaxTime=1-00:00:00 State=UP TotalCPUs=16 TotalNodes=3 TRES=cpu=16\n\n" +
		"PartitionName=old State=INACTIVE TotalNodes=x\nnonsense\n")
	nodesByState(list, "main|idle|1\nmain|down*|1\nmain|mixed-|1\nother|idle|7\nbad\nold|drained|x\n")
	want := []PartitionState{{"main", "UP", 3, map[string]int{"idle": 1, "down": 1, "mixed": 1}}, {"old", "INACTIVE", 0, map[string]int{}}}
	if d := cmp.Diff(want, list); d != "" || list[0].Usable() != 2 || list[1].Usable() != 0 {
		t.Error(d)
	}
	if n := least([]string{"", "5", "3"}); n == nil || *n != 3 || least([]string{""}) != nil {
		t.Error(n)
	}
}

func FuzzCondition(f *testing.F) {
	f.Add("Configuration data as of 1\nPartitionName=a State=UP TotalNodes=1\n", "a|idle*|1\n")
	f.Fuzz(func(t *testing.T, text, nodes string) {
		answeredAt(text)
		list := partitionStates(text)
		nodesByState(list, nodes)
		for _, p := range list {
			if p.Name == "" {
				t.Error("a partition has a name")
			}
		}
	})
}
