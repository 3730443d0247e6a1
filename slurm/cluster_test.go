//go:build cluster

// The tests of this file run on a login node of a real Slurm cluster, as a plain user, in a folder all nodes see. They need the dev
// cluster's partitions, accounts and QOS.
package slurm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// bench is one attempt's workspace and a transport.
type bench struct {
	*CLI
	job run.JobSpec
}

// newBench makes a workspace whose "Apptainer" is a two-line script: these tests are about everything around it.
// fakeApptainer says what the real one says (1.4.5) of a program that is not there and of an image that it cannot mount.
const fakeApptainer = `#!/bin/bash
fatal() { printf 'FATAL:   %s\n' "$1" >&2; exit 255; }
[[ $1 != broken ]] || fatal "container creation failed: image driver mount failure"
shift
[[ -n $(type -P -- "$1") ]] || fatal "\"$1\": executable file not found in \$PATH"
exec "$@"
`

func newBench(t *testing.T, program string, change ...func(*Config, *run.JobSpec)) *bench {
	t.Helper()
	root := os.Getenv("SLURMGATE_TEST_DIR")
	if root == "" {
		t.Fatal("SLURMGATE_TEST_DIR names a folder that all nodes see")
	}
	me, err := user.Current()
	must(t, err)
	var random [16]byte
	rand.Read(random[:])
	tok := hex.EncodeToString(random[:])
	id := "run_" + strings.ToUpper(strings.NewReplacer("a", "G", "b", "H", "c", "J", "d", "K", "e", "M", "f", "N").Replace(tok[:26]))
	dir := filepath.Join(root, strings.ReplaceAll(t.Name(), "/", "_"), id)
	for _, d := range []string{"in", "a1/ctl"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	runtime := filepath.Join(dir, "apptainer")
	must(t, os.WriteFile(runtime, []byte(fakeApptainer), 0o755))
	image, input := filepath.Join(dir, "image.sif"), filepath.Join(dir, "in/input.bam")
	must(t, os.WriteFile(image, []byte("image"), 0o600))
	must(t, os.WriteFile(input, []byte("input"), 0o600))

	job := flagstat(dir)
	job.RunID, job.Token, job.JobName = id, tok, run.JobName(id, 1, tok)
	job.ImagePath, job.ExecArgs = image, []string{"container", "/bin/bash", "-c", program}
	job.Spec.Execution.Command.Argv = job.ExecArgs[1:]
	job.Spec.Execution.Container.Image = "sha256:" + sum("image")
	job.Spec.IO.Inputs[0].ChecksumSHA256 = sum("input")
	job.Spec.Resources = plan.Resources{TimeLimitSeconds: 60, CPUs: 1, MemMB: 50}
	job.Spec.Execution.Command.Stdout = nil
	cfg := Config{BinDir: "/usr/bin", LocksDir: filepath.Join(t.TempDir(), "locks"), User: me.Username,
		RPCPerMinute: 1e6,
		Script:       ScriptConfig{Runtime: Runtime{Path: runtime}, Verify: VerifyAll, GraceSeconds: 2, VerifyAllowanceSeconds: 300}}
	for _, f := range change {
		f(&cfg, &job)
	}
	c, err := NewCLI(cfg)
	must(t, err)
	b := &bench{CLI: c, job: job}
	script, pinned, err := c.Render(job)
	must(t, err)
	must(t, os.WriteFile(b.ctl(run.ScriptFile), script, 0o600))
	must(t, os.WriteFile(b.ctl(run.PinnedFile), pinned, 0o600))
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func (b *bench) ctl(name string) string { return b.job.ControlPath(name) }

// text is a control file's content, "" when it is not there.
func (b *bench) text(name string) string {
	data, _ := os.ReadFile(b.ctl(name))
	return string(data)
}

// send sends the job and gives its id.
func (b *bench) send(t *testing.T, k int) string {
	t.Helper()
	res := b.Send(t.Context(), b.job, k)
	if res.Outcome != run.SendAccepted {
		t.Fatalf("send %d: %+v", k, res)
	}
	return res.JobID
}

// receipt gives the result of a send whose sbatch is gone. Its lock may be held a moment longer, by a child of this
// process that was forked meanwhile and has not closed what it does not need.
func (b *bench) receipt(t *testing.T, k int) (res run.SendResult) {
	t.Helper()
	until(t, 5*time.Second, "free lock", func() bool {
		var held bool
		res, held = b.Receipt(t.Context(), b.job, k)
		return !held
	})
	return res
}

// until polls one of the attempt's conditions.
func until(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s after %v", what, limit)
		}
	}
}

