package setup_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
	"slurmgate/remote/sshtest"
	"slurmgate/setup"
	"slurmgate/site"
)

// asked returns an admin's options for a cluster behind an SSH server. The first Find with them is refused: the host
// key is unknown.
func asked(t *testing.T, s *sshtest.Server, bin string) setup.Asked {
	t.Helper()
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	must(t, os.Mkdir(shared, 0o700))
	return setup.Asked{Site: filepath.Join(dir, "etc/site.yaml"), Shared: shared, StateDir: filepath.Join(dir, "state"), User: "daemon",
		BinDir: bin, SSH: "svc@" + s.Address, Key: s.Key}
}

func codes(err error) (list []string) {
	for _, p := range fault.ProblemsOf(err) {
		list = append(list, p.Code)
	}
	return list
}

// With SSH the login node is read instead of this host. Its host key is shown and not trusted until the admin
// confirms the fingerprint; then known_hosts has it, and the site file names that file. No file is overwritten.
//
// proves OPS-01 SITE-03
func TestClusterOverSSH(t *testing.T) {
	s := sshtest.Serve(t, "echo Welcome")
	a := asked(t, s, ordinary().install(t))
	_, err := setup.Find(t.Context(), a)
	print := ssh.FingerprintSHA256(s.HostKey.PublicKey())
	if got := codes(err); !slices.Equal(got, []string{"SETUP-TRUST"}) || !strings.Contains(err.Error(), print) || s.Logins.Load() != 0 {
		t.Fatalf("%v: %v; %d logins", got, err, s.Logins.Load())
	}
	a.Trust = []string{"SHA256:" + strings.Repeat("A", 43)}
	if _, err := setup.Find(t.Context(), a); !slices.Equal(codes(err), []string{"SETUP-TRUST"}) || s.Logins.Load() != 0 {
		t.Fatal(err)
	}
	a.Trust = append(a.Trust, print)
	found, err := setup.Find(t.Context(), a)
	if err != nil {
		t.Fatal(fault.ProblemsOf(err), err)
	}
	files, err := setup.Compose(found, time.Unix(1_800_000_000, 0))
	must(t, err)
	known := filepath.Join(filepath.Dir(a.Site), "known_hosts")
	if _, err := os.Stat(known); err == nil {
		t.Error("a look wrote known_hosts")
	}
	must(t, setup.Write(found, files))
	c, err := site.Load(a.Site)
	if err != nil {
		t.Fatalf("%v\n%s", err, files.Site)
	}
	to := c.Slurm.SSH
	if !c.FarSlurm() || !c.FarFiles() || to.Address() != s.Address || to.User != "svc" || to.Key != s.Key ||
		!slices.Equal(to.KnownHosts, []string{known}) || c.Slurm.Cluster != "Alpha" || c.Slurm.DefaultAccount != "lab-a" {
		t.Errorf("slurm.ssh: %s@%s with key %s and %v; want svc@%s with %s and %s; the site file:\n%s", to.User, to.Address(), to.Key,
			to.KnownHosts, s.Address, s.Key, known, files.Site)
	}
	if !strings.Contains(files.Commands[len(files.Commands)-1], "svc@127.0.0.1 install -d -m 700 "+c.Storage.RunsDir) {
		t.Error(files.Commands)
	}
	a.Trust = nil // known_hosts has it
	if found, err = setup.Find(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := setup.Write(found, files); fault.CodeOf(err) != "file_exists" {
		t.Error(err)
	}
	if text, err := os.ReadFile(known); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%q %v", text, err)
	}
	a.Files = "shared"
	if found, err = setup.Find(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if files, err = setup.Compose(found, time.Now()); err != nil || strings.Contains(files.Site, "sftp") {
		t.Errorf("%v\n%s", err, files.Site)
	}
}

// All missing options for a remote cluster are reported together, each by its name.
func TestWhatIsMissingOverSSH(t *testing.T) {
	s := sshtest.Serve(t, "")
	bin := ordinary().install(t)
	for name, x := range map[string]struct {
		change func(*setup.Asked)
		want   string
	}{
		"no key":                {func(a *setup.Asked) { a.Key = "" }, "SETUP-KEY"},
		"no host":               {func(a *setup.Asked) { a.SSH = "@" }, "SETUP-SSH"},
		"a port that is none":   {func(a *setup.Asked) { a.SSH = "login:ssh" }, "SETUP-SSH"},
		"a jump host of spaces": {func(a *setup.Asked) { a.Jump = []string{"a b"} }, "SETUP-JUMP"},
		"no user, no key":       {func(a *setup.Asked) { a.User, a.Key = "nobody-of-this-name", "" }, "SETUP-USER SETUP-KEY"},
		"no commands":           {func(a *setup.Asked) { a.BinDir = "" }, "SETUP-BIN-DIR"},
		"no folder":             {func(a *setup.Asked) { a.Shared = "/no/such/folder" }, "SETUP-SHARED"},
		"no account":            {func(a *setup.Asked) { a.Account, a.Shared = "lab-z", "/no/such/folder" }, "SETUP-ACCOUNT SETUP-SHARED"},
	} {
		t.Run(name, func(t *testing.T) {
			a := asked(t, s, bin)
			a.Trust = []string{ssh.FingerprintSHA256(s.HostKey.PublicKey())}
			x.change(&a)
			_, err := setup.Find(t.Context(), a)
			if got := strings.Join(codes(err), " "); got != x.want {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
	a := asked(t, s, bin)
	s.Deaf.Store(true)
	if _, err := setup.Find(t.Context(), a); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}
