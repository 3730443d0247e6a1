package e2e

import (
	"fmt"
	"os"
	"testing"
)

// A gateway on a host outside the cluster: it has the cluster's filesystem, and Slurm's commands run on a login node
// over SSH.
//
// proves SITE-01 SITE-02
func TestGatewayBesideTheCluster(t *testing.T) {
	t.Parallel()
	h := sshOf(t)
	s := newSite(t, "probing")
	for name, from := range map[string]string{"key": h.Key, "known_hosts": h.KnownHosts} {
		data := value(os.ReadFile(from))(t)
		must(t, os.WriteFile(host(s.dir)+"/"+name, data, 0o600))
	}
	must(t, giveToLab(host(s.dir)))
	s.replace("site.yaml", "transport: cli", fmt.Sprintf("transport: ssh\n  ssh: {host: %s, port: %d, user: lab, key: %s/key, "+
		"known_hosts: [%s/known_hosts]}", h.Login2.Address, h.Login2.Port, s.dir, s.dir))
	goesOn(t, s, "ssh", false)
}