// ended waits for the job's end and gives Slurm's record of it.
func (b *bench) ended(t *testing.T, id string) (job run.Job) {
	t.Helper()
	until(t, 40*time.Second, "end of job "+id, func() bool {
		job = b.seen(t, id)
		return job.Class == run.ClassEnded
	})
	return job
}

func (b *bench) seen(t *testing.T, id string) run.Job {
	t.Helper()
	jobs, err := b.Jobs(t.Context(), nil)
	must(t, err)
	for _, j := range jobs {
		if j.ID == id {
			if j.Name != b.job.JobName {
				t.Fatalf("job %s has the name %s", id, j.Name)
			}
			return j
		}
	}
	t.Fatalf("job %s is not in the queue's answer", id)
	return run.Job{}
}

// exit is the parsed exit file, which must be the given job's.
func (b *bench) exit(t *testing.T, id string) run.Exit {
	t.Helper()
	e, err := run.ParseExit([]byte(b.text(run.ExitFile)))
	if err != nil {
		t.Fatalf("%v\nexit: %q\njob.log:\n%s", err, b.text(run.ExitFile), b.text(run.JobLogFile))
	}
	if e.Holder.Job != id || e.Holder.Task != "-" || e.Holder.Restart != 0 || e.Node == "" {
		t.Errorf("the exit file is another's: %+v", e)
	}
	return e
}

func TestClusterEndings(t *testing.T) {
	for name, c := range map[string]struct {
		program    string
		limit      int
		reason     string
		code       int
		state      string
		atLeast    float64
		noManifest bool
	}{
		"ok":               {"echo out; echo err >&2", 60, "ok", 0, "COMPLETED", 0, false},
		"exit 3":           {"exit 3", 60, "tool_failed", 3, "FAILED", 0, true},
		"exit 124":         {"exit 124", 60, "tool_failed", 124, "FAILED", 0, true},
		"exit 127":         {"exit 127", 60, "tool_failed", 127, "FAILED", 0, true},
		"exit 255":         {"exit 255", 60, "tool_failed", 255, "FAILED", 0, true},
		"FATAL, its own":   {"echo 'FATAL:   the database is locked' >&2; exit 255", 60, "tool_failed", 255, "FAILED", 0, true},
		"FATAL, loosely":   {"echo 'FATAL: could not open image' >&2; exit 255", 60, "tool_failed", 255, "FAILED", 0, true},
		"FATAL, nested":    {"echo 'FATAL:   container creation failed: x' >&2; exit 255", 60, "tool_failed", 255, "FAILED", 0, true},
		"no such program":  {"", 60, "program_not_started", 255, "FAILED", 0, true},
		"no container":     {"", 60, "runtime_broken", 255, "FAILED", 0, true},
		"killed":           {"kill -KILL $$", 60, "killed", 137, "FAILED", 0, true},
		"segfault":         {"kill -SEGV $$", 60, "tool_failed", 139, "FAILED", 0, true},
		"own limit":        {"sleep 60", 2, "time_limit", 124, "FAILED", 2, true},
		"own limit, exit0": {"trap 'exit 0' TERM; sleep 60 & wait", 2, "time_limit", 124, "FAILED", 2, true},
		"deaf":             {"trap '' TERM; while :; do sleep 1; done", 2, "time_limit", 137, "FAILED", 4, true},
		"orphans":          {"sleep 1000 & disown; exit 0", 60, "ok", 0, "COMPLETED", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c.program, func(_ *Config, j *run.JobSpec) {
				j.Spec.Resources.TimeLimitSeconds = c.limit
				switch name {
				case "no such program":
					j.ExecArgs = []string{"container", "no-such-program", "x"}
					j.Spec.Execution.Command.Argv = j.ExecArgs[1:]
				case "no container":
					j.ExecArgs = []string{"broken", "bash", "x"}
					j.Spec.Execution.Command.Argv = j.ExecArgs[1:]
				}
			})
			id := b.send(t, 1)
			job := b.ended(t, id)
			e := b.exit(t, id)
			if e.Reason != c.reason || e.Code != c.code || e.Elapsed < c.atLeast || e.Elapsed > 30 || job.State != c.state {
				t.Errorf("exit %+v, job %+v\n%s", e, job, b.text(run.JobLogFile))
			}
			if job.ExitCode == nil || *job.ExitCode != c.code && job.Signal+128 != c.code {
				t.Errorf("Slurm saw another exit status: %+v", job)
			}
			m, err := run.ParseManifest([]byte(b.text(run.ManifestFile)))
			if c.noManifest != (err != nil) {
				t.Errorf("manifest %+v: %v", m, err)
			}
			if name == "ok" && (b.text(run.StdoutFile) != "out\n" || b.text(run.StderrFile) != "err\n") {
				t.Errorf("stdout %q, stderr %q", b.text(run.StdoutFile), b.text(run.StderrFile))
			}
			claim, err := run.ParseClaim([]byte(b.text(run.ClaimFile)))
			if err != nil || claim.Holder.Job != id || claim.Token != b.job.Token || claim.Node != job.Node {
				t.Errorf("claim %+v: %v", claim, err)
			}
		})
	}
}

