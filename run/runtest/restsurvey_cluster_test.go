//go:build cluster

package runtest_test

import (
	"context"
	"os/user"
	"slices"
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
