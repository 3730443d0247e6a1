package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/remote"
)

// These tests hold package remote against OpenSSH; its own tests do so against x/crypto's server. They restart sshd, so they do not run in
// parallel.

// at returns the settings to reach a server as a user.
func (i sshInfo) at(to server, user string) remote.Config {
	return remote.Config{Address: net.JoinHostPort(to.Address, fmt.Sprint(to.Port)), User: user, KnownHosts: []string{i.KnownHosts},
		Key: i.Key}
}

func hostAt(t testing.TB, c remote.Config) *remote.Host {
	t.Helper()
	h := value(remote.New(c, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(h.Close)
	return h
}

// sshd restarts sshd of the login node with options, until the end of the test.
func sshd(t *testing.T, options ...string) {
	t.Helper()
	restart := func(options ...string) {
		if out, err := inCluster("root", append([]string{"devd", "restart", "sshd"}, options...)...).CombinedOutput(); err != nil {
			t.Fatalf("devd restart sshd: %v\n%s", err, out)
		}
	}
	restart(options...)
	t.Cleanup(func() { restart() })
}

// proves SITE-02
func TestLoginShells(t *testing.T) {
	info := sshOf(t)
	args := []string{"a'b", "$HOME", "x\ny", "", "!!", "~", "\\", "é"}
	for _, user := range []string{"lab", "dash", "tcsh", "fish", "zsh", "noisy", "asks"} {
		if info.Users[user] == "" {
			t.Fatalf("the cluster has no user %s", user)
		}
		h := hostAt(t, info.at(info.Login, user))
		for _, once := range []bool{true, false} {
			out, err := h.Run(t.Context(), remote.Call{Script: `printf '<%s>' "$@"; exit 3`, Args: args, Limit: 1000, Once: once})
			if err != nil || string(out.Stdout) != "<"+strings.Join(args, "><")+">" || out.Stderr != "" || out.Exit != 3 {
				t.Errorf("%s (%s): %q %q %d %v", user, info.Users[user], out.Stdout, out.Stderr, out.Exit, err)
			}
		}
		h.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := hostAt(t, info.at(info.Login, "endless")).Run(ctx, remote.Call{Script: "true", Limit: 1, Once: true})
	if !remote.NotStarted(err) {
		t.Errorf("a profile that never ends: %v", err)
	}
	_, err = hostAt(t, info.at(info.Login, "sftponly")).Run(t.Context(), remote.Call{Script: "true", Limit: 1, Once: true})
	if !remote.NotStarted(err) {
		t.Errorf("a user without a shell: %v", err)
	}
}

// proves SITE-03
func TestHostKeysOfSSHD(t *testing.T) {
	info := sshOf(t)
	run := func(c remote.Config) error {
		h := hostAt(t, c)
		defer h.Close()
		_, err := h.Run(t.Context(), remote.Call{Script: "true", Limit: 1})
		return err
	}
	if err := run(info.at(info.Login, "lab")); err != nil {
		t.Errorf("a login with the host's known key: %v, want none", err)
	}
	through := info.at(info.Login, "lab")
	through.Jump = []remote.Config{info.at(info.DTN.server, "lab")}
	if err := run(through); err != nil {
		t.Errorf("through the data host: %v", err)
	}
	certified := info.at(info.Login, "lab")
	certified.KnownHosts = []string{info.KnownHostsCA}
	if err := run(certified); fault.CodeOf(err) != remote.BadHostKey {
		t.Errorf("a key without a certificate, where only an authority is known: %v", err)
	}
	t.Run("certificate", func(t *testing.T) {
		sshd(t, "-o", "HostCertificate=/etc/devcluster/ssh/login-cert.pub")
		if err := run(certified); err != nil {
			t.Errorf("a login where the host shows its certificate: %v, want no error", err)
		}
	})
	t.Run("changed", func(t *testing.T) {
		sshd(t, "-h", "/etc/devcluster/ssh/other_host")
		if err := run(info.at(info.Login, "lab")); fault.CodeOf(err) != remote.BadHostKey || !remote.NotStarted(err) {
			t.Errorf("a login where the host has another key: %v, want %s", err, remote.BadHostKey)
		}
	})
	t.Run("hashed", func(t *testing.T) {
		known := filepath.Join(t.TempDir(), "known_hosts")
		data, err := os.ReadFile(info.KnownHosts)
		if err == nil {
			err = os.WriteFile(known, data, 0o600)
		}
		must(t, err)
		if out, err := exec.Command("ssh-keygen", "-H", "-f", known).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen -H failed: %v\n%s", err, out)
		}
		c := info.at(info.Login, "lab")
		c.KnownHosts = []string{known}
		if err := run(c); err != nil {
			t.Errorf("a login with hashed names in known_hosts: %v, want no error", err)
		}
	})
}

// proves SITE-04
func TestLimitsOfSSHD(t *testing.T) {
	info := sshOf(t)
	many := func(t *testing.T) {
		h := hostAt(t, info.at(info.Login, "lab"))
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				out, err := h.Run(t.Context(), remote.Call{Script: `sleep 0.1; echo "$1"`, Args: []string{fmt.Sprint(i)}, Limit: 10})
				if err != nil || string(out.Stdout) != fmt.Sprintln(i) {
					t.Errorf("call %d of 16 at once answers %q (%v), want its number", i, out.Stdout, err)
				}
			})
		}
		all.Wait()
		if n, err := h.Connection(t.Context()); err != nil || n != 1 {
			t.Errorf("%d connections, %v", n, err)
		}
	}
	t.Run("none", many)
	t.Run("MaxSessions", func(t *testing.T) {
		sshd(t, "-o", "MaxSessions=2")
		many(t)
	})
	t.Run("MaxStartups", func(t *testing.T) {
		sshd(t, "-o", "MaxStartups=1:100:1")
		waiting, err := net.Dial("tcp", info.at(info.Login, "lab").Address) // takes the only place
		must(t, err)
		defer waiting.Close()
		h := hostAt(t, info.at(info.Login, "lab"))
		if _, err := h.Run(t.Context(), remote.Call{Script: "true", Limit: 1}); !remote.NotStarted(err) {
			t.Errorf("a login where sshd has no place: %v, want that nothing was started", err)
		}
		waiting.Close()
		working(t, h)
	})
	t.Run("connection", func(t *testing.T) {
		h := hostAt(t, info.at(info.Login, "lab"))
		working(t, h)
		if out, err := inCluster("root", "devd", "cut", "sshd").CombinedOutput(); err != nil {
			t.Fatalf("devd cut sshd: %v %s", err, out)
		}
		working(t, h)
		sshd(t)
		working(t, h)
	})
}

// working waits until the host can be used.
func working(t *testing.T, h *remote.Host) {
	t.Helper()
	until(t, "a call that the host answers", func() bool {
		_, err := h.Run(t.Context(), remote.Call{Script: "true", Limit: 1})
		return err == nil
	})
}
