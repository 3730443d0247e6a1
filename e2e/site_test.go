package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// siteFile holds the values in which the tests' sites differ; an empty field means the usual value.
type siteFile struct {
	Dir, State, Domain, ImageStore, RunsDir string
	Partition, Apptainer                    string
	MaxOutput                               int64
	ReserveMB                               int // 1 when 0
}

func (f siteFile) text() string {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	if f.MaxOutput == 0 {
		f.MaxOutput = 1 << 30
	}
	f.ReserveMB = max(f.ReserveMB, 1)
	return fmt.Sprintf(`version: 1
site: e2e
gateway:
  state_dir: %s
  default_project: demo
domain_dir: %s
slurm:
  transport: cli
  run_as: self
  default_partition: %s
  default_account: research
  accounting: required
  grace_seconds: 2
storage:
  runs_dir: %s
  image_store: %s
  max_output_bytes: %d
  reserve_mb: %d
apptainer:
  path: %s
import:
  roots: [{path: %s/files, projects: [demo]}, {path: %s/data, projects: ["*"]}]
watch:
  floor_seconds: 1
  ceiling_seconds: 5
budget:
  rpc_per_minute: 6000
  sends_in_flight: 4
  staging_workers: 4
`, or(f.State, "/home/lab/"+strings.TrimPrefix(f.Dir, "/shared/")), or(f.Domain, f.Dir+"/domain"), or(f.Partition, "main"),
		or(f.RunsDir, f.Dir+"/runs"), or(f.ImageStore, world.dir+"/images"), f.MaxOutput, f.ReserveMB, or(f.Apptainer, "/usr/bin/apptainer"),
		f.Dir, world.dir)
}

// site is a gateway with its folders, domain and site file.
type site struct {
	t       testing.TB
	dir     string // /shared/…
	outside string // the site file, of a gateway on this machine, outside of the cluster; else empty
	siteFile
}

var (
	siteMu sync.Mutex
	siteN  int
)

// newSite makes a site with a copy of a domain ("genomics" or "probing").
func newSite(t testing.TB, domain string, edit ...func(*siteFile)) *site {
	t.Helper()
	siteMu.Lock()
	siteN++
	dir := fmt.Sprintf("%s/s%02d", world.dir, siteN)
	siteMu.Unlock()
	s := &site{t: t, dir: dir, siteFile: siteFile{Dir: dir}}
	for _, f := range edit {
		f(&s.siteFile)
	}
	must(t, os.MkdirAll(host(dir), 0o755))
	must(t, os.CopyFS(host(dir)+"/domain", os.DirFS(host(world.dir)+"/"+domain)))
	must(t, os.MkdirAll(host(dir)+"/files", 0o755))
	must(t, os.WriteFile(host(dir)+"/site.yaml", []byte(s.text()), 0o644))
	must(t, giveToLab(host(dir)))
	return s
}

// replace edits a file of the site.
func (s *site) replace(name, old, with string) {
	s.t.Helper()
	file := host(s.dir) + "/" + name
	data := value(os.ReadFile(file))(s.t)
	if !bytes.Contains(data, []byte(old)) {
		s.t.Fatalf("%s does not contain %q", name, old)
	}
	must(s.t, os.WriteFile(file, bytes.Replace(data, []byte(old), []byte(with), 1), 0o644))
}

// addTool adds a tool to the site's domain.
func (s *site) addTool(id, pack string) {
	s.t.Helper()
	s.replace("domain/manifest.yaml", "tools:\n", "tools:\n  - {tool_id: "+id+", kind: job_worker}\n")
	must(s.t, os.WriteFile(host(s.dir)+"/domain/toolpacks/"+id+".tool.yaml", []byte(pack), 0o644))
	must(s.t, giveToLab(host(s.dir)))
}

// holdPrograms makes the program of each job wait until release is called. The site's Apptainer is files/apptainer.
func (s *site) holdPrograms() (release func()) {
	s.t.Helper()
	s.file("apptainer", "#!/bin/bash\nuntil [ -e "+s.dir+"/files/go ]; do /bin/sleep 0.2; done\nexec /usr/bin/apptainer \"$@\"\n")
	must(s.t, os.Chmod(host(s.dir)+"/files/apptainer", 0o755))
	return func() { s.file("go", "") }
}

