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

// overREST returns a client of a slurmrestd of this cluster, as this user.
func overREST(t *testing.T) (*rest.Slurm, *user.User) {
	t.Helper()
	me, err := user.Current()
	must(t, err)
	socket, _ := slurmrestd(t)
	over, err := rest.New(rest.Config{URL: "unix:" + socket, User: me.Username, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	t.Cleanup(over.Close)
	return over, me
}

// What slurmrestd shows of the cluster is what Slurm's commands print of it.
//
// slurmrestd: all of it
func TestClusterAsCommands(t *testing.T) {
	over, me := overREST(t)
	cli, err := slurm.NewCLI(slurm.Config{BinDir: "/usr/bin", User: me.Username, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	probe, err := over.Probe(t.Context())
	must(t, err)

	of := func(s slurm.Source) func(context.Context) ([]run.Partition, error) {
		return func(ctx context.Context) ([]run.Partition, error) { return slurm.Partitions(ctx, s) }
	}
	same(t, "partitions", of(over), of(cli), func(list []run.Partition) []run.Partition {
		for i := range list {
			p := &list[i]
			p.Default = p.Default && probe.Release[0] > 25 // v0.0.40 to v0.0.44 do not show it
			p.States = map[string]int{"usable": p.Usable()}
			slices.Sort(p.GPUTypes)
		}
		return list
	})
	same(t, "nodes", over.Nodes, cli.Nodes, func(list []run.Node) []run.Node {
		for i := range list { // a node may get work meanwhile
			busy := strings.NewReplacer("mixed", "idle", "allocated", "idle", "completing", "idle", "planned", "idle")
			list[i].State, list[i].Arch = busy.Replace(list[i].State), ""
		}
		slices.SortFunc(list, func(a, b run.Node) int { return strings.Compare(a.Name+" "+a.Partition, b.Name+" "+b.Partition) })
		return list
	})
	same(t, "architectures", over.Archs, cli.Archs, func(list []string) []string { return list })
	type accounts = map[string]run.UserAccounts
	sorted := func(users accounts) accounts {
		for _, u := range users {
			slices.SortFunc(u.Accounts, func(a, b run.Account) int { return strings.Compare(a.Name, b.Name) })
			for i := range u.Accounts {
				slices.Sort(u.Accounts[i].QOS)
			}
		}
		return users
	}
	same(t, "accounts of all users", over.AllAccounts, cli.AllAccounts, sorted)
	own := func(s slurm.Source) func(context.Context) (accounts, error) {
		return func(ctx context.Context) (accounts, error) { return s.Accounts(ctx, "devcluster", me.Username) }
	}
	same(t, "accounts of one user", own(over), own(cli), sorted)
	same(t, "QOS", over.QOS, cli.QOS, func(list []run.QOS) []run.QOS {
		slices.SortFunc(list, func(a, b run.QOS) int { return strings.Compare(a.Name, b.Name) })
		return list
	})
	said, err := cli.Probe(t.Context())
	must(t, err)
	for _, p := range []slurm.Probe{probe, said} {
		a := p.Config
		if clock := a.Value.Clock; clock.Before(a.At.Add(-5*time.Second)) || clock.After(a.Answered.Add(5*time.Second)) {
			t.Errorf("slurmctld's clock is %s, asked for from %s to %s", clock, a.At, a.Answered)
		}
	}
	a, b := probe.Config.Value, said.Config.Value
	if a.Name() != b.Name() || probe.Release != said.Release || !strings.Contains(probe.ControllerText, "UP") {
		t.Errorf("slurmrestd says %+v, and the commands %+v; want one cluster name and release, the controller UP", probe, said)
	}
}

// same queries both ways and compares the answers after plain.
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

// A query of the queue costs slurmctld one RPC, however many jobs there are, and the budget counts no less than
// slurmctld does.
//
// slurmrestd: all of it
func TestClusterCostOverREST(t *testing.T) {
	over, _ := overREST(t)
	ask := func(what string, most int, f func() error) {
		t.Helper()
		costs(t, over.Budget, what, most, f)
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
	ask("partitions", 3, func() error { _, err := slurm.Partitions(t.Context(), over); return err })
	ask("a snapshot", 4, func() error { _, err := slurm.Describe(t.Context(), over, ""); return err })
	ask("accounting", 0, func() error { _, err := over.Records(t.Context(), time.Now().Add(-time.Hour)); return err })
}

// A query of the queue with Slurm's commands costs slurmctld two RPCs, and the budget counts no less than slurmctld
// does.
func TestClusterCostOfCommands(t *testing.T) {
	cli := commands(t, "/usr/bin/apptainer")
	costs(t, cli.Budget, "squeue", 2, func() error { _, err := cli.Jobs(t.Context(), nil); return err })
}

// costs fails the test if f costs slurmctld more RPCs than these, or more than the budget counts.
func costs(t *testing.T, budget func() run.Budget, what string, most int, f func() error) {
	t.Helper()
	me, err := user.Current()
	must(t, err)
	must(t, f()) // connections are made and proven
	before, counted := rpcsOf(t, me.Username), budget().Total
	must(t, f())
	asked, spent := rpcsOf(t, me.Username)-before, budget().Total-counted
	if asked > most || int64(asked) > spent {
		t.Errorf("%s: slurmctld counts %d RPCs, want at most %d; the budget counts %d", what, asked, most, spent)
	}
}

// rpcsOf returns the number of a user's RPCs that slurmctld has served, without those of sdiag. slurmctld counts an RPC
// after its answer, so this reads until the number stays the same.
func rpcsOf(t *testing.T, name string) int {
	t.Helper()
	for n := readRPCs(t, name); ; {
		before := n
		if n = readRPCs(t, name); n == before {
			return n
		}
	}
}

func readRPCs(t *testing.T, name string) int {
	t.Helper()
	out, err := exec.Command("/usr/bin/sdiag").Output()
	must(t, err)
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\S+)\s+\(\s*\d+\)\s+count:(\d+)`).FindAllStringSubmatch(string(out), -1) {
		count[m[1]], err = strconv.Atoi(m[2])
		must(t, err)
	}
	if count[name] == 0 {
		t.Fatalf("sdiag does not count %s", name)
	}
	return count[name] - count["REQUEST_STATS_INFO"] // no one else runs sdiag here
}
