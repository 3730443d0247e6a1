package slurm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

// No answer of Slurm's commands causes a panic or gives a partition, a node or an account without a name.
func FuzzSnapshot(f *testing.F) {
	f.Add("Configuration data as of 1\nKillWait = 30 sec\n", "PartitionName=a MaxTime=1-02:03:04 State=UP AllowAccounts=x,y MaxMemPerNode=5\n",
		"n1|a|4|10|gpu:a:2(S:0),gpu:1|idle|Unknown|none\n", "x|a|c|q|r|s,t|1|\ny||||||||\n")
	f.Fuzz(func(t *testing.T, config, parts, nodes, assoc string) {
		clusterConfig(config)
		named, err := parseNodes(nodes)
		for _, n := range named {
			if n.Name == "" {
				t.Errorf("parseNodes gives a node of partition %q without a name (%v)", n.Partition, err)
			}
		}
		for _, p := range run.AddNodes(partitions(parts), named) {
			if p.Name == "" || p.Usable() > p.Nodes {
				t.Errorf("the partition %q has %d usable nodes of %d, want a name and at most all nodes", p.Name, p.Usable(), p.Nodes)
			}
		}
		rows, _, _ := associations(assoc, "c")
		for user, u := range run.ByUser(rows) {
			if user == "" || len(u.Accounts) == 0 {
				t.Errorf("ByUser gives the user %q with %d accounts, want a name and at least one account", user, len(u.Accounts))
			}
			for _, a := range u.Accounts {
				if a.Name == "" {
					t.Errorf("ByUser gives the user %q an account without a name", user)
				}
			}
		}
	})
}

