//go:build cluster

package runtest_test

import (
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/slurm"
	"slurmgate/slurm/rest"
)

// The same over slurmrestd, by a unix socket.
//
// proves SITE-06
// slurmrestd: all of it
func TestClusterConformanceOverREST(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/apptainer", []byte(runtimeScript), 0o700))
	jobs := runtest.Setup{Posted: true, Test: func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) },
		Open: func(t *testing.T) *runtest.Transport { return openREST(t, dir) }}
	runtest.Jobs(t, jobs)
}

func openREST(t *testing.T, programs string) *runtest.Transport {
	root := filepath.Join(os.Getenv("SLURMGATE_TEST_DIR"), strings.ReplaceAll(t.Name(), "/", "_"))
	s := openSite(t, root)
	runtime, err := os.ReadFile(filepath.Join(programs, "apptainer"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "apptainer"), runtime, 0o700)) // started on the nodes only
	me, err := user.Current()
	must(t, err)
	script := scripts(filepath.Join(root, "apptainer"))
	socket, daemon := slurmrestd(t)
	over, err := rest.New(rest.Config{URL: "unix:" + socket, User: me.Username, Cluster: "devcluster", RPCPerMinute: 1e6, Script: script,
		Control: s.ReadControlFrom})
	must(t, err)
	t.Cleanup(over.Close)
	cli := commands(t, filepath.Join(root, "apptainer"))
	s.renderer = over.Renderer
	x := s.transport()
	x.Submitter, x.Canceller, x.Queue, x.Accounting = over, over, over, over
	x.RenderArray, x.Rename = over.RenderArray, rename
	x.Room = run.ScopeRun // slurmrestd does not name the limit
	x.Slow = func(t *testing.T) func() {
		must(t, daemon.Signal(syscall.SIGSTOP))
		return func() { must(t, daemon.Signal(syscall.SIGCONT)) }
	}
	x.Job = func(t *testing.T, k runtest.Kind) run.JobSpec { return s.job(t, cli, k) }
	return x
}

// scripts returns the configuration of the suites' job scripts.
func scripts(runtime string) slurm.ScriptConfig {
	return slurm.ScriptConfig{Runtime: slurm.Runtime{Path: runtime}, Verify: slurm.VerifyAll, GraceSeconds: 2, VerifyAllowanceSeconds: 300}
}

// commands returns the client that uses Slurm's commands.
func commands(t *testing.T, runtime string) *slurm.CLI {
	me, err := user.Current()
	must(t, err)
	cli, err := slurm.NewCLI(slurm.Config{BinDir: "/usr/bin", LocksDir: filepath.Join(t.TempDir(), "locks"), User: me.Username,
		RPCPerMinute: 1e6, Script: scripts(runtime)})
	must(t, err)
	return cli
}

// slurmrestd starts a slurmrestd for the test.
func slurmrestd(t *testing.T) (socket string, daemon *os.Process) {
	socket = filepath.Join(t.TempDir(), "socket")
	said, err := os.Create(filepath.Join(filepath.Dir(socket), "log"))
	must(t, err)
	cmd := exec.Command("/usr/sbin/slurmrestd", "-a", "rest_auth/local", "unix:"+socket)
	cmd.Env, cmd.Stderr = []string{"PATH=/usr/bin:/bin"}, said
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
		said.Close()
		if text, err := os.ReadFile(said.Name()); t.Failed() && err == nil {
			t.Logf("slurmrestd printed:\n%s", text)
		}
	})
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
			return socket, cmd.Process
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
