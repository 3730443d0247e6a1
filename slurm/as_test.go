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
)

// asUser is a user's transport beside that of the service.
func asUser(t *testing.T, service *CLI, user string) *CLI {
	t.Helper()
	s := sshtest.Serve(t, "")
	host, err := remote.New(remote.Config{Address: s.Address, User: user, KnownHosts: []string{s.Known}, Key: s.Key},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	c, err := service.As(host, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The first send of a new user costs what any send costs: what the service knows of Slurm is not asked again, and all users spend from the
// service's budget.
//
// proves SITE-08
func TestAsUserCostsNoMore(t *testing.T) {
	service, job, work := sender(t, "echo 5")
	service.cfg.Cluster, service.cfg.AllUsers = "ours", true
	asked := func(name string) int { return strings.Count(string(value(os.ReadFile(work+"/asked"))), name) }
	tool := func(name, answer string) {
		text := "#!/bin/bash\necho " + name + " >>" + work + "/asked\n" + answer
		if err := os.WriteFile(filepath.Join(work, "bin", name+".new"), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(work, "bin", name+".new"), filepath.Join(work, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	tool("scontrol", "echo 'ClusterName = ours'\necho 'MessageTimeout = 10 sec'\n")
	tool("scancel", "echo slurm 24.11.5\n")
	if err := service.CheckCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
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
		if err := c.Pace(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		return c.Send(t.Context(), job, k)
	}
	users := []*CLI{asUser(t, service, "alice"), asUser(t, service, "bob")}
	for _, c := range users {
		for range 2 {
			before := service.Budget().Total
			if res := send(c); res.Outcome != run.SendAccepted {
				t.Fatalf("%+v", res)
			}
			t.Logf("a send of %s costs %d RPC", c.cfg.User, service.Budget().Total-before)
		}
		if err := c.Cancel(t.Context(), "5", job.JobName); err != nil {
			t.Error(err)
		}
	}
	if n := service.Budget().Total - began; n != 4*rpcSend+2*rpcCancelCtld || asked("scontrol") != 1 {
		t.Errorf("two users cost %d RPCs, and the cluster was asked %d times", n, asked("scontrol"))
	}

	// The service follows a change; a user's host follows it.
	tool("scontrol", "echo 'ClusterName = Ours'\n")
	if res := send(users[0]); res.Outcome != run.SendAccepted || asked("scontrol") != 2 {
		t.Errorf("%+v, asked %d times", res, asked("scontrol"))
	}
	// A host with other files than the service's is asked by itself, once.
	service.farState.text = "other files"
	for range 2 {
		if res := send(users[1]); res.Outcome != run.SendAccepted || asked("scontrol") != 3 {
			t.Errorf("%+v, asked %d times", res, asked("scontrol"))
		}
	}
	// Nothing is sent where the service's own commands talk to another cluster.
	tool("scontrol", "echo 'ClusterName = theirs'\n")
	if res := send(users[0]); res.Outcome != run.SendNotRun || res.Code != run.WrongCluster || starts(work) != 7 {
		t.Errorf("%+v, %d starts", res, starts(work))
	}
}

// A user's answers reach nothing that the service or another user knows.
//
// proves SITE-08
func TestAsUserTeachesNothing(t *testing.T) {
	service, job, work := sender(t, "echo 5")
	service.cfg.Cluster = "ours"
	text := "#!/bin/bash\necho 'ClusterName = ours'\necho 'MessageTimeout = 10 sec'\n"
	if err := os.WriteFile(filepath.Join(work, "bin/scontrol"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := service.CheckCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	alice := asUser(t, service, "alice")
	alice.moved(value(service.farProof(t.Context())))
	alice.runner = &fakeRunner{answers: map[string]Output{}}
	alice.runner.(*fakeRunner).answer("scontrol show config", Output{Stdout: []byte("ClusterName = theirs\nMessageTimeout = 999999 sec\n")})
	if res := alice.Send(t.Context(), job, 1); res.Code != run.WrongCluster {
		t.Errorf("%+v", res)
	}
	if d, err := service.MessageTimeout(t.Context()); err != nil || d.Seconds() != 10 {
		t.Errorf("MessageTimeout %v %v", d, err)
	}
	bob := asUser(t, service, "bob")
	if res := bob.Send(t.Context(), job, 2); res.Outcome != run.SendAccepted {
		t.Errorf("%+v", res)
	}
	if err := service.CheckCluster(t.Context()); fault.CodeOf(err) == run.WrongCluster {
		t.Error(err)
	}
}