// Partitions takes two commands, and a failure of either is an error. A partition without nodes has no line in sinfo.
//
// proves SITE-07
func TestPartitions(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("scontrol --oneliner", Output{Stdout: []byte("PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP AllowAccounts=ALL\n" +
		"PartitionName=gpu Default=NO MaxTime=UNLIMITED State=DOWN MaxMemPerNode=1000 AllowAccounts=a,b DenyAccounts=b AllowGroups=g\n" +
		"PartitionName=old Hidden=YES MaxTime=00:10:00 State=INACTIVE MaxMemPerNode=UNLIMITED AllowAccounts=(null)\nnonsense\n")})
	r.answer("sinfo", Output{Stdout: []byte("n1|main|4|8000|(null)|idle|Unknown|none\nn2|main|8|4000|(null)|down*|Unknown|none\n" +
		"n3|main|8|4000|(null)|mixed-|Unknown|none\ng1|gpu|16|64000|gpu:a100:2,gpu:h100:1|drained|1795843601|disk | errors\n")})
	got, err := Partitions(t.Context(), c)
	want := []run.Partition{
		{Name: "main", Default: true, State: "UP", MaxSeconds: 86400, Nodes: 3, States: map[string]int{"idle": 1, "down": 1, "mixed": 1}, CPUs: 8,
			MemMB: 8000},
		{Name: "gpu", State: "DOWN", MaxMemMB: 1000, Accounts: []string{"a", "b"}, DeniedAccounts: []string{"b"}, Groups: []string{"g"},
			Nodes: 1, States: map[string]int{"drained": 1}, CPUs: 16, MemMB: 1000, GPUs: 3, GPUTypes: []string{"a100", "h100"}},
		{Name: "old", State: "INACTIVE", Hidden: true, MaxSeconds: 600, Accounts: []string{}, States: map[string]int{}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Fatalf("Partitions gives the error %v and this difference (-want +got):\n%s", err, d)
	}
	usable, open := "", ""
	for _, p := range got {
		usable += fmt.Sprint(p.Usable())
		open += fmt.Sprint(p.Open("a"), p.Open("b"))
	}
	if usable != "200" || open != "true truetrue falsefalse false" {
		t.Errorf("usable nodes: %s, open to a and b: %s, want 200, and all, a and none", usable, open)
	}
	r.answer("sinfo", Output{Exit: 1, Stderr: "slurm_load_partitions: Unable to contact slurm controller"})
	if got, err := Partitions(t.Context(), c); !fault.Is(err, fault.Transport) || got != nil {
		t.Errorf("Partitions after a failed sinfo gives %v %v, want nothing and a transport fault", got, err)
	}
}

// Nodes that take no jobs, as sinfo of 24.11 prints them: after a failed Prolog, with an administrator's reason, and
// one that is down.
func TestUnusable(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("sinfo", Output{Stdout: []byte("big1|big|256|2200000|gpu:a100:16|down*|Unknown|has no slurmd by design\n" +
		"n1|main|8|8000|(null)|drained|1795843601|Prolog error\nn1|short|8|8000|(null)|drained|1795843601|Prolog error\n" +
		"n2|main|8|8000|(null)|idle|Unknown|none\nn3|main|8|8000|(null)|draining|1795843602|disk | errors\n")})
	got, err := c.Unusable(t.Context())
	want := map[string]run.Unusable{"big1": {State: "down*", Why: "has no slurmd by design"},
		"n1": {State: "drained", Why: "Prolog error", Since: at(1795843601)},
		"n3": {State: "draining", Why: "disk | errors", Since: at(1795843602)}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("Unusable gives the error %v and this difference (-want +got):\n%s", err, d)
	}
	for _, half := range []string{"n1|main|8|8000|(null)|drained|17958", "n1|main\n", "n1|main|8|8000|(null)|drained|yesterday|x\n"} {
		r.answer("sinfo", Output{Stdout: []byte(half)})
		if got, err := c.Unusable(t.Context()); !fault.Is(err, fault.Transport) {
			t.Errorf("after %q: %v, %v", half, got, err)
		}
	}
}

// Slurm's formats of a time limit, of generic resources and of slurmctld's clock. (sinfo(1), slurm.conf(5))
func TestForms(t *testing.T) {
	for text, want := range map[string]int64{"UNLIMITED": 0, "": 0, "00:10:00": 600, "1-00:00:00": 86400, "30-12:00:01": 30*86400 + 43201} {
		if got := timeLimit(text); got != want {
			t.Errorf("timeLimit(%q) = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int{"(null)": 0, "gpu:4": 4, "gpu:a100:4(S:0-1)": 4, "gpu:a100:2,gpu:h100:6,shard:90": 8, "gpu": 0} {
		if got, _ := GPUs(text); got != want {
			t.Errorf("GPUs(%q) = %d, want %d", text, got, want)
		}
	}
	if _, types := GPUs("gpu:a100:2(S:0-1),gpu:h100:6,gpu:2,shard:90"); fmt.Sprint(types) != "[a100 h100]" {
		t.Errorf("the GPU types are %q, want a100 and h100", types)
	}
	if at := clusterConfig("Configuration data as of 1795361949\nKey = 1\n").Clock; !at.Equal(time.Unix(1795361949, 0)) {
		t.Errorf("the clock is %s, want %s", at, time.Unix(1795361949, 0))
	}
	for _, none := range []string{"", "\n", "Configuration data as of 2026-11-22T15:00:00\n", "x"} {
		if at := clusterConfig(none).Clock; !at.IsZero() {
			t.Errorf("the clock of %q is %s, want no time", none, at)
		}
	}
	if n := least([]string{"", "5", "3"}); n == nil || *n != 3 || least([]string{""}) != nil {
		t.Errorf("the least of 5 and 3 differs, or there is one of no numbers (-want +got):\n%s", cmp.Diff(ptr(3), n))
	}
}

// A snapshot takes one query for each part; a cluster without slurmdbd is not asked for accounts.
func TestDescribe(t *testing.T) {
	for storage, want := range map[string]int{"accounting_storage/slurmdbd": 1, "(null)": 0} {
		c, r := fakeCLI(t)
		r.answer("scontrol show config", Output{Stdout: []byte("Configuration data as of 1795361949\nClusterName = devcluster\n" +
			"AccountingStorageType = " + storage + "\n")})
		r.answer("scontrol --oneliner", Output{Stdout: []byte("PartitionName=main State=UP\n")})
		r.answer("sinfo", Output{Stdout: []byte("n1|main|4|8000|(null)|idle|Unknown|none\n")})
		r.answer("sacctmgr", Output{Stdout: []byte(askedAccounts)})
		began := time.Now()
		s, err := Describe(t.Context(), c, "lab")
		if err != nil || s.Config.Value.Name() != "devcluster" || s.Partitions.Value[0].CPUs != 4 || len(s.Nodes.Value) != 1 ||
			len(s.Accounts.Value["lab"].Accounts) != want {
			t.Errorf("with %s Describe gives the cluster %q, %d nodes and %d accounts of lab, %v; want devcluster, 1 and %d",
				storage, s.Config.Value.Name(), len(s.Nodes.Value), len(s.Accounts.Value["lab"].Accounts), err, want)
		}
		for what, at := range map[string]time.Time{"configuration": s.Config.At, "partitions": s.Partitions.At, "nodes": s.Nodes.At} {
			if at.Before(began) || at.After(time.Now()) {
				t.Errorf("the %s were asked for at %s, want a time during Describe", what, at)
			}
		}
		if n := r.count("scontrol") + r.count("sinfo"); n != 3 || r.count("sacctmgr") != want || c.Budget().Total != int64(5+want) {
			t.Errorf("with %s Describe asks slurmctld %d times and slurmdbd %d times for %d RPCs, want 3, %d and %d", storage, n,
				r.count("sacctmgr"), c.Budget().Total, want, 5+want)
		}
	}
}

// The configuration is asked for again only when it is older than the caller accepts, and never a second time for the
// cluster's name.
func TestConfigIsAskedOnce(t *testing.T) {
	c, r := onCluster(t, "alpha")
	for _, step := range []struct {
		age  time.Duration
		want int // calls of scontrol by then
	}{{0, 1}, {ever, 1}, {time.Hour, 1}, {0, 2}, {ever, 2}} {
		if v, err := c.Config(t.Context(), step.age); v.Name() != "alpha" || err != nil || r.count("scontrol") != step.want {
			t.Errorf("Config(%s) gives %q %v after %d calls of scontrol, want alpha after %d", step.age, v.Name(), err, r.count("scontrol"),
				step.want)
		}
	}
	if d, err := c.MessageTimeout(t.Context()); d != 10*time.Second || err != nil || r.count("scontrol") != 2 {
		t.Errorf("MessageTimeout gives %s %v after %d calls of scontrol, want 10s after 2", d, err, r.count("scontrol"))
	}
}
