package slurm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

// FuzzSurvey: no answer of Slurm's commands panics, and none makes a partition or account without a name.
func FuzzSurvey(f *testing.F) {
	f.Add("PartitionName=a MaxTime=1-02:03:04 State=UP AllowAccounts=x,y MaxMemPerNode=5\n", "a|4|10|gpu:a:2(S:0),gpu:1|idle\na|x\n",
		"x|a|q,r\ny||\n||\n")
	f.Fuzz(func(t *testing.T, parts, nodes, assoc string) {
		list := partitions(parts)
		addNodes(list, nodes)
		for _, p := range list {
			if p.Name == "" || p.Away > p.Nodes {
				t.Errorf("%+v", p)
			}
		}
		for _, a := range associations(assoc, "x") {
			if a.Name == "" {
				t.Errorf("%+v", a)
			}
		}
	})
}

// What a run must fit is asked with two commands, and a failure of either is no answer.
//
// proves SITE-07
func TestPartitions(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("scontrol --oneliner", Output{Stdout: []byte("PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP\n" +
		"PartitionName=gpu Default=NO MaxTime=UNLIMITED State=DOWN MaxMemPerNode=1000\n")})
	r.answer("sinfo", Output{Stdout: []byte("main|4|8000|(null)|idle\nmain|8|4000|(null)|down*\ngpu|16|64000|gpu:a100:2,gpu:h100:1|mix\n")})
	got, err := c.Partitions(t.Context())
	want := []run.Partition{{Name: "main", Default: true, Up: true, MaxSeconds: 86400, CPUs: 8, MemMB: 8000},
		{Name: "gpu", CPUs: 16, MemMB: 1000, GPUs: 3, GPUTypes: []string{"a100", "h100"}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	r.answer("sinfo", Output{Exit: 1, Stderr: "slurm_load_partitions: Unable to contact slurm controller"})
	if got, err := c.Partitions(t.Context()); !fault.Is(err, fault.Transport) || got != nil {
		t.Error(got, err)
	}
}

// Slurm's forms of a time limit, and of generic resources. (sinfo(1), slurm.conf(5))
func TestSurveyForms(t *testing.T) {
	for text, want := range map[string]time.Duration{"UNLIMITED": 0, "": 0, "00:10:00": 10 * time.Minute, "1-00:00:00": 24 * time.Hour,
		"30-12:00:01": 30*24*time.Hour + 12*time.Hour + time.Second} {
		if got := timeLimit(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	for text, want := range map[string]int{"(null)": 0, "gpu:4": 4, "gpu:a100:4(S:0-1)": 4, "gpu:a100:2,gpu:h100:6,shard:90": 8, "gpu": 0} {
		if got, _ := GPUs(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	if _, types := GPUs("gpu:a100:2(S:0-1),gpu:h100:6,gpu:2,shard:90"); fmt.Sprint(types) != "[a100 h100]" {
		t.Error(types)
	}
	for text, want := range map[string]int{"(null)": 0, "rl_enable": 120, "a,rl_enable,rl_refill_rate=4,rl_refill_period=60": 4,
		"rl_refill_rate=4": 0} {
		if got := rpcRate(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	if got := fmt.Sprint(associations("b||n\na|p1|n,m\na|p2|\n", "a")); got != "[{a true [p1 p2] [n m]} {b false [] [n]}]" {
		t.Error(got)
	}
}
