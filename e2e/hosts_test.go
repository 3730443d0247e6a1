package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/remote"
)

// The hosts that the tests of SSH and SFTP are about are what these tests think: two login nodes with the same homes and /shared, another
// name, boot id and processes, and a data host that has /shared under another path, and neither Slurm nor the homes.
func TestHostsOfCluster(t *testing.T) {
	login, dtn, info := farHosts(t)
	login2 := info.host(t, info.Login2.Address, info.Login2.Port)
	ask := func(h *remote.Host, script string, args ...string) string {
		t.Helper()
		out, err := h.Run(t.Context(), remote.Call{Script: script, Args: args, Limit: 1 << 16})
		must(t, err)
		return strings.TrimSpace(string(out.Stdout))
	}

	const boot = "cat /proc/sys/kernel/random/boot_id"
	for host, name := range map[*remote.Host]string{login: "login", login2: "login2", dtn: "dtn"} {
		if got := ask(host, "hostname; id -un"); got != name+"\nlab" {
			t.Errorf("%s is %q", name, got)
		}
	}
	if ask(login, boot) == ask(login2, boot) {
		t.Error("both login nodes have one boot id")
	}

	shell(t, "lab", `echo here >~/probe; mkdir "$1"; echo shared >"$1/probe"; sleep 99 </dev/null >/dev/null 2>&1 & echo $! >"$1/pid"`,
		world.dir+"/hosts")
	pid := shell(t, "lab", `cat "$1/hosts/pid"`, world.dir)
	t.Cleanup(func() { shell(t, "lab", `kill "$1"; rm ~/probe`, pid) })
	const sees = `cat ~/probe; cat "$1/hosts/probe"; squeue --noheader --name=none && echo slurm`
	for host, want := range map[*remote.Host]string{login: "here\nshared\nslurm", login2: "here\nshared\nslurm", dtn: ""} {
		if got := ask(host, sees, world.dir); got != want {
			t.Errorf("%s sees %q", host.Name(), got)
		}
	}
	for host, want := range map[*remote.Host]string{login: "sleep", login2: ""} {
		if got := ask(host, `ps -p "$1" -o comm=`, pid); got != want {
			t.Errorf("%s has the process %q", host.Name(), got)
		}
	}
	if got := ask(dtn, `cat "$1/hosts/probe"`, info.DTN.Shared+strings.TrimPrefix(world.dir, "/shared")); got != "shared" {
		t.Errorf("the data host sees %q below %s", got, info.DTN.Shared)
	}
}

// The faults of devd are those of their names, on one host alone, and over when they are undone.
func TestFaultsOfHosts(t *testing.T) {
	login, dtn, info := farHosts(t)
	works := func(h *remote.Host) error {
		_, err := h.Run(t.Context(), remote.Call{Script: "true"})
		return err
	}
	must(t, works(dtn))
	was, err := dtn.Connection(t.Context())
	must(t, err)
	before, err := login.Connection(t.Context())
	must(t, err)
	shell(t, "root", "devd cut sshd")
	until(t, 20e9, "new connection", func() bool {
		now, err := login.Connection(t.Context())
		return err == nil && now != before && works(login) == nil
	})
	must(t, works(dtn))
	if now, err := dtn.Connection(t.Context()); err != nil || now != was {
		t.Errorf("the data host was cut off too: %v", err)
	}

	shell(t, "root", "devd block sshd-dtn")
	soon, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	_, err = info.host(t, info.DTN.Address, info.DTN.Port).Run(soon, remote.Call{Script: "true"})
	if err == nil {
		t.Error("a host without network answers")
	}
	must(t, works(login))
	shell(t, "root", "devd unblock sshd-dtn")
	must(t, works(dtn))

	t.Cleanup(func() { shell(t, "root", "devd restart sshd") })
	shell(t, "root", "devd restart sshd -h /etc/devcluster/ssh/other_host")
	if err := works(info.host(t, info.Login.Address, info.Login.Port)); fault.CodeOf(err) != remote.BadHostKey {
		t.Errorf("another host key: %v", err)
	}
	must(t, works(dtn))
	shell(t, "root", "devd restart sshd")
	must(t, works(info.host(t, info.Login.Address, info.Login.Port)))
}
