package e2e

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/remote"
	"slurmgate/remote/sshtest"
)

// userAt returns the settings to log in as a user with a certificate of the cluster's authority for callers.
func userAt(t testing.TB, user string) remote.Config {
	t.Helper()
	info := sshOf(t)
	text := value(os.ReadFile(info.Callers.CAKeyHere))(t)
	authority := value(ssh.ParsePrivateKey(text))(t)
	c := info.at(info.Login, user)
	c.Key = ""
	c.Credentials = sshtest.Credentials(authority, user, 5*time.Minute)
	return c
}

// plantFile writes a file in a user's home, which the end of the test removes.
func plantFile(t *testing.T, user, name, text string) {
	t.Helper()
	c := inCluster(user, "bash", "-euc", `cd; mkdir -p "$(dirname "$1")"; cat >"$1"; chmod 700 "$1"`, "bash", name)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("the file %s of %s cannot be written: %v: %s", name, user, err, out)
	}
	t.Cleanup(func() { shell(t, "root", `rm -rf "/home/$1/$2"`, user, name) })
}

// With any start-up files of a user, calls as that user end soon with little memory, and other users notice nothing. An
// unusual environment does no harm; a user who forges answers can, to that user's own calls.
//
// proves SITE-08
func TestStartUpFilesOfAUser(t *testing.T) {
	const honest, notStarted, forged = "honest", "not started", "forged"
	bob := hostAt(t, userAt(t, "bob"))
	call := func(h *remote.Host, patience time.Duration) (string, error) {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		out, err := h.Run(ctx, remote.Call{Script: `printf "honest %s" "$(umask)"`, Limit: 1000, Once: true})
		return string(out.Stdout), err
	}
	fakes := `mkdir -p ~/fakes; for c in sbatch squeue scancel env base64 sh printf setsid timeout; do
  /bin/echo '#!/bin/sh
echo forged' >~/fakes/$c; /bin/chmod 700 ~/fakes/$c; done; export PATH=~/fakes ENV=~/fakes/env BASH_ENV=~/fakes/env
`
	for name, x := range map[string]struct {
		file, text, want string
	}{
		"own commands": {".bashrc", fakes, honest},
		"aliases, functions": {".bashrc", `alias printf=false base64=false; base64() { echo forged; }; env() { echo forged; }
export -f base64 env; umask 0`, honest},
		"small limits":       {".bashrc", "ulimit -n 20; ulimit -c 0; set -o noclobber; cd /; IFS=x", honest},
		"prints":             {".bashrc", "echo 'Last login: today'; echo x >&2", honest},
		"rc":                 {".ssh/rc", "echo hello; echo hello >&2", honest},
		"hanging rc":         {".ssh/rc", "sleep 600", honest}, // a certificate without permit-user-rc
		"hangs":              {".bashrc", "sleep 600", notStarted},
		"floods":             {".bashrc", "yes", notStarted},
		"floods complaints":  {".bashrc", "yes >&2", notStarted},
		"kills its shell":    {".bashrc", "kill -9 $$", notStarted},
		"closes the channel": {".bashrc", "exec <&- >&- 2>&-", notStarted},
		"forges": {".bashrc", `while IFS= read -r line; do case $line in sg_*) m=${line#sg_}; m=${m%%=*}; break ;; esac; done
printf '\n%s begin\n' $m; printf '\n%s begin\n' $m >&2; read -r go
printf forged; printf '\n%s end 0\n' $m; printf '\n%s end 0\n' $m >&2; exit`, forged},
		"answers without end": {".bashrc", `while IFS= read -r line; do case $line in sg_*) m=${line#sg_}; m=${m%%=*}; break ;; esac; done
printf '\n%s begin\n' $m; printf '\n%s begin\n' $m >&2; yes`, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			plantFile(t, "alice", x.file, x.text)
			alice := hostAt(t, userAt(t, "alice"))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			type answer struct {
				text string
				err  error
			}
			got := make(chan answer, 1)
			patience := time.Minute
			if name == "hangs" { // what else has no answer ends by itself
				patience = 2 * time.Second
			}
			go func() {
				text, err := call(alice, patience)
				got <- answer{text, err}
			}()
			if text, err := call(bob, time.Minute); err != nil || text != "honest 0077" {
				t.Errorf("another user: %q %v", text, err)
			}
			a := <-got
			switch {
			case x.want == honest && (a.err != nil || a.text != "honest 0077"),
				x.want == forged && (a.err != nil || a.text != "forged"),
				x.want == notStarted && !remote.NotStarted(a.err),
				x.want == "too long" && (a.err == nil || remote.NotStarted(a.err)):
				t.Errorf("a call of the user answers %q (%v), want: %s", a.text, a.err, x.want)
			}
			runtime.ReadMemStats(&after)
			if more := int64(after.Sys) - int64(before.Sys); more > 64<<20 {
				t.Errorf("it took %d MiB", more>>20)
			}
		})
	}
}
