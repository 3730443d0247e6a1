package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/app"
	"slurmgate/policy"
	"slurmgate/remote"
	"slurmgate/remote/sshtest"
	"slurmgate/site"
	"slurmgate/slurm"
)

// What callers may charge by Slurm's associations: whether they can be read, and what will be refused.
//
// proves OPS-02
func TestCallerAccounts(t *testing.T) {
	const known = "alice|teaching|alpha|teaching||||\nalice|teaching|alpha|research||||\nlab|research|alpha|research||||\n"
	peer := func(user, group string, capabilities ...string) site.Peer {
		return site.Peer{User: user, Group: group, Capabilities: capabilities, Projects: []string{"*"}}
	}
	granted := peer("carol", "", "slurm")
	granted.Accounts = []site.Account{{Project: "*", Account: "research"}}
	for name, c := range map[string]struct {
		accounts string // slurm.accounts; associations when empty
		answer   string // of sacctmgr
		peers    []site.Peer
		def      string // slurm.default_account; research when empty
		allowed  []string
		lax      bool // Slurm enforces no associations
		want     app.CheckStatus
		found    string
	}{
		"not used": {accounts: "site", answer: "", want: app.CheckOK, found: "slurm.accounts: site"},
		"all is well": {answer: known, want: app.CheckOK, found: "2 users",
			peers: []site.Peer{peer("lab", "", "*"), granted, peer("dave", "", "read")}},
		"slurmdbd is down": {answer: "fail", want: app.CheckFault, found: "Connection refused"},
		"another cluster":  {answer: "alice|x|beta|x||||\n", want: app.CheckFault, found: "no association of the cluster alpha"},
		"hidden":           {answer: "lab|research|alpha|research||||\n", want: app.CheckWarning, found: "only the associations of lab"},
		"no such default": {answer: known, def: "other", want: app.CheckFault,
			found: "no user of the cluster alpha has an association with the account other"},
		"a stranger": {answer: known, peers: []site.Peer{peer("dave", "", "gateway", "slurm")}, want: app.CheckWarning,
			found: "access.peers lets dave start runs"},
		"the service lacks": {answer: known, peers: []site.Peer{peer("alice", "", "*")}, want: app.CheckWarning,
			found: "lab, to whom all jobs belong, has no association with the account teaching, which alice may charge"},
		"a group's member": {answer: known, peers: []site.Peer{peer("", "users", "slurm")}, want: app.CheckWarning,
			found: "account teaching, which alice"},
		"policy forbids it": {answer: known, peers: []site.Peer{peer("alice", "", "*")}, allowed: []string{"research"}, want: app.CheckOK,
			found: "2 users"},
		"nobody enforces": {answer: known, peers: []site.Peer{peer("alice", "", "*")}, lax: true, want: app.CheckOK, found: "2 users"},
	} {
		bin := t.TempDir()
		script := "cat <<'.'\n" + c.answer + ".\n"
		if c.answer == "fail" {
			script = "echo 'sacctmgr: error: Sending PersistInit msg: Connection refused' >&2; exit 1\n"
		}
		for program, text := range map[string]string{"sacctmgr": script, "scontrol": "echo 'ClusterName = alpha'\n"} {
			must(t, os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"+text), 0o700))
		}
		cli, err := slurm.NewCLI(slurm.Config{BinDir: bin, Cluster: "alpha", User: "lab", LocksDir: bin, RPCPerMinute: 6000})
		must(t, err)
		s := &site.Site{Slurm: site.Slurm{Accounts: "associations", Cluster: "alpha", DefaultAccount: "research"},
			Access: site.Access{Peers: c.peers}}
		if c.accounts != "" {
			s.Slurm.Accounts = c.accounts
		}
		if c.def != "" {
			s.Slurm.DefaultAccount = c.def
		}
		x := exam(s)
		x.Slurm, x.User.name, x.Policy = cli, "lab", &policy.Policy{}
		if c.allowed != nil {
			x.Policy.Slurm.Accounts = &c.allowed
		}
		x.Snapshot.Config.Value.Values = map[string]string{"AccountingStorageEnforce": "associations,limits"}
		if c.lax {
			x.config().Values["AccountingStorageEnforce"] = "none"
		}
		got := callerAccounts(t.Context(), x)
		if !slices.ContainsFunc(got, func(r Result) bool { return r.Status == c.want && strings.Contains(r.Found, c.found) }) || len(got) != 1 {
			t.Errorf("%s: %s", name, fmt.Sprint(got))
		}
	}
}

// farExam returns an examination of a cluster whose login node is a server of the tests.
func farExam(t *testing.T, s *sshtest.Server) *Exam {
	t.Helper()
	host, err := remote.New(remote.Config{Address: s.Address, User: "svc", KnownHosts: []string{s.Known}, Key: s.Key},
		slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(host.Close)
	to := func() (*remote.Host, error) { return host, nil }
	x := Config{}.exam()
	x.Ways = Ways{Login: to, Data: to, Shell: to, ScriptHost: "login", Files: func(ctx context.Context, f func(*sftp.Client) error) error {
		c, err := host.SFTP(ctx)
		if err != nil {
			return err
		}
		return errors.Join(f(c), c.Close())
	}}
	ssh := site.SSH{Endpoint: site.Endpoint{Host: "login"}}
	x.Cluster = &site.Site{Slurm: site.Slurm{Transport: site.TransportSSH, SSH: &ssh},
		Storage: site.Storage{Transport: site.TransportSFTP, RunsDir: t.TempDir()}}
	x.Cluster.Storage.SFTP = &site.SFTP{SSH: ssh, RunsDir: x.Cluster.Storage.RunsDir}
	return x
}

// A clock elsewhere is compared with the time between question and answer, so a slow way is no difference.
//
// proves OPS-02
func TestFarClocks(t *testing.T) {
	t.Parallel()
	s := sshtest.Serve(t, "sleep 0.5")
	for name, look := range map[string]func(context.Context, *Exam) []Result{"login node": loginClock,
		"files": func(ctx context.Context, x *Exam) []Result { return farRuns{x}.clock(ctx) }} {
		for off, want := range map[time.Duration]struct {
			status app.CheckStatus
			found  string
		}{0: {app.CheckOK, "agrees"},
			20 * time.Second: {app.CheckWarning, "behind this host's"}, -20 * time.Second: {app.CheckWarning, "ahead of"},
			2 * time.Hour: {app.CheckFault, "behind this host's"}, -2 * time.Hour: {app.CheckFault, "ahead of"}} {
			x := farExam(t, s)
			x.Now = func() time.Time { return time.Now().Add(off) }
			if r := look(t.Context(), x); len(r) != 1 || r[0].Status != want.status || !strings.Contains(r[0].Found, want.found) {
				t.Errorf("%s, %v: results %+v", name, off, r)
			}
		}
		x, slow := farExam(t, s), time.Now()
		x.Now = func() time.Time { // the question takes twenty seconds
			defer func() { slow = slow.Add(20 * time.Second) }()
			return slow
		}
		if r := look(t.Context(), x); r[0].Status != app.CheckOK {
			t.Errorf("%s over a slow way: results %+v", name, r)
		}
	}
}