func TestClusterPinnedBytes(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(b *bench)
		reason string
		code   int
		verify string
	}{
		"image changed": {func(b *bench) { os.WriteFile(b.job.ImagePath, []byte("imagE"), 0o600) }, "image_mismatch",
			run.ExitImageMismatch, ""},
		"image gone": {func(b *bench) { os.Remove(b.job.ImagePath) }, "image_missing", run.ExitImageMismatch, ""},
		"input changed": {func(b *bench) { os.WriteFile(b.job.RunDir+"/in/input.bam", []byte("inpuT"), 0o600) }, "input_mismatch",
			run.ExitInputMismatch, ""},
		"input gone": {func(b *bench) { os.Remove(b.job.RunDir + "/in/input.bam") }, "input_missing", run.ExitInputMismatch, ""},
		"list changed": {func(b *bench) { os.WriteFile(b.ctl(run.PinnedFile), nil, 0o600) }, "image_mismatch",
			run.ExitImageMismatch, ""},
		"input changed, image only": {func(b *bench) { os.Remove(b.job.RunDir + "/in/input.bam") }, "ok", 0, VerifyImageOnly},
		"no runtime":                {func(b *bench) { os.Remove(b.job.RunDir + "/apptainer") }, "runtime_missing", run.ExitRuntimeMissing, ""},
		"out is not a folder": {func(b *bench) { os.Remove(b.ctl("../out")); os.WriteFile(b.ctl("../out"), nil, 0o600) },
			"control_unwritable", run.ExitControlUnwritable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, mark, func(cfg *Config, j *run.JobSpec) {
				cfg.Script.Verify = c.verify
				j.Spec.Execution.Command.Stdout = ptr("out/flagstat.json")
			})
			c.spoil(b)
			id := b.send(t, 1)
			b.ended(t, id)
			if e := b.exit(t, id); e.Reason != c.reason || e.Code != c.code {
				t.Errorf("exit %+v\n%s", e, b.text(run.JobLogFile))
			}
			if ran := b.marks(); ran != 0 && c.code != 0 {
				t.Error("the program ran")
			}
		})
	}
}

