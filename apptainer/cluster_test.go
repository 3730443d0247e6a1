//go:build cluster

package apptainer

// Conformance with the real Apptainer, run inside the cluster as a plain user:
//
//	CGO_ENABLED=0 go test -c -tags cluster -o SHARE/apptainer.test ./apptainer
//	SLURMGATE_TEST_DIR=SHARE/scratch SHARE/apptainer.test -test.run '^TestCluster' -test.v
//
// The program in the test image is this test binary, under the name "probe"; it must be static, hence CGO_ENABLED=0.
// The image is built with mksquashfs.

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

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

// bench holds one run's folders, the image in a store, and the runtime.
type bench struct {
	images           Images
	image            string
	runDir, attempt  string
	apptainer, cover string // cover: a folder of the site to bind
}

func newBench(t *testing.T) *bench {
	t.Helper()
	// Descriptors that the harness left open would reach the container.
	must(t, unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC))
	base := os.Getenv("SLURMGATE_TEST_DIR")
	if base == "" {
		t.Fatal("SLURMGATE_TEST_DIR is not set: a scratch folder on the shared filesystem, writable by this user")
	}
	if os.Geteuid() == 0 {
		t.Fatal("run this as a plain user: for root Apptainer does other things")
	}
	program, err := exec.LookPath("apptainer")
	must(t, err)
	dir, err := os.MkdirTemp(base, "apptainer-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{runDir: filepath.Join(dir, "run_X"), apptainer: program, cover: filepath.Join(dir, "site")}
	b.attempt = filepath.Join(b.runDir, "a1")
	for _, d := range []string{"run_X/in", "run_X/a1/out", "run_X/a1/meta", "run_X/a1/tmp", "run_X/a1/ctl", "site"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(b.runDir, "in/data"), []byte("input"), 0o600))
	b.images.Runtime = NewRuntime(Config{Binds: []Bind{{"ref", b.cover, "/ref"}}})
	if b.images.Store, err = OpenStore(filepath.Join(dir, "images")); err != nil {
		t.Fatal(err)
	}
	img, err := b.images.Add(t.Context(), probeImage(t, dir))
	must(t, err)
	if b.image, err = b.images.Verify(t.Context(), img.Digest); err != nil {
		t.Fatal(err)
	}
	return b
}

// probeImage builds a SIF of this binary and the minimum that Apptainer needs: without /dev, /proc, /sys, /tmp and
// /var/tmp it fails, without passwd and group it writes warnings. There is no shell and no library.
func probeImage(t *testing.T, dir string) string {
	t.Helper()
	self, err := elf.Open("/proc/self/exe")
	must(t, err)
	defer self.Close()
	for _, p := range self.Progs {
		if p.Type == elf.PT_INTERP {
			t.Fatal("this test binary is not static; build it with CGO_ENABLED=0")
		}
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "tmp", "var/tmp"} {
		must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for name, line := range map[string]string{"passwd": "root:x:0:0:root:/:/bin/sh\n", "group": "root:x:0:\n"} {
		must(t, os.WriteFile(filepath.Join(root, "etc", name), []byte(line), 0o644))
	}
	code, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "bin/probe"), code, 0o755))
	squash := filepath.Join(dir, "root.squashfs")
	if out, err := exec.Command("mksquashfs", root, squash, "-all-root", "-no-xattrs", "-noI", "-noD", "-noF", "-noX", "-quiet",
		"-no-progress").CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v\n%s", err, out)
	}
	fs, err := os.ReadFile(squash)
	must(t, err)
	path := filepath.Join(dir, "probe.sif")
	writeSIF(t, path, fs, sif.FsSquash, sif.PartPrimSys, runtime.GOARCH)
	return path
}

// start runs the probe in the container as the job script does: the environment has only what it sets.
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
	must(t, cmd.Start())
	return cmd, stdout, stderr
}

func (b *bench) report(t *testing.T, env map[string]string, argv ...string) report {
	t.Helper()
	cmd, stdout, stderr := b.start(t, env, argv...)
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
	must(t, err)
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
	// The complete list of mounts. A mount that is new in a later Apptainer must be reviewed.
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
	}
	if diff := cmp.Diff(env, b.report(t, env, names...).Values); diff != "" {
		t.Error(diff)
	}
}
