// Package e2e drives the real binary on a real Slurm cluster with real Apptainer, as a user at a shell does.
//
// `go test ./e2e`, as root, makes what it needs through the scripts: the images, the data and a separate cluster (named
// by SLURMGATE_TEST_CLUSTER, "e2e" when that is not set; it stays up for the next time). The program under test runs
// inside the cluster as user lab. Every test has its own site: ledger, runs, domain. Nothing here kills a daemon.
//
// Tests that count what slurmctld did run one after another; Go starts the parallel ones when those are through.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// world is the state that all tests share. Paths beginning with /shared are the cluster's; host maps them to this
// machine.
var world struct {
	repo    string
	cluster string // its name
	share   string // the cluster's /shared, seen from here
	dir     string // /shared/e2e-…, of this test run
	uid     int    // of lab
	probe   string // digest of the test image, sha256:…
	memory  bool   // whether the cluster has memory control groups
}

func TestMain(m *testing.M) {
	// The tests wait for Slurm most of the time; the number of this machine's CPUs is no measure.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("these tests need root for the cluster's namespaces; run them with sudo")
	}
	here, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	world.repo, world.cluster = filepath.Dir(here), os.Getenv("SLURMGATE_TEST_CLUSTER")
	if world.cluster == "" {
		world.cluster = "e2e"
	}
	unlock, err := lockCluster(world.cluster)
	if err != nil {
		return 1, err
	}
	defer unlock()
	for _, step := range [][]string{{"scripts/demo-data"}, {"scripts/images/build", "--from", "domains/examples/images"},
		{"scripts/devcluster", "--name", world.cluster, "up", "--ssh", "--rest"}} {
		if err := command(step...); err != nil {
			return 1, err
		}
	}
	out, err := exec.Command(filepath.Join(world.repo, "scripts/devcluster"), "--name", world.cluster, "path").Output()
	if err != nil {
		return 1, fmt.Errorf("scripts/devcluster path: %w", err)
	}
	world.share = strings.TrimSpace(string(out))
	temp, err := os.MkdirTemp(world.share, "e2e-")
	if err != nil {
		return 1, err
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return 1, err
	}
	world.dir = "/shared/" + filepath.Base(temp)
	defer func() { err = errors.Join(err, cleanUp(temp)) }()
	if err := populate(temp); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// lockCluster keeps two test runs from counting each other's jobs. scripts/test holds the lock for all its steps.
func lockCluster(name string) (unlock func(), err error) {
	if os.Getenv("SLURMGATE_TEST_LOCKED") != "" {
		return func() {}, nil
	}
	f, err := os.OpenFile("/run/slurmgate-tests-"+name+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// populate fills the scratch folder: the binary, the test image, the images of the tools in one store, and the
// domains with their lock files, for the sites to copy.
func populate(temp string) error {
	id, err := inCluster("lab", "id", "-u").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the cluster has no user lab: %s", id)
	}
	if _, err := fmt.Sscan(string(id), &world.uid); err != nil {
		return err
	}
	conf, err := inCluster("root", "cat", "/etc/slurm/cgroup.conf").Output()
	if err != nil {
		return err
	}
	world.memory = !strings.Contains(string(conf), "CgroupPlugin=disabled")
	build := func(env, out, pkg string) error {
		return command("env", env, "go", "build", "-o", out, pkg) // with the flags of go test, so that its cache serves
	}
	root := filepath.Join(temp, "root")
	for _, d := range []string{"bin", "dev", "etc", "proc", "root", "sys", "tmp", "var/tmp", "work/in", "work/out", "work/meta", "plain"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0:root:/:/bin/testprog\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\n"), 0o644),
		build("CGO_ENABLED=1", filepath.Join(temp, "slurmgate"), "./cmd/slurmgate"),
		build("CGO_ENABLED=0", filepath.Join(root, "bin/testprog"), "./e2e/testprog"),
		build("CGO_ENABLED=0", filepath.Join(temp, "mksif"), "./scripts/images/mksif"),
		// The image has a "shell", so that it is the name which is refused, not the absence.
		os.Link(filepath.Join(root, "bin/testprog"), filepath.Join(root, "bin/sh")),
	); err != nil {
		return err
	}
	if err := errors.Join(
		command("mksquashfs", root, filepath.Join(temp, "probe.squashfs"), "-noappend", "-no-progress", "-quiet", "-comp", "gzip", "-all-root",
			"-mkfs-time", "0", "-all-time", "0", "-no-xattrs"),
		command(filepath.Join(temp, "mksif"), "-arch", runtime.GOARCH, "-o", filepath.Join(temp, "probe.sif"),
			filepath.Join(temp, "probe.squashfs")),
	); err != nil {
		return err
	}
	for _, d := range []struct{ from, to string }{{"domains/genomics", "genomics"}, {"domains/examples", "examples"}, {"e2e/testdata/domain",
		"probing"}, {"build/data", "data"}} {
		if err := os.CopyFS(filepath.Join(temp, d.to), os.DirFS(filepath.Join(world.repo, d.from))); err != nil {
			return err
		}
	}
	for _, name := range []string{"images/samtools", "images/seqkit", "images/minimap2", "images-examples/bcftools",
		"images-examples/textkit", "images-examples/python", "images-examples/node",
		"images-examples/php"} {
		if err := command("cp", filepath.Join(world.repo, "build", name+".sif"), temp); err != nil {
			return err
		}
	}
	// The shipped domain names no image yet; a working copy to which images were added would.
	for _, d := range []string{"genomics", "examples", "probing"} {
		if err := os.WriteFile(filepath.Join(temp, d, "images.lock.yaml"), []byte("version: 1\nimages: []\n"), 0o644); err != nil {
			return err
		}
	}
	if err := giveToLab(temp); err != nil {
		return err
	}
	return addImages(temp)
}

// addImages adds the images with the program's own verb.
func addImages(temp string) error {
	for _, a := range []struct{ domain, name string }{{"genomics", "samtools"}, {"genomics", "seqkit"}, {"genomics", "minimap2"},
		{"examples", "samtools"}, {"examples", "seqkit"}, {"examples", "bcftools"},
		{"examples", "textkit"}, {"examples", "python"}, {"examples", "node"}, {"examples", "php"}, {"probing", "probe"}} {
		f := siteFile{Dir: world.dir + "/" + a.domain, Domain: world.dir + "/" + a.domain, ImageStore: world.dir + "/images"}
		site := filepath.Join(temp, a.domain+".site.yaml")
		if err := os.WriteFile(site, []byte(f.text()), 0o644); err != nil {
			return err
		}
		out, err := inCluster("lab", world.dir+"/slurmgate", "image", "add", a.name, world.dir+"/"+a.name+".sif", "--site",
			world.dir+"/"+a.domain+".site.yaml").CombinedOutput()
		if err != nil {
			return fmt.Errorf("image add %s: %w: %s", a.name, err, out)
		}
	}
	sum, err := exec.Command("sha256sum", filepath.Join(temp, "probe.sif")).Output()
	if err != nil {
		return err
	}
	world.probe = "sha256:" + string(sum[:64])
	return nil
}

// cleanUp leaves nothing of this run: no job, no process, no file.
func cleanUp(temp string) error {
	if os.Getenv("SLURMGATE_E2E_KEEP") != "" {
		fmt.Fprintln(os.Stderr, "e2e: kept", temp)
		return nil
	}
	out, err := inCluster("root", "bash", "-c", `scancel --user=lab; `+removing(`"/home/lab/$1"`), "bash", filepath.Base(temp)).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cleaning up: %w: %s", err, out)
	}
	gone := os.RemoveAll(temp)
	for end := time.Now().Add(2 * time.Minute); gone != nil && time.Now().Before(end); gone = os.RemoveAll(temp) {
		time.Sleep(100 * time.Millisecond) // a job that was cancelled may still write
	}
	return errors.Join(err, gone)
}