// A digest that dies proves nothing about the file: it is made again, or the script was told to end.
func TestClusterDigestCutShort(t *testing.T) {
	const size = 1 << 30 // bytes, all zero: half a second's work for the digest
	h := sha256.New()
	_, err := io.Copy(h, io.LimitReader(zeros{}, size))
	must(t, err)
	for name, c := range map[string]struct {
		term   bool // the script gets TERM too, later
		reason string
		code   int
	}{"alone": {false, "ok", 0}, "before the script": {true, "terminated", 143}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, mark+"echo x >out/flagstat.json",
				func(_ *Config, j *run.JobSpec) { j.Spec.IO.Inputs[0].ChecksumSHA256 = hex.EncodeToString(h.Sum(nil)) })
			input := b.job.RunDir + "/in/input.bam"
			must(t, os.Truncate(input, 0))
			must(t, os.Truncate(input, size))
			id := b.send(t, 1)
			var digest int
			for end := time.Now().Add(30 * time.Second); digest == 0; time.Sleep(2 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nobody reads the input: " + b.text(run.JobLogFile))
				}
				digest = reader(t, input)
			}
			script := scriptOf(t, digest)
			must(t, syscall.Kill(digest, syscall.SIGTERM))
			if c.term {
				time.Sleep(300 * time.Millisecond)
				must(t, syscall.Kill(script, syscall.SIGTERM))
			}
			b.ended(t, id)
			if e := b.exit(t, id); e.Reason != c.reason || e.Code != c.code || b.marks() != 1-c.code/143 {
				t.Errorf("exit %+v, the program ran %d times\n%s", e, b.marks(), b.text(run.JobLogFile))
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// reader finds the process that has the file as its standard input, 0 for none. The nodes are on this host.
func reader(t *testing.T, file string) int {
	t.Helper()
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	must(t, err)
	for _, fd := range fds {
		comm, _ := os.ReadFile(filepath.Dir(filepath.Dir(fd)) + "/comm")
		if at, _ := os.Readlink(fd); at == file && string(comm) == "openssl\n" {
			pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
			must(t, err)
			return pid
		}
	}
	return 0
}

// scriptOf is the job script that a process belongs to: its uppermost ancestor of that name, because shells of the script have it too.
func scriptOf(t *testing.T, pid int) (script int) {
	t.Helper()
	for ; pid > 1; pid = parent(t, pid) {
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(comm) == "slurm_script\n" {
			script = pid
		}
	}
	if script == 0 {
		t.Fatal("no job script is above the process")
	}
	return script
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ppid, err := strconv.Atoi(fields[1])
	must(t, err)
	return ppid
}

// mark is what the program of a test does first, in the attempt's folder; marks counts how often it did.
const mark = "echo ran >>ran; "

func (b *bench) marks() int {
	data, _ := os.ReadFile(filepath.Join(b.job.AttemptDir(), "ran"))
	return strings.Count(string(data), "ran")
}

func TestClusterClaimIsOthers(t *testing.T) {
	other := "slurmgate-claim 1 job=1 task=- restart=0 token=%s node=n1\n"
	for name, claim := range map[string]func(b *bench) string{
		"void":          func(b *bench) string { return string(run.VoidClaim(b.job.Token)) },
		"another job":   func(b *bench) string { return fmt.Sprintf(other, b.job.Token) },
		"empty":         func(*bench) string { return "" },
		"another token": func(*bench) string { return fmt.Sprintf(other, testToken) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, mark)
			must(t, os.WriteFile(b.ctl(run.ClaimFile), []byte(claim(b)), 0o600))
			before := list(t, b)
			job := b.ended(t, b.send(t, 1))
			if job.ExitCode == nil || *job.ExitCode != run.ExitClaimNotOurs || b.marks() != 0 || b.text(run.ClaimFile) != claim(b) {
				t.Errorf("job %+v ran %d\n%s", job, b.marks(), b.text(run.JobLogFile))
			}
			if after := list(t, b); after != before+" job.log send.1.err send.1.out" {
				t.Errorf("the job touched the control folder: %s", after)
			}
		})
	}
}

func list(t *testing.T, b *bench) string {
	entries, err := os.ReadDir(b.ctl(""))
	must(t, err)
	var plain, sent []string
	for _, e := range entries {
		if n := e.Name(); n == run.JobLogFile || strings.HasPrefix(n, "send.") {
			sent = append(sent, n)
		} else {
			plain = append(plain, n)
		}
	}
	return strings.TrimSpace(strings.Join(append(plain, sent...), " "))
}

