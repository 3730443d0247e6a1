package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/remote/sshtest"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	farfiles "slurmgate/staging/sftp"
)

// userAt is how a user is logged in with a certificate of the cluster's authority for callers.
func userAt(t testing.TB, user string) remote.Config {
	t.Helper()
	var info struct {
		sshdInfo
		Callers struct {
			Key string `json:"ca_key_here"`
		}
	}
	out, err := exec.Command(filepath.Join(world.repo, "scripts/devcluster"), "--name", world.cluster, "ssh-info").Output()
	must(t, err)
	must(t, json.Unmarshal(out, &info))
	text, err := os.ReadFile(info.Callers.Key)
	must(t, err)
	authority, err := ssh.ParsePrivateKey(text)
	must(t, err)
	c := info.at(user)
	c.Key = ""
	c.Credentials = sshtest.Credentials(authority, user, 5*time.Minute)
	return c
}

func userHost(t testing.TB, c remote.Config) *remote.Host {
	t.Helper()
	h, err := remote.New(c, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(h.Close)
	return h
}

// plantFile writes a file in a user's home, which the end of the test removes.
func plantFile(t *testing.T, user, name, text string) {
	t.Helper()
	c := inCluster(user, "bash", "-euc", `cd; mkdir -p "$(dirname "$1")"; cat >"$1"; chmod 700 "$1"`, "bash", name)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { shell(t, "root", `rm -rf "/home/$1/$2"`, user, name) })
}

// Whatever a user's start-up files do, calls as that user end soon with little memory, and other users notice nothing. An unlucky
// environment does no harm; a user who forges answers can, to that user's own calls.
//
// proves SITE-08
func TestStartUpFilesOfAUser(t *testing.T) {
	const honest, notStarted, forged = "honest", "not started", "forged"
	bob := userHost(t, userAt(t, "bob"))
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
			alice := userHost(t, userAt(t, "alice"))
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
				t.Errorf("%q %v", a.text, a.err)
			}
			runtime.ReadMemStats(&after)
			if more := int64(after.Sys) - int64(before.Sys); more > 64<<20 {
				t.Errorf("it took %d MiB", more>>20)
			}
		})
	}
}

