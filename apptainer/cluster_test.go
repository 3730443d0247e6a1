//go:build cluster

package apptainer

// Conformance with the real Apptainer, run inside the cluster as a plain user:
//
//	CGO_ENABLED=0 go test -c -tags cluster -o SHARE/apptainer.test ./apptainer
//	SLURMGATE_TEST_DIR=SHARE/scratch SHARE/apptainer.test -test.run '^TestCluster' -test.v
//
// The program in the test image is this test binary itself, under the name "probe"; it must be static, hence
// CGO_ENABLED=0. The image is made with mksquashfs.

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sylabs/sif/v2/pkg/sif"
	"golang.org/x/sys/unix"

	"slurmgate/plan"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "probe" {
		probe(os.Args[1:])
	}
	os.Exit(m.Run())
}

// bench is one run's folders, the image in a store, and the runtime.
type bench struct {
	images           Images
	image            string
	runDir, attempt  string
	apptainer, cover string // cover: a folder of the site to bind
}

func newBench(t *testing.T) *bench {
	t.Helper()
	// Descriptors the harness left open would reach the container.
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	base := os.Getenv("SLURMGATE_TEST_DIR")
	if base == "" {
		t.Fatal("SLURMGATE_TEST_DIR is not set: a scratch folder on the shared filesystem, writable by this user")
	}
	if os.Geteuid() == 0 {
		t.Fatal("run this as a plain user: for root Apptainer does other things")
	}
	program, err := exec.LookPath("apptainer")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(base, "apptainer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{runDir: filepath.Join(dir, "run_X"), apptainer: program, cover: filepath.Join(dir, "site")}
	b.attempt = filepath.Join(b.runDir, "a1")
	for _, d := range []string{"run_X/in", "run_X/a1/out", "run_X/a1/meta", "run_X/a1/tmp", "run_X/a1/ctl", "site"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.runDir, "in/data"), []byte("input"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.images.Runtime = NewRuntime(Config{Binds: []Bind{{"ref", b.cover, "/ref"}}})
	if b.images.Store, err = OpenStore(filepath.Join(dir, "images")); err != nil {
		t.Fatal(err)
	}
	img, err := b.images.Add(t.Context(), probeImage(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if b.image, err = b.images.Verify(t.Context(), img.Digest); err != nil {
		t.Fatal(err)
	}
	return b
}

// probeImage makes a SIF of this binary and the least Apptainer needs: without /dev, /proc, /sys, /tmp and /var/tmp it
// fails, without passwd and group it writes warnings. There is no shell and no library.
func probeImage(t *testing.T, dir string) string {
	t.Helper()
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	for _, p := range self.Progs {
		if p.Type == elf.PT_INTERP {
			t.Fatal("this test binary is not static; build it with CGO_ENABLED=0")
		}
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "tmp", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, line := range map[string]string{"passwd": "root:x:0:0:root:/:/bin/sh\n", "group": "root:x:0:\n"} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/probe"), code, 0o755); err != nil {
		t.Fatal(err)
	}
	squash := filepath.Join(dir, "root.squashfs")
	if out, err := exec.Command("mksquashfs", root, squash, "-all-root", "-no-xattrs", "-noI", "-noD", "-noF", "-noX", "-quiet",
		"-no-progress").CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v\n%s", err, out)
	}
	fs, err := os.ReadFile(squash)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "probe.sif")
	writeSIF(t, path, fs, sif.FsSquash, sif.PartPrimSys, runtime.GOARCH)
	return path
}

// start runs the probe in the container as the job script does: an empty environment but for what it sets.
func (b *bench) start(t *testing.T, env map[string]string, argv ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	spec := plan.Spec{Execution: plan.Execution{Command: plan.Command{Argv: append([]string{"probe"}, argv...), Workdir: plan.Workdir}}}
	cmd = exec.Command(b.apptainer, b.images.ExecArgs(spec, []plan.Bind{{Name: "ref"}}, nil, b.image, b.runDir, b.attempt)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + filepath.Join(b.attempt, "tmp"), "SECRET=host", "SLURM_JOB_ID=1"}
	for k, v := range env {
		cmd.Env = append(cmd.Env, "APPTAINERENV_"+k+"="+v)
	}
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdout, stderr
}

func (b *bench) report(t *testing.T, env map[string]string, argv ...string) report {
	t.Helper()
	cmd, stdout, stderr := b.start(t, env, append([]string{"report"}, argv...)...)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if stderr.Len() > 0 {
		t.Errorf("Apptainer adds to the program's stderr:\n%s", stderr)
	}
	var r report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	return r
}

func TestClusterIsolation(t *testing.T) {
	b := newBench(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	r := b.report(t, nil, home, b.runDir, "/work/ctl", "/etc/shadow", "/etc/slurm", "/run/munge")

	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"network interfaces", r.Interfaces, []string{"lo"}},
		{"connecting to 10.53.0.1", r.Connect, "network is unreachable"},
		{"working folder", r.Cwd, "/work"},
		{"HOME", r.Home, "/tmp"},
		{"capabilities", r.CapEff, "0000000000000000"},
		{"may gain privileges", r.NoNewPrivs, "1"},
		{"umask", r.Umask, "0077"},
		{"descriptors", r.Fds, []string{"0", "1", "2"}},
		{"writing /", r.Write["/new"], "read-only file system"},
		{"writing the program", r.Write["/bin/new"], "read-only file system"},
		{"writing /work", r.Write["/work/new"], "read-only file system"},
		{"writing /work/in", r.Write["/work/in/new"], "read-only file system"},
		{"writing an input", r.Write["/work/in/data"], "read-only file system"},
		{"writing /work/meta", r.Write["/work/meta/new"], "read-only file system"},
		{"writing the site's bind", r.Write["/ref/new"], "read-only file system"},
		{"writing /work/out", r.Write["/work/out/new"], ""},
		{"writing /tmp", r.Write["/tmp/new"], ""},
		{"reading an input", r.Input, "input"},
		{"the control folder", r.Sees["/work/ctl"], false},
		{"the user's home", r.Sees[home], false},
		{"the host's shared folder", r.Sees[b.runDir], false},
		{"the host's users", r.Sees["/etc/shadow"], false},
		{"the host's Slurm configuration", r.Sees["/etc/slurm"], false},
		{"munge", r.Sees["/run/munge"], false},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
	// The complete list of what is mounted. What is new in a later Apptainer must be looked at.
	own := []string{"/", "/dev", "/etc/group", "/etc/passwd", "/etc/resolv.conf", "/proc", "/ref", "/sys", "/tmp", "/var/tmp", "/work/in",
		"/work/meta", "/work/out"}
	for _, m := range r.Mounts {
		if !slices.Contains(own, m) && !strings.HasPrefix(m, "/dev/") && !strings.HasPrefix(m, "/sys/") {
			t.Errorf("mounted unasked for: %s", m)
		}
	}
	for _, m := range own {
		if !slices.Contains(r.Mounts, m) {
			t.Errorf("not mounted: %s", m)
		}
	}
	for _, name := range r.Env {
		known := []string{"HOME", "LANG", "PATH", "PROMPT_COMMAND", "PS1", "PWD", "SHLVL"}
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "APPTAINER_") && !strings.HasPrefix(name, "SINGULARITY_") {
			t.Errorf("unasked for in the environment: %s", name)
		}
	}
	if _, err := os.Stat(filepath.Join(b.attempt, "out/new")); err != nil {
		t.Errorf("what the program wrote is not in out: %v", err)
	}
}

// lostEnv are the variables that Apptainer's interpreter keeps for itself, changes or drops, measured on 1.4.5.
var lostEnv = []string{
	"EUID", "GID", "HOME", "UID", // of the user, always
	"APPEND_PATH", "PREPEND_PATH", // consumed: they change PATH
	"PROMPT_COMMAND",                                    // gets more text added
	"__apptainer_cmd__", "__exported_env__", "e", "key", // its own
}

// passesEnv reports whether a variable of this name reaches the program with its value unchanged. Values do
// not matter: with --no-eval any text arrives as it is.
func passesEnv(name string) bool {
	return !slices.Contains(lostEnv, name) && !strings.HasPrefix(name, "APPTAINER") && !strings.HasPrefix(name, "SINGULARITY")
}

func TestClusterEnvironmentArrivesUnchanged(t *testing.T) {
	b := newBench(t)
	env := map[string]string{
		"QUOTES": `a"b'c`, "DOLLAR": "$HOME ${PATH} $$ $1", "COMMAND": "$(id) `id`", "ESCAPES": `\n \\ \x41 \u000A \`,
		"LINES": "one\n two\n\n", "TABS": "\ta\t", "COMMAS": "a,b;c=d:e", "GLOB": "* ? [x] {1,2} ~ !x #y", "PERCENT": "%s%n", "UNICODE": "é ☃",
		"BLANK": " ", "EMPTY": "", "PATHLIKE": "/a:/b", "PS1": "q", "IFS": ",", "TERM": "x", "LC_ALL": "C.UTF-8", "lower": "1", "_X1": "2",
		"LONG": strings.Repeat("x", 16<<10),
	}
	var names []string
	for k := range env {
		names = append(names, k)
		if !passesEnv(k) {
			t.Errorf("%s passes, passesEnv denies it", k)
		}
	}
	if diff := cmp.Diff(env, b.report(t, env, names...).Values); diff != "" {
		t.Error(diff)
	}
	for _, name := range lostEnv {
		cmd, stdout, _ := b.start(t, map[string]string{name: "/bin:v al"}, "report", name)
		var r report
		if err := cmd.Wait(); err == nil && json.Unmarshal(stdout.Bytes(), &r) == nil && r.Values[name] == "/bin:v al" {
			t.Logf("%s passes with this Apptainer, though passesEnv denies it", name)
		}
	}
}

func TestClusterArgumentsArriveUnchanged(t *testing.T) {
	b := newBench(t)
	argv := []string{"", " ", "$HOME", "$(id)", "`id`", "a b", "-x", "--", "--bind=/etc:/x", "é\n\t", `\`, `"'`, "*",
		strings.Repeat("y", 100<<10)}
	if diff := cmp.Diff(argv, b.report(t, nil, argv...).Args); diff != "" {
		t.Error(diff)
	}
}

func TestClusterExitCodes(t *testing.T) {
	b := newBench(t)
	for _, code := range []int{0, 1, 7, 90, 255} {
		cmd, _, stderr := b.start(t, nil, "exit", fmt.Sprint(code))
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code || stderr.Len() > 0 {
			t.Errorf("exit %d arrives as %d\n%s", code, got, stderr)
		}
	}
	for name, sig := range map[string]int{"KILL": 9, "TERM": 15} {
		cmd, _, _ := b.start(t, nil, "die", name)
		cmd.Wait()
		// Apptainer ends by the same signal, which a shell shows as 128 + n.
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.ExitStatus() != 128+sig && int(ws.Signal()) != sig {
			t.Errorf("a program that dies of %s: %v", name, cmd.ProcessState)
		}
	}
}

func TestClusterStopping(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		what, mode, output string
		kill               bool // after TERM: kill the container's first process, not Apptainer
	}{
		{"a program that handles TERM", "handle", "ready\nterminated\n", false},
		{"a program that does not", "sleep", "ready\n", false},
		{"a program that ignores TERM", "ignore", "ready\n", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			cmd, stdout, stderr := b.start(t, nil, c.mode)
			ready := filepath.Join(b.attempt, "out", c.mode)
			waitFor(t, c.mode+" to start", func() bool { _, err := os.Stat(ready); return err == nil })
			if got := squashfuses(t, b.image); got == 0 {
				t.Log("no squashfuse_ll: this Apptainer mounts images by the kernel")
			}
			done := make(chan struct{})
			go func() { cmd.Wait(); close(done) }()
			cmd.Process.Signal(syscall.SIGTERM)
			if c.kill {
				select {
				case <-done:
					t.Fatal("it did not ignore TERM")
				case <-time.After(500 * time.Millisecond):
				}
				for _, pid := range children(t, cmd.Process.Pid) {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				cmd.Process.Kill()
				t.Fatal("it goes on")
			}
			if stdout.String() != c.output {
				t.Errorf("output %q, want %q\n%s", stdout, c.output, stderr)
			}
			waitFor(t, "squashfuse_ll to end", func() bool { return squashfuses(t, b.image) == 0 })
		})
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("waited 10 s for %s", what)
}

// squashfuses counts this user's squashfuse_ll processes that hold the image open.
func squashfuses(t *testing.T, image string) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/[0-9]*/fd/3")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == image {
			comm, _ := os.ReadFile(filepath.Join(filepath.Dir(fd), "../comm"))
			if strings.HasPrefix(string(comm), "squashfuse") {
				n++
			}
		}
	}
	return n
}

func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(data)) {
		var child int
		if _, err := fmt.Sscan(word, &child); err != nil {
			t.Fatal(errors.Join(err, fmt.Errorf("%q", data)))
		}
		pids = append(pids, child)
	}
	return pids
}
