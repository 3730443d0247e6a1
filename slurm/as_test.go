package slurm

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/remote/sshtest"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// asUser returns a user's transport that shares the state of the service.
func asUser(t *testing.T, service *CLI, user string) *CLI {
	t.Helper()
	s := sshtest.Serve(t, "")
	host, err := remote.New(remote.Config{Address: s.Address, User: user, KnownHosts: []string{s.Known}, Key: s.Key},
		slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(host.Close)
	c, err := service.As(host, "", "")
	must(t, err)
	return c
}

// The first send of a new user costs no more than any other: the service's knowledge of Slurm is reused, and all users
// spend from the service's budget.
//
// proves SITE-08
func TestAsUserCostsNoMore(t *testing.T) {
	service, job, work := sender(t, "echo 5")
	service.cfg.Cluster, service.cfg.AllUsers = "ours", true
	asked := func(name string) int { return strings.Count(string(value(os.ReadFile(work+"/asked"))), name) }
	tool := func(name, answer string) {
		text := "#!/bin/bash\necho " + name + " >>" + work + "/asked\n" + answer
		must(t, os.WriteFile(filepath.Join(work, "bin", name+".new"), []byte(text), 0o700))
		must(t, os.Rename(filepath.Join(work, "bin", name+".new"), filepath.Join(work, "bin", name)))
	}
	tool("scontrol", "echo 'ClusterName = ours'\necho 'MessageTimeout = 10 sec'\n")
	tool("scancel", "echo slurm 24.11.5\n")
	must(t, service.CheckCluster(t.Context()))
	if _, err := service.cancelsByName(t.Context()); err != nil {
		t.Fatal(err)
	}
	if one := asUser(t, service, "alice"); one.cfg.AllUsers || one.cfg.User != "alice" {
		t.Errorf("a user's transport is about %q, of all users: %v", one.cfg.User, one.cfg.AllUsers)
	}
	began := service.Budget().Total
	k := 0
	send := func(c *CLI) run.SendResult {
		t.Helper()
		k++
		must(t, c.Pace(t.Context(), true))
		return c.Send(t.Context(), job, k)
	}
	users := []*CLI{asUser(t, service, "alice"), asUser(t, service, "bob")}
	for _, c := range users {
		for range 2 {
			before := service.Budget().Total
			runtest.WantSend(t, send(c), run.SendAccepted, "")
			t.Logf("a send of %s costs %d RPC", c.cfg.User, service.Budget().Total-before)
		}
		must(t, c.Cancel(t.Context(), "5", job.JobName, ""))
	}
	if n := service.Budget().Total - began; n != 4*rpcSend+2*rpcCancelCtld || asked("scontrol") != 1 {
		t.Errorf("two users cost %d RPCs, and the cluster was asked %d times", n, asked("scontrol"))
	}

	// The service detects a change, and so does a user's host.
	tool("scontrol", "echo 'ClusterName = Ours'\n")
	runtest.WantSend(t, send(users[0]), run.SendAccepted, "")
	runtest.WantCount(t, "scontrol", asked("scontrol"), 2)
	// A host whose files differ from the service's is asked separately, once.
	service.farState.text = "other files"
	for range 2 {
		runtest.WantSend(t, send(users[1]), run.SendAccepted, "")
		runtest.WantCount(t, "scontrol", asked("scontrol"), 3)
	}
	// Nothing is sent where the service's own commands talk to another cluster.
	tool("scontrol", "echo 'ClusterName = theirs'\n")
	runtest.WantSend(t, send(users[0]), run.SendNotRun, run.WrongCluster)
	runtest.WantCount(t, "sbatch", starts(work), 7)
}

// A user's answers do not change what the service or another user knows.
//
// proves SITE-08
func TestAsUserTeachesNothing(t *testing.T) {
	service, job, work := sender(t, "echo 5")
	service.cfg.Cluster = "ours"
	text := "#!/bin/bash\necho 'ClusterName = ours'\necho 'MessageTimeout = 10 sec'\n"
	must(t, os.WriteFile(filepath.Join(work, "bin/scontrol"), []byte(text), 0o700))
	must(t, service.CheckCluster(t.Context()))
	alice := asUser(t, service, "alice")
	alice.moved(value(service.farProof(t.Context())))
	alice.runner = &fakeRunner{answers: map[string]Output{}}
	alice.runner.(*fakeRunner).answer("scontrol show config", Output{Stdout: []byte("ClusterName = theirs\nMessageTimeout = 999999 sec\n")})
	if res := alice.Send(t.Context(), job, 1); res.Code != run.WrongCluster {
		t.Errorf("with another cluster's name the send ended as %s, want the wrong cluster", sendText(res))
	}
	if d, err := service.MessageTimeout(t.Context()); err != nil || d.Seconds() != 10 {
		t.Errorf("MessageTimeout %v %v", d, err)
	}
	bob := asUser(t, service, "bob")
	runtest.WantSend(t, bob.Send(t.Context(), job, 2), run.SendAccepted, "")
	if err := service.CheckCluster(t.Context()); fault.CodeOf(err) == run.WrongCluster {
		t.Error(err)
	}
}