// giveToLab makes lab the owner of everything below a folder.
func giveToLab(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, world.uid, world.uid)
	})
}

// command runs a program of this machine in the repository.
func command(argv ...string) error {
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = world.repo
	if strings.HasPrefix(argv[0], "scripts/") {
		c.Path = filepath.Join(world.repo, argv[0])
		c.Err = nil
	}
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// inCluster prepares a command on the login node.
func inCluster(user string, argv ...string) *exec.Cmd {
	return inClusterContext(context.Background(), user, nil, argv...)
}

func inClusterContext(ctx context.Context, user string, env []string, argv ...string) *exec.Cmd {
	cwd := world.dir
	if cwd == "" {
		cwd = "/"
	}
	args := []string{"--name", world.cluster, "exec", "--user", user, "--cwd", cwd}
	for _, kv := range env {
		args = append(args, "--env", kv)
	}
	c := exec.CommandContext(ctx, filepath.Join(world.repo, "scripts/devcluster"), append(append(args, "--"), argv...)...)
	c.WaitDelay = 10 * time.Second
	return c
}

// host returns this machine's path of a file below the cluster's /shared.
func host(path string) string { return world.share + strings.TrimPrefix(path, "/shared") }

// shell runs a bash line in the cluster and returns its output.
func shell(t testing.TB, user, line string, args ...string) string {
	t.Helper()
	c := inCluster(user, append([]string{"bash", "-euc", line, "bash"}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", line, err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// removing returns a shell line that removes files, some of which processes that are just ending may still write.
func removing(files string) string {
	return "for i in $(seq 1200); do rm -rf " + files + " 2>/dev/null && exit; sleep 0.1; done; rm -rf " + files
}

// testLimit is the longest time that a test may wait in all. It bounds each of its waits, so that a slow machine does
// not fail the test.
const testLimit = 15 * time.Minute

var deadlines sync.Map // by the names of the tests that wait

// deadline returns the end of a test's time: testLimit after its first call for the test.
func deadline(t testing.TB) time.Time {
	t.Helper()
	at, known := deadlines.LoadOrStore(t.Name(), time.Now().Add(testLimit))
	if !known {
		t.Cleanup(func() { deadlines.Delete(t.Name()) })
	}
	return at.(time.Time)
}

// commandContext ends a command at its test's deadline, and not before a minute, which clean-up may take.
func commandContext(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	end := deadline(t)
	if least := time.Now().Add(time.Minute); end.Before(least) {
		end = least
	}
	return context.WithDeadline(context.Background(), end)
}

// timeLeft returns the time to a test's deadline, a minute at least, for the option --timeout.
func timeLeft(t testing.TB) string {
	t.Helper()
	return max(time.Minute, time.Until(deadline(t))).Round(time.Second).String()
}

// until waits for a condition that another goroutine or process brings about, until the test's deadline.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, time.Until(deadline(t)), what, ok)
}

// within waits for a condition whose time follows from how much there is to do.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s, which did not come", limit.Round(time.Second), what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a result, and ends the test if an error came with it.
func value[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