func TestClusterUnwritableControl(t *testing.T) {
	b := newBench(t, mark)
	argv, err := b.Argv(b.job)
	must(t, err)
	// The log has to lie elsewhere, and sbatch's own files too: the folder is not writable for the job.
	must(t, os.Chmod(b.ctl(""), 0o500))
	defer os.Chmod(b.ctl(""), 0o700)
	for i, a := range argv {
		if strings.HasPrefix(a, "--output=") || strings.HasPrefix(a, "--error=") {
			argv[i], _, _ = strings.Cut(a, "=")
			argv[i] += "=/dev/null"
		}
	}
	id := sbatch(t, argv...)
	if job := b.ended(t, id); *job.ExitCode != run.ExitControlUnwritable || b.marks() != 0 {
		t.Errorf("%+v", job)
	}
}

func sbatch(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command("sbatch", argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("sbatch %q: %v: %s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestClusterTwoJobsOneExecution(t *testing.T) {
	b := newBench(t, mark+"sleep 1")
	ids := []string{b.send(t, 1), b.send(t, 2), b.send(t, 3)}
	codes := map[int]int{}
	for _, id := range ids {
		codes[*b.ended(t, id).ExitCode]++
	}
	if b.marks() != 1 || codes[0] != 1 || codes[run.ExitClaimNotOurs] != 2 {
		t.Errorf("ran %d times, exit codes %v", b.marks(), codes)
	}
}

// A job that is requeued in spite of --no-requeue finds its own claim, of an earlier start, and does not run again.
func TestClusterRequeuedJobRunsOnce(t *testing.T) {
	b := newBench(t, mark+"sleep 300")
	id := b.send(t, 1)
	until(t, 20*time.Second, "start of the program", func() bool { return b.marks() == 1 })
	if out, err := exec.Command("scontrol", "update", "JobId="+id, "Requeue=1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("scontrol", "requeue", id).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	until(t, 30*time.Second, "requeue", func() bool { return b.seen(t, id).Restarts == 1 })
	until(t, 20*time.Second, "exit file", func() bool { return b.text(run.ExitFile) != "" })
	if e := b.exit(t, id); e.Reason != "terminated" {
		t.Errorf("the first start left %+v", e)
	}
	if !waitForRelease {
		must(t, b.Cancel(t.Context(), id, b.job.JobName))
	} else {
		until(t, 4*time.Minute, "second end", func() bool { return b.seen(t, id).Class == run.ClassEnded })
		if job := b.seen(t, id); *job.ExitCode != run.ExitClaimNotOurs {
			t.Errorf("the second start: %+v", job)
		}
	}
	// The same start once more, by hand, as slurmd would do it.
	cmd := exec.Command("/bin/bash", b.ctl(run.ScriptFile))
	cmd.Env = []string{"SLURM_JOB_ID=" + id, "SLURM_RESTART_COUNT=1", "SLURMD_NODENAME=n1"}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != run.ExitClaimNotOurs {
		t.Errorf("restart 1: %v: %s", err, out)
	}
	cmd = exec.Command("/bin/bash", b.ctl(run.ScriptFile))
	cmd.Env = []string{"SLURM_JOB_ID=" + id, "SLURMD_NODENAME=" + b.exit(t, id).Node}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != run.ExitClaimNotOurs {
		t.Errorf("the same start again: %v: %s", err, out)
	}
	if b.marks() != 1 {
		t.Errorf("it ran %d times", b.marks())
	}
}

func TestClusterCancelled(t *testing.T) {
	for name, program := range map[string]string{
		"obedient": "sleep 300",
		"deaf":     "trap '' TERM; while :; do sleep 1; done",
		"exits 0":  "trap 'exit 0' TERM; sleep 300 & wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, mark+program)
			id := b.send(t, 1)
			until(t, 20*time.Second, "start of the program", func() bool { return b.marks() == 1 })
			must(t, b.Cancel(t.Context(), id, b.job.JobName))
			if job := b.ended(t, id); job.State != "CANCELLED" {
				t.Errorf("%+v", job)
			}
			if e := b.exit(t, id); e.Reason != "terminated" || e.Code == 0 {
				t.Errorf("%+v", e)
			}
			if b.text(run.ManifestFile) != "" {
				t.Error("there is a manifest")
			}
			must(t, b.Cancel(t.Context(), id, b.job.JobName)) // gone already
		})
	}
}

func TestClusterManifest(t *testing.T) {
	b := newBench(t, `cd out && printf hello >file && mkdir -p 'sub dir' && printf x >"sub dir/it's \$(id) é.txt" && ln -s file link && ln -s 'sub dir' way &&
		printf y >two && ln two three && mkfifo pipe && mkdir folder && printf z >'sub dir/through' && ln -s /nowhere dangling && : >empty`,
		func(_ *Config, j *run.JobSpec) {
			j.Spec.IO.Outputs = nil
			for i, p := range []string{"file", "sub dir/it's $(id) é.txt", "link", "way/through", "two", "three", "pipe", "folder", "missing",
				"no/where", "dangling", "empty"} {
				j.Spec.IO.Outputs = append(j.Spec.IO.Outputs, plan.Output{Role: fmt.Sprint("r", i), SrcRelpath: "out/" + p, Type: "TEXT",
					Label: fmt.Sprint("l", i)})
			}
		})
	id := b.send(t, 1)
	b.ended(t, id)
	m, err := run.ParseManifest([]byte(b.text(run.ManifestFile)))
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, b.text(run.ManifestFile), b.text(run.JobLogFile))
	}
	var got []string
	for _, e := range m.Entries {
		got = append(got, fmt.Sprintf("%s %d %.8s %s", e.Kind, e.Size, e.SHA256, e.Relpath))
	}
	want := []string{
		"file 5 " + sum("hello")[:8] + " out/file", "file 1 " + sum("x")[:8] + " out/sub dir/it's $(id) é.txt", "irregular 0  out/link",
		"irregular 0  out/way/through",
		"irregular 0  out/two", "irregular 0  out/three", "irregular 0  out/pipe", "irregular 0  out/folder", "missing 0  out/missing",
		"missing 0  out/no/where",
		"irregular 0  out/dangling", "file 0 " + sum("")[:8] + " out/empty",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if m.Holder.Job != id {
		t.Errorf("holder %+v", m.Holder)
	}
}

