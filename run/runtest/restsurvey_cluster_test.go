//go:build cluster

package runtest_test

import (
	"context"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
	"slurmgate/slurm"
	"slurmgate/slurm/rest"
)

// What slurmrestd shows of the cluster is what Slurm's commands print of it.
func TestClusterAsCommands(t *testing.T) {
	me, err := user.Current()
	must(t, err)
	socket, _ := slurmrestd(t)
	over, err := rest.New(rest.Config{URL: "unix:" + socket, User: me.Username, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	t.Cleanup(over.Close)
	cli, err := slurm.NewCLI(slurm.Config{BinDir: "/usr/bin", User: me.Username, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	probe, err := over.Probe(t.Context())
	must(t, err)

	same(t, "partitions", over.Partitions, cli.Partitions, func(list []run.Partition) []run.Partition {
		for i := range list {
			list[i].Default = list[i].Default && probe.Release[0] > 25 // v0.0.40 to v0.0.44 do not show it
			slices.Sort(list[i].GPUTypes)
		}
		return list
	})
	same(t, "nodes", over.Nodes, cli.Nodes, func(list []slurm.NodeIn) []slurm.NodeIn {
		for i := range list { // a node may be at work meanwhile
			busy := strings.NewReplacer("mixed", "idle", "allocated", "idle", "completing", "idle", "planned", "idle")
			list[i].State = busy.Replace(list[i].State)
		}
		slices.SortFunc(list, func(a, b slurm.NodeIn) int { return strings.Compare(a.Node+" "+a.Partition, b.Node+" "+b.Partition) })
		return list
	})
	same(t, "architectures", over.Archs, cli.Archs, func(list []string) []string { return list })
	type accounts = map[string]slurm.UserAccounts
	same(t, "accounts of all users", over.AllAccounts, cli.AllAccounts, func(users accounts) accounts {
		for _, u := range users {
			slices.SortFunc(u.Accounts, func(a, b slurm.Account) int { return strings.Compare(a.Name, b.Name) })
			for i := range u.Accounts {
				slices.Sort(u.Accounts[i].QOS)
			}
		}
		return users
	})
	type charges struct {
		List []slurm.Association
		QOS  []slurm.QOS
	}
	of := func(ask func(context.Context, string) ([]slurm.Association, []slurm.QOS, error)) func(context.Context) (charges, error) {
		return func(ctx context.Context) (c charges, err error) {
			c.List, c.QOS, err = ask(ctx, "devcluster")
			return c, err
		}
	}
	same(t, "associations", of(over.Associations), of(cli.Associations), func(c charges) charges {
		slices.SortFunc(c.List, func(a, b slurm.Association) int { return strings.Compare(a.Account, b.Account) })
		slices.SortFunc(c.QOS, func(a, b slurm.QOS) int { return strings.Compare(a.Name, b.Name) })
		for i := range c.List {
			slices.Sort(c.List[i].QOS)
		}
		return c
	})
	same(t, "partitions' states", over.Condition, cli.Condition, func(c slurm.Condition) slurm.Condition {
		if d := time.Since(c.At); d < -5*time.Second || d > 5*time.Second {
			t.Errorf("slurmctld's clock is %s behind", d)
		}
		for i := range c.Partitions {
			p := &c.Partitions[i]
			p.States = map[string]int{"usable": p.Usable(), "all": p.Nodes}
		}
		return slurm.Condition{Partitions: c.Partitions}
	})
	said, err := cli.Probe(t.Context())
	must(t, err)
	if probe.ClusterName != said.ClusterName || probe.Release != said.Release || !strings.Contains(probe.ControllerText, "UP") {
		t.Errorf("%+v, and the commands say %+v", probe, said)
	}
}

// same asks both ways and compares what plain makes of the answers.
func same[T any](t *testing.T, what string, over, commands func(context.Context) (T, error), plain func(T) T) {
	t.Helper()
	got, err := over(t.Context())
	must(t, err)
	want, err := commands(t.Context())
	must(t, err)
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("%s: commands -, slurmrestd +:\n%s", what, diff)
	}
}

// A look at the queue costs slurmctld one RPC, however many jobs there are, and the budget counts no less than slurmctld does.
func TestClusterCostOverREST(t *testing.T) {
	me, err := user.Current()
	must(t, err)
	socket, _ := slurmrestd(t)
	over, err := rest.New(rest.Config{URL: "unix:" + socket, User: me.Username, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	t.Cleanup(over.Close)
	ask := func(what string, most int, f func() error) {
		t.Helper()
		must(t, f()) // connections are made and proven
		before, budget := rpcsOf(t, me.Username), over.Budget().Total
		must(t, f())
		counted, spent := rpcsOf(t, me.Username)-before-1, over.Budget().Total-budget // sdiag itself is one
		if counted > most || int64(counted) > spent {
			t.Errorf("%s: slurmctld counts %d RPCs, want at most %d; the budget counts %d", what, counted, most, spent)
		}
	}
	look := func() error { _, err := over.Jobs(t.Context(), nil); return err }
	ask("the queue", 1, look)
	for range 40 {
		out, err := exec.Command("/usr/bin/sbatch", "--parsable", "--partition=big", "--account=research", "--mem=50M", "--output=/dev/null",
			"--job-name=sg-cost", "--wrap=true").Output()
		must(t, err)
		id := strings.TrimSpace(string(out))
		t.Cleanup(func() { exec.Command("/usr/bin/scancel", id).Run() })
	}
	ask("the queue with 40 jobs more", 1, look)
	ask("partitions", 3, func() error { _, err := over.Partitions(t.Context()); return err })
	ask("the condition", 4, func() error { _, err := over.Condition(t.Context()); return err })
	ask("accounting", 0, func() error { _, err := over.Records(t.Context(), time.Now().Add(-time.Hour)); return err })
}

// rpcsOf is how many RPCs of a user slurmctld has counted.
func rpcsOf(t *testing.T, name string) int {
	t.Helper()
	out, err := exec.Command("/usr/bin/sdiag").Output()
	must(t, err)
	_, users, _ := strings.Cut(string(out), "statistics by user")
	m := regexp.MustCompile(`(?m)^\s+` + name + `\s+\(\s*\d+\)\s+count:(\d+)`).FindStringSubmatch(users)
	if m == nil {
		t.Fatalf("sdiag does not count %s", name)
	}
	n, err := strconv.Atoi(m[1])
	must(t, err)
	return n
}