// file writes a file of lab's into the folder that the policy allows, and returns its path.
func (s *site) file(name, content string) string {
	s.t.Helper()
	if s.outside != "" {
		p := filepath.Join(filepath.Dir(s.outside), "files", name)
		must(s.t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(s.t, os.WriteFile(p, []byte(content), 0o644))
		return p
	}
	p := s.dir + "/files/" + name
	must(s.t, os.WriteFile(host(p), []byte(content), 0o644))
	must(s.t, os.Lchown(host(p), world.uid, world.uid))
	return p
}

// data returns the path of one of the demo's files.
func data(name string) string { return world.dir + "/data/" + name }

// result holds the exit status and the output of a command.
type result struct {
	args           []string
	code           int
	stdout, stderr []byte
}

func (r result) String() string {
	return fmt.Sprintf("slurmgate %s: exit %d\n--- stdout\n%s--- stderr\n%s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	if s.outside != "" {
		c := exec.CommandContext(ctx, host(world.dir)+"/slurmgate", args...)
		c.Env, c.WaitDelay = append(os.Environ(), "SLURMGATE_SITE="+s.outside), 10*time.Second
		return c
	}
	return inClusterContext(ctx, "lab", []string{"SLURMGATE_SITE=" + s.dir + "/site.yaml"}, append([]string{world.dir + "/slurmgate"},
		args...)...)
}

// cli runs a command line to its end.
func (s *site) cli(args ...string) result { return s.cliWith(nil, args...) }

func (s *site) cliWith(stdin io.Reader, args ...string) result {
	s.t.Helper()
	ctx, stop := commandContext(s.t)
	defer stop()
	c := s.command(ctx, args...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = stdin, &out, &errs
	err := c.Run()
	r := result{args, c.ProcessState.ExitCode(), out.Bytes(), errs.Bytes()}
	if ctx.Err() != nil {
		s.t.Fatalf("the command has not ended at the deadline of its test: %v", r)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.t.Fatalf("%v, want it to run: %v", r, err)
	}
	return r
}

// object decodes the one JSON object a command line with --json prints.
func (r result) object(t testing.TB, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.stdout))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil || !bytes.HasPrefix(raw, []byte("{")) {
		t.Fatalf("no JSON object on standard output (%v): %v", err, r)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one JSON object on standard output: %v", r)
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("the answer cannot be decoded: %v: %v", err, r)
		}
	}
}

// ok runs a command line with --json that must succeed.
func (s *site) ok(into any, args ...string) {
	s.t.Helper()
	r := s.cli(append(args, "--json")...)
	if r.code != 0 {
		s.t.Fatalf("%v, want exit 0", r)
	}
	r.object(s.t, into)
}

// problem is one broken rule, as errors carry it.
type problem struct {
	Code, Field, Rule, Message, Hint, File string
	Line                                   int
}

// failure is the body of an error.
type failure struct {
	Code, Kind, Message string
	Retryable           bool
	Details             struct {
		Kind     string
		Problems []problem
	}
}

func (r result) failure(t testing.TB, code int) failure {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit %d is due: %v", code, r)
	}
	var e struct{ Error *failure }
	r.object(t, &e)
	if e.Error == nil || e.Error.Code == "" || e.Error.Kind == "" || e.Error.Message == "" {
		t.Fatalf("an error has a code, a kind and a message: %v", r)
	}
	return *e.Error
}

// fails runs a command line with --json that must end with this status and an error.
func (s *site) fails(code int, args ...string) failure {
	s.t.Helper()
	return s.cli(append(args, "--json")...).failure(s.t, code)
}

// refused runs a command line with --json that must end with this status and an error of this code.
func (s *site) refused(status int, code string, args ...string) failure {
	s.t.Helper()
	f := s.fails(status, args...)
	if f.Code != code {
		s.t.Errorf("slurmgate %s fails with %s (%s), want %s", strings.Join(args, " "), f.Code, f.Message, code)
	}
	return f
}

