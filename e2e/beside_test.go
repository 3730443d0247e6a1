package e2e

import (
	"fmt"
	"os"
	"testing"
)

// A gateway on a host beside the cluster: it sees the cluster's filesystem, and Slurm's commands run on a login node over SSH. Its gateway
// is killed, and replays are answered by the next one.
//
// proves SITE-01 SITE-02
func TestGatewayBesideTheCluster(t *testing.T) {
	t.Parallel()
	h := sshOf(t)
	s := newSite(t, "probing")
	for name, from := range map[string]string{"key": h.Key, "known_hosts": h.KnownHosts} {
		data, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(host(s.dir)+"/"+name, data, 0o600))
	}
	must(t, giveToLab(host(s.dir)))
	s.replace("site.yaml", "transport: cli", fmt.Sprintf("transport: ssh\n  ssh: {host: %s, port: %d, user: lab, key: %s/key, "+
		"known_hosts: [%s/known_hosts]}", h.Login2.Address, h.Login2.Port, s.dir, s.dir))
	gateway := s.serve()
	doc := probePlan("write", "out/result", "beside")
	first := s.submit(doc)
	if l := s.wait(first.RunID); l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != "beside" {
		t.Errorf("%+v", l)
	}
	if l := s.wait(s.submit(probePlan("exit", "3")).RunID); l.State != "failed" || l.ExitCode == nil || *l.ExitCode != 3 {
		t.Errorf("%+v", l)
	}
	held, release := s.waiting(probePlan("write", "out/result", "after the gateway died"))
	doomed, _ := s.waiting(probePlan("write", "out/result", "never"))
	s.ok(nil, "cancel", doomed)

	gateway.signal("KILL")
	gateway.ended(t)
	release()
	s.serve()
	if again := s.submit(doc); !again.Replayed || again.RunID != first.RunID {
		t.Errorf("%+v", again)
	}
	if l := s.wait(held); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
	if l := s.wait(doomed); l.State != "cancelled" {
		t.Errorf("%+v", l)
	}
	if n := len(jobsNamed(t, s.story(held).JobName)); n != 1 {
		t.Errorf("the run that was under way when the gateway died has %d jobs", n)
	}
	if ends := shell(t, "lab", `find "$1"/runs -name 'send.*.end' | wc -l`, s.dir); ends != "4\n" && ends != "4" {
		t.Errorf("%s sends were made by the login node's shell, of 4", ends)
	}
}