// What is collected and imported as a user is what that user may read, whatever lies in the user's folders.
//
// proves SITE-08
func TestFilesOfAUser(t *testing.T) {
	info := callersOf(t)
	dir := info.Scratch + "/alice/files-of-a-user"
	shell(t, "root", `rm -rf "$1"; umask 077; echo secret >/home/lab/secret; chown lab: /home/lab/secret
install -d -m 700 -o lab /home/lab/folder; echo secret >/home/lab/folder/x; chmod 644 /home/lab/folder/x`, dir)
	shell(t, "alice", `mkdir -m 700 "$1"`, dir)
	t.Cleanup(func() { shell(t, "root", `rm -rf "$1" /home/lab/secret /home/lab/folder`, dir) })
	host := userHost(t, userAt(t, "alice"))
	pool, err := transfer.New(host, transfer.Config{Connections: 1})
	must(t, err)
	t.Cleanup(pool.Close)
	w, err := farfiles.New(t.Context(), farfiles.Config{RunsDir: dir, GatewayID: "gw-files", Shell: host, Data: host, Pool: pool})
	must(t, err)
	t.Cleanup(w.Close)
	const id, token = "run_0X8Z4D1X467KV94K4TXG0D9BXT", "0123456789abcdef0123456789abcdef"
	must(t, w.OpenAttempt(t.Context(), id, 1, token))
	for name, x := range map[string]struct {
		plant, output, code string
	}{
		"a link to another's file":   {`ln -s /home/lab/secret out/x`, "out/x", run.OutputSymlink},
		"a link to a system's file":  {`ln -s /etc/shadow out/x`, "out/x", run.OutputSymlink},
		"a link to a folder":         {`ln -s /home/lab/folder out/d`, "out/d/x", run.OutputSymlink},
		"a link in place of out":     {`rmdir out; ln -s /home/lab/folder out`, "out/x", run.OutputSymlink},
		"a pipe":                     {`mkfifo out/x`, "out/x", run.OutputIrregular},
		"a folder":                   {`mkdir out/x`, "out/x", run.OutputIrregular},
		"a file with two names":      {`echo x >y; ln y out/x`, "out/x", run.OutputHardlink},
		"a file that nobody reads":   {`echo x >out/x; chmod 0 out/x`, "out/x", run.OutputUnreadable},
		"a hard link to another's":   {`ln /home/lab/secret out/x 2>/dev/null || true`, "out/x", run.OutputMissing},
		"a link in place of a1 /ctl": {`mv ctl c; ln -s /home/lab/folder ctl; ln -s c/token out/x`, "out/x", run.OutputSymlink},
	} {
		shell(t, "alice", `cd "$1/$2/a1"; rm -rf out y; [ ! -L ctl ] || { rm ctl; mv c ctl; }; mkdir out; `+x.plant, dir, id)
		f, _, err := w.OpenOutput(t.Context(), id, 1, x.output)
		if fault.CodeOf(err) != x.code {
			t.Errorf("%s: %v, want %s", name, err, x.code)
		}
		if err == nil {
			f.Close()
		}
	}
	for path, code := range map[string]string{"/home/lab/secret": "IMPORT-ACCESS", "/home/lab/folder/x": "IMPORT-ACCESS",
		"/etc/shadow": "IMPORT-ACCESS", "/dev/zero": "IMPORT-KIND"} {
		if _, err := w.OpenFile(t.Context(), path, 1<<20); fault.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", path, err, code)
		}
	}
	// None of these checks is what keeps the secret: the login itself cannot read it.
	client, err := host.SFTP(t.Context())
	must(t, err)
	if _, err := client.Open("/home/lab/secret"); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	shell(t, "alice", `umask 077; echo mine >"$1/own"`, dir)
	mine, err := w.OpenFile(t.Context(), dir+"/own", 1<<20)
	must(t, err)
	if text, err := io.ReadAll(mine); err != nil || string(text) != "mine\n" {
		t.Errorf("%q %v", text, err)
	}
	must(t, mine.Unchanged(t.Context()))
}

// A certificate that sshd refuses says what to check, and the account's state is seen at the next login.
//
// proves SITE-08
func TestLoginOfACaller(t *testing.T) {
	working(t, userHost(t, userAt(t, "alice")))
	other := userAt(t, "alice")
	key, _ := sshtest.NewKey(t)
	other.Credentials = sshtest.Credentials(key, "alice", time.Minute)
	_, err := userHost(t, other).Run(t.Context(), remote.Call{Script: "true", Limit: 1})
	if fault.CodeOf(err) != remote.Refused || !remote.NotStarted(err) || !strings.Contains(err.Error(), "TrustedUserCAKeys") {
		t.Error(err)
	}
}

// BenchmarkCallers prints what connections of users cost. Nothing is asserted.
func BenchmarkCallers(b *testing.B) {
	ok := func(h *remote.Host) time.Duration {
		began := time.Now()
		if _, err := h.Run(b.Context(), remote.Call{Script: "true", Limit: 1}); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	config := userAt(b, "alice")
	config.Logins = make(chan struct{}, 4)
	h := userHost(b, config)
	b.ReportMetric(float64(ok(h).Microseconds())/1000, "ms/first-call")
	total := time.Duration(0)
	for range 100 {
		total += ok(h)
	}
	b.ReportMetric(float64(total.Microseconds())/1000/100, "ms/further-call")
	const users = 50
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	var all sync.WaitGroup
	hosts := make([]*remote.Host, users)
	for i := range hosts {
		hosts[i] = userHost(b, config)
		all.Go(func() { ok(hosts[i]) })
	}
	all.Wait()
	b.ReportMetric(time.Since(began).Seconds(), "s/50-users")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/users/1024, "KiB/user")
	fmt.Fprintln(os.Stderr, "50 users connected; further calls of all of them:", func() time.Duration {
		began := time.Now()
		for _, h := range hosts {
			all.Go(func() { ok(h) })
		}
		all.Wait()
		return time.Since(began)
	}())
}