// The answers, as far as these tests read them.
type (
	submitted struct {
		RunID          string   `json:"run_id"`
		SlurmJobID     *string  `json:"slurm_job_id"`
		State          string   `json:"state"`
		Phase          string   `json:"phase"`
		Reason         *string  `json:"reason"`
		Replayed       bool     `json:"replayed"`
		EquivalentRuns []string `json:"equivalent_runs"`
		LogArtifactID  *string  `json:"log_artifact_id"`
	}
	looked struct {
		RunID      string            `json:"target_run_id"`
		SlurmJobID *string           `json:"slurm_job_id"`
		State      string            `json:"state"`
		Phase      string            `json:"phase"`
		Reason     *string           `json:"reason"`
		ExitCode   *int              `json:"exit_code"`
		Roles      map[string]string `json:"artifacts_by_role"`
		Warnings   []string          `json:"warnings"`
		Outputs    []artifactRow     `json:"outputs"` // of a verb that waited
	}
	artifactRow struct {
		ArtifactID string `json:"artifact_id"`
		Type       string `json:"type"`
		Label      string `json:"label"`
		SizeBytes  int64  `json:"size_bytes"`
		SHA256     string `json:"checksum_sha256"`
		Source     string `json:"source"`
		Role       string `json:"role"`
		Relpath    string `json:"relpath"`
		Created    bool   `json:"created"`
	}
	artifactPage struct {
		Artifacts []artifactRow `json:"artifacts"`
	}
	story struct {
		RunID      string `json:"run_id"`
		State      string `json:"state"`
		Reason     string `json:"reason"`
		JobName    string `json:"job_name"`
		SlurmJobID string `json:"slurm_job_id"`
		SlurmState string `json:"slurm_state"`
		Workspace  string `json:"workspace"`
		Sends      []struct {
			Outcome string `json:"outcome"`
		} `json:"sends"`
		Outputs []artifactRow `json:"outputs"`
	}
	runPage struct {
		Runs []struct {
			RunID      string `json:"run_id"`
			State      string `json:"state"`
			SlurmJobID string `json:"slurm_job_id"`
		} `json:"runs"`
	}
)

func (a submitted) String() string {
	return fmt.Sprintf("run %s is %s, %s (replayed %v)", a.RunID, a.State, a.Phase, a.Replayed)
}

func (l looked) String() string {
	return fmt.Sprintf("run %s is %s, %s (%s)", l.RunID, l.State, l.Phase, l.why())
}

func (f failure) String() string { return fmt.Sprintf("%s (%s)", f.Code, f.Message) }

func (l looked) why() string {
	if l.Reason == nil {
		return ""
	}
	return *l.Reason
}

// import1 imports a file and returns its id and checksum.
func (s *site) import1(file string) artifactRow {
	s.t.Helper()
	var a artifactRow
	s.ok(&a, "artifact", "import", file)
	return a
}

// bytesOf reads an artifact through the program.
func (s *site) bytesOf(id string) []byte {
	s.t.Helper()
	r := s.cli("artifact", "get", id, "-o", "-")
	if r.code != 0 {
		s.t.Fatalf("%v, want the bytes of %s", r, id)
	}
	return r.stdout
}

// wait waits for a run's end, however it ends.
func (s *site) wait(runID string) looked {
	s.t.Helper()
	r := s.cli("wait", runID, "--timeout", timeLeft(s.t), "--json")
	var l looked
	r.object(s.t, &l)
	if want := map[string]int{"succeeded": 0, "failed": 6, "cancelled": 6}[l.State]; l.State == "" || r.code != want {
		s.t.Fatalf("a run that is %q ends `wait` with %d: %v", l.State, want, r)
	}
	return l
}

// ends waits for a run's end and wants it to end so.
func (s *site) ends(runID, state string) looked {
	s.t.Helper()
	l := s.wait(runID)
	if l.State != state {
		s.t.Errorf("run %s ended as %s (%s), want %s", runID, l.State, l.why(), state)
	}
	return l
}

// mustEnd waits for a run's end and stops the test where it does not end so.
func (s *site) mustEnd(runID, state string) looked {
	s.t.Helper()
	l := s.ends(runID, state)
	if l.State != state {
		s.t.FailNow()
	}
	return l
}

// hasOneJob wants accounting to have one job of a run.
func (s *site) hasOneJob(runID string) {
	s.t.Helper()
	if n := s.count(runID).Accounted; n != 1 {
		s.t.Errorf("accounting has %d jobs of run %s, want 1", n, runID)
	}
}

// story reads everything about a run.
func (s *site) story(runID string) story {
	s.t.Helper()
	var v story
	s.ok(&v, "runs", "show", runID)
	return v
}

// phase waits until a run is in a phase.
func (s *site) phase(runID, phase string) looked {
	s.t.Helper()
	var l looked
	until(s.t, phase+" of "+runID, func() bool {
		l = looked{}
		s.ok(&l, "get", runID)
		if l.Phase == "done" && phase != "done" {
			s.t.Fatalf("the run ended before it was %s: %s", phase, l.why())
		}
		return l.Phase == phase
	})
	return l
}

// daemon is a running `slurmgate serve`.
type daemon struct {
	cmd  *exec.Cmd
	pid  string // as the cluster counts
	done chan error
	text *syncBuffer

	outside bool // it runs on this machine
}