// What the program finds around it: nothing of the gateway, nothing of Slurm.
func TestClusterEnvironment(t *testing.T) {
	t.Setenv("SBATCH_TIMELIMIT", "99:00:00")
	t.Setenv("SBATCH_JOB_NAME", "other")
	t.Setenv("SLURM_SECRET", "secret")
	t.Setenv("APPTAINER_BIND", "/etc")
	t.Setenv("APPTAINERENV_SECRET", "secret")
	value := "$(id)\n'`\"\\ é,\u202e=x"
	b := newBench(t, "tr '\\0' '\\n' </proc/$$/environ | grep -v '^PWD=\\|^SHLVL=' | sort; umask; pwd; ls /proc/$$/fd >fds; tr '\\n' ' ' "+
		"<fds; cat", func(_ *Config, j *run.JobSpec) {
		j.Spec.Execution.Command.Env = map[string]string{"A": value}
	})
	id := b.send(t, 1)
	b.ended(t, id)
	want := "'`\"\\ é,\u202e=x\nAPPTAINERENV_A=$(id)\nHOME=" + b.job.AttemptDir() + "/tmp\nLC_ALL=C\nPATH=/usr/bin:/bin\n0077\n" +
		b.job.AttemptDir() + "\n0 1 2 "
	if got := b.text(run.StdoutFile); got != want {
		t.Errorf("got  %q\nwant %q\n%s%s", got, want, b.text(run.StderrFile), b.text(run.JobLogFile))
	}
	if job := b.seen(t, id); job.State != "COMPLETED" {
		t.Errorf("%+v", job)
	}
}