var servePID = regexp.MustCompile(`\(pid (\d+)\)`)

// serve starts a gateway that stays, and ends it with the test.
func (s *site) serve(flags ...string) *daemon {
	s.t.Helper()
	d := &daemon{cmd: s.command(context.Background(), append([]string{"serve"}, flags...)...), done: make(chan error, 1), text: &syncBuffer{},
		outside: s.outside != ""}
	d.cmd.Stdout, d.cmd.Stderr = d.text, d.text
	must(s.t, d.cmd.Start())
	go func() { d.done <- d.cmd.Wait() }()
	s.t.Cleanup(func() {
		d.signal("TERM")
		select {
		case <-d.done:
		case <-time.After(60 * time.Second):
			s.t.Errorf("serve did not end within 60 s of SIGTERM:\n%s", d.text)
			_ = d.cmd.Process.Kill() // the test has failed already
		}
	})
	until(s.t, "gateway", func() bool {
		if m := servePID.FindStringSubmatch(d.text.String()); m != nil {
			d.pid = m[1]
			return true
		}
		select {
		case err := <-d.done:
			s.t.Fatalf("serve ended: %v\n%s", err, d.text)
		default:
		}
		return false
	})
	return d
}

// signal sends a signal to the daemon, which may have ended.
func (d *daemon) signal(name string) {
	if d.pid != "" && d.outside {
		_ = exec.Command("kill", "-"+name, d.pid).Run()
	} else if d.pid != "" {
		_ = inCluster("lab", "kill", "-"+name, d.pid).Run()
	}
}

// ended waits for the daemon's end and returns its exit status.
func (d *daemon) ended(t testing.TB) int {
	t.Helper()
	select {
	case err := <-d.done:
		d.done <- err // for the clean-up
		d.pid = ""
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(time.Until(deadline(t))):
		t.Fatalf("serve did not end:\n%s", d.text)
		return -1
	}
}

// syncBuffer is a buffer that one goroutine fills while another reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// tree is a plan as a document, so that tests can break it anywhere.
type tree = map[string]any

// probePlan returns a valid plan for the test image: testprog with these arguments, and one declared output.
func probePlan(argv ...string) tree {
	return tree{
		"version":   1,
		"resources": tree{"time_limit_seconds": 600, "cpus": 1, "mem_mb": 100, "gpus": nil, "gpu_type": nil},
		"placement": tree{"partition": "main", "account": "research"},
		"execution": tree{"kind": "container",
			"container": tree{"engine": "apptainer", "image": world.probe, "network_mode": "none", "readonly_rootfs": true},
			"command":   tree{"argv": append([]string{"testprog"}, argv...)}},
		"io": tree{"inputs": []any{}, "outputs": []any{tree{"role": "result", "src_relpath": "out/result", "type": "TEXT", "label": "result"}}},
	}
}

// set changes a value of a plan; the path has its parts separated by dots.
func (s *site) set(doc tree, at string, value any) tree {
	s.t.Helper()
	parts := strings.Split(at, ".")
	here := doc
	for _, p := range parts[:len(parts)-1] {
		here = here[p].(tree)
	}
	here[parts[len(parts)-1]] = value
	return doc
}

// plan writes a plan into a file and returns its path.
func (s *site) plan(doc tree) string {
	s.t.Helper()
	text := value(json.Marshal(doc))(s.t)
	return s.planText(string(text))
}

var planN struct {
	sync.Mutex
	n int
}

func (s *site) planText(text string) string {
	s.t.Helper()
	planN.Lock()
	planN.n++
	name := fmt.Sprintf("plan%03d.json", planN.n)
	planN.Unlock()
	p := path.Join(s.dir, name)
	must(s.t, os.WriteFile(host(p), []byte(text), 0o644))
	if s.outside != "" {
		return host(p)
	}
	return p
}

// submit submits a plan that must be accepted.
func (s *site) submit(doc tree) submitted {
	s.t.Helper()
	var a submitted
	r := s.cli("submit", s.plan(doc), "--json")
	r.object(s.t, &a)
	if want := map[string]int{"failed": 6, "cancelled": 6}[a.State]; a.RunID == "" || r.code != want {
		s.t.Fatalf("exit %d is due for a run that is %s: %v", want, a.State, r)
	}
	return a
}

// as returns the site with another test to fail.
func (s *site) as(t testing.TB) *site {
	c := *s
	c.t = t
	return &c
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
