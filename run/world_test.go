package run_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/ledger/ledgertest"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// world is everything outside the gateway that outlives it: Slurm, the shared filesystem, the stores, the ledger's
// file. It fails the test if something forbidden happens: an attempt that executes twice, an sbatch without a durable
// intent, a second sbatch of one send, scancel of a job that is not the gateway's.
type world struct {
	drain  *run.Drain // of the lives that begin; nil: none
	t      *testing.T
	dir    string
	ledger *ledger.Ledger
	cfg    run.Config
	twins  []*world // further clusters under the same ledger
	// allowed is policy's answer at the boundary of execution; nil: it allows everything
	allowed func(toolID string, p plan.Params) error
	most    int                                            // memory of the largest node in MiB; 0: unknown
	waits   func(context.Context) (resume func(), ok bool) // nil: every call may wait
	pace    func(ctx context.Context, first bool) error    // of sends; nil: none
	admit   func(s run.Share, project, caller run.Spent) error
	discard func(runID string) error // nil: nothing is removed
	ahead   time.Duration            // how far the clock of the following lives is ahead

	mu     sync.Mutex
	calls  map[string]int // by operation
	seen   int            // operations in all
	jobs   []*job
	sent   map[string]run.SendResult // "<token>/<k>": what the send's files prove
	held   map[string]bool           // by send: its sbatch is still running
	staged map[string]int            // inputs staged, by run
	shared
	images map[string]bool // by digest; false: the stored bytes are different

	// Set by tests.
	fault      func(op string, n int) outcome        // called at each operation; n counts them
	send       func(n int) sendKind                  // the outcome of the n-th sbatch, from 1
	forge      func(spec run.JobSpec) run.SendResult // the result of a send that the user's side forges; nil: the true one
	deferred   run.SendResult                        // code and scope of deferSend and notRun, if not the default
	accounting func() ([]run.Job, error)             // nil: the cluster has no accounting
	queue      func([]run.Job) []run.Job             // changes squeue's answer; nil: unchanged
	plugin     string                                // the name that a plugin of the site gives to every job; empty: jobs keep their names
	unusable   map[string]run.Unusable               // by name: nodes that accept no jobs
	beside     map[string]string                     // by program: a line that it prints with its answer
	harmless   []string                              // the lines that Harmless was called with
	hidden     error                                 // why Slurm hides jobs; nil: it shows all
	sights     int                                   // calls of SeesAll
	keys       []run.JobKey                          // keys of the queries of usage
	auto       bool                                  // each query of the queue moves every job on by one state
	asked      asked                                 // what the tests' pack requires, other than its schema
	contracts  map[string]error                      // by pack_hash: the result of checking outputs against its schema
	used       []run.Usage                           // usage in accounting, if the cluster has it
	hangs      map[string]string                     // by operation: the user whose host no longer answers it
	hanging    func(op, user string) bool            // whether another operation hangs
	timeout    time.Duration                         // Slurm's MessageTimeout
	scancel    time.Duration                         // duration of each scancel
	cancels    []string                              // ids that scancel was called for, in order
	cancelled  []time.Time                           // when each of these calls came
	deaf       bool                                  // Slurm accepts scancel and cancels nothing
	copying    time.Duration                         // duration of staging
	storing    func(size int) time.Duration          // duration of storing an object; nil: 0
	hung       map[string]bool                       // by job name: the sbatch hangs before Slurm has the job
	slow       bool                                  // sbatch is still running when its gateway stops waiting
	kinds      map[string]runtest.Kind               // by token: sends without a run, see runtest
}

// outcome is what happens to one operation: whether it is carried out, the error that the caller gets, and whether the
// gateway dies at that moment.
type outcome struct {
	skip bool
	err  error
	kill bool
}

type sendKind int

const (
	accept      sendKind = iota
	reject               // Slurm refuses for good
	rejectNodes          // the same, because no node is left for the job
	deferSend            // Slurm has no room
	notRun               // sbatch could not be started
	doubtNone            // no answer, and there is no job
	refuseWords          // an unknown error message, and there is no job
	doubtJob             // no answer, and there is a job
	doubtLate            // no answer, and the job appears when the test sets it
	hangs                // sbatch is still running when the gateway stops waiting
	lostAnswer           // the job is accepted and forgotten: another job gets its id
)

type job struct {
	run.Job
	spec    run.JobSpec
	stays   runtest.Kind // waits or sleeps: the job does not move on by itself
	workDir string
	as      string // the name that Slurm shows after a rename; empty: not renamed
	late    bool   // not shown yet
	forgot  bool   // slurmctld no longer knows it
	foreign bool
}

var errDead = fault.New(fault.Transport, "dead", "this gateway is dead")

// bubble runs a test with its own world and its own time.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir, calls: map[string]int{}, shared: newShared(), images: map[string]bool{strings.Repeat("a", 64): true},
			sent:  map[string]run.SendResult{},
			kinds: map[string]runtest.Kind{}, contracts: map[string]error{packHash: nil}, timeout: 10 * time.Second, held: map[string]bool{},
			staged: map[string]int{},
			cfg: run.Config{Workers: 4, SendsAtOnce: 2, SubmitWait: 5 * time.Second, Floor: time.Second, Ceiling: 10 * time.Second,
				AbsenceGap: time.Minute, LateOutputs: 20 * time.Second,
				OutputBytes: 1 << 20, LogBytes: 4096, Attempts: 1, DeferBackoff: 2 * time.Second}}
		w.ledger = ledgertest.Open(t, filepath.Join(dir, "ledger.db"), ledger.Options{NewID: func() string { return "gw" }})
		defer w.ledger.Close()
		w.store([]byte("reads"))
		f(t, w)
		w.check()
	})
}

// bubbleRun runs bubble as a subtest.
func bubbleRun(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// failing makes operations with these names fail without an effect.
func failing(err error, ops ...string) func(string, int) outcome {
	always := true
	return failingWhile(&always, err, ops...)
}

// failingWhile is failing for as long as on is true.
func failingWhile(on *bool, err error, ops ...string) func(string, int) outcome {
	return func(op string, _ int) outcome {
		if *on && slices.Contains(ops, op) {
			return outcome{skip: true, err: err}
		}
		return outcome{}
	}
}

// check checks what must hold at the end of every test.
func (w *world) check() {
	w.t.Helper()
	if err := w.ledger.Integrity(context.Background()); err != nil {
		w.t.Error(err)
	}
	for _, t := range w.twins {
		t.check()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, a := range w.attempts {
		if a.executions > 1 {
			w.t.Errorf("DUPLICATE: %s executed %d times", name, a.executions)
		}
	}
}

func hash(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func (w *world) store(b []byte) string {
	if err := os.WriteFile(filepath.Join(w.dir, hash(b)), b, 0o600); err != nil {
		w.t.Error(err)
	}
	return hash(b)
}

// the job script, as far as it matters here

// start makes the scheduler start a job: the script takes the claim or ends with 90.
func (w *world) start(j *job) {
	now := time.Now()
	j.State, j.Class, j.Started, j.Node, j.Why = "RUNNING", run.ClassRunning, &now, "n1", "None"
	if j.foreign {
		return
	}
	a := w.attempt(j.spec.RunID, j.spec.N)
	own := fmt.Sprintf("slurmgate-claim 1 %s restart=0 token=%s node=n1\n", j.execution(), j.spec.Token)
	if a.ctl["claim"] == nil {
		a.ctl["claim"] = []byte(own)
	}
	if string(a.ctl["claim"]) != own {
		w.end(j, "FAILED", 90)
		return
	}
	a.executions++
}

func (w *world) end(j *job, state string, code int) {
	now := time.Now()
	j.State, j.Class, j.Ended, j.ExitCode = state, run.ClassEnded, &now, &code
}

// execution returns the words of a control file that identify the job.
func (j *job) execution() string {
	id, task, array := strings.Cut(j.ID, "_")
	if !array {
		task = "-"
	}
	return fmt.Sprintf("job=%s task=%s", id, task)
}

// finish makes the program succeed: exit file, outputs, manifest, COMPLETED.
func (w *world) finish(j *job) {
	a := w.attempt(j.spec.RunID, j.spec.N)
	for _, o := range j.spec.Spec.IO.Outputs {
		if a.out[o.SrcRelpath] == "" {
			a.out[o.SrcRelpath] = `{"role":"` + o.Role + `"}`
		}
	}
	w.exitFile(j, 0, "ok")
	w.manifest(j)
	a.ctl["stdout"], a.ctl["job.log"] = []byte("said\n"), []byte("ok, code 0\n")
	w.end(j, "COMPLETED", 0)
}

func (w *world) exitFile(j *job, code int, reason string) {
	w.attempt(j.spec.RunID, j.spec.N).ctl["exit"] = fmt.Appendf(nil,
		"slurmgate-exit 1 %s restart=0 code=%d reason=%s elapsed=1.5 user=1.0 sys=0.1 node=n1\n", j.execution(), code, reason)
}

func (w *world) manifest(j *job) {
	a := w.attempt(j.spec.RunID, j.spec.N)
	m := fmt.Sprintf("slurmgate-manifest 1 %s restart=0\n", j.execution())
	for _, path := range slices.Sorted(maps.Keys(a.out)) {
		m += fmt.Sprintf("file %s %d %s\n", hash([]byte(a.out[path])), len(a.out[path]), path)
	}
	a.ctl["manifest"] = []byte(m + "end\n")
}

// moveOn moves every job on by one state.
func (w *world) moveOn() {
	for _, j := range w.jobs {
		switch {
		case j.late || j.forgot || j.foreign || w.hung[j.Name]:
		case j.stays == runtest.Waits, j.stays == runtest.Sleeps && j.Class == run.ClassRunning:
		case j.Class == run.ClassPending:
			w.start(j)
		case j.Class == run.ClassRunning:
			w.finish(j)
		}
	}
}

// life is one gateway process: an engine with all its ports. After its death nothing it does has an effect.
type life struct {
	ledger.Index
	w       *world
	engine  *run.Engine
	dead    atomic.Bool
	foreign bool // the jobs run as another user
	cancel  context.CancelFunc
	wait    func()
}

func (w *world) life() *life {
	w.t.Helper()
	l := &life{Index: w.ledger.Index(w.cfg.Site), w: w}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	ahead := w.ahead
	l.engine = run.NewEngine(w.cfg, run.Parts{Store: l, Index: l, Renderer: l, Submitter: l, Queue: l, Accounting: l, Canceller: l,
		Workspace: l,
		Images:    l, Objects: l, Contracts: l, Formats: l, Allowed: w.allowed, Most: w.largest, Waits: w.waits, Pace: w.pace, Admit: w.admit,
		Discard: func(_ context.Context, runID string) error { return w.discarded(runID) },
		Log:     slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(ahead) }})
	l.engine.SetDrain(w.drain) // as a gateway does before it starts
	wait, err := l.engine.Start(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	l.wait = wait
	w.t.Cleanup(l.stop)
	synctest.Wait() // for the first cycle: the next is a floor later, so what a test does now comes before it
	return l
}

func (w *world) discarded(runID string) error {
	if w.discard == nil {
		return nil
	}
	return w.discard(runID)
}

// stop ends the process and waits for what was under way.
func (l *life) stop() { l.cancel(); l.wait() }

// crash stops the process without a chance to store anything.
func (l *life) crash() { l.dead.Store(true); l.stop() }

// do carries out an operation of any port.
func (l *life) do(op string, effect func() error) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.dead.Load() {
		return errDead
	}
	l.w.calls[op]++
	l.w.seen++
	var o outcome
	if l.w.fault != nil {
		o = l.w.fault(op, l.w.seen)
	}
	var err error
	if !o.skip {
		err = effect()
	}
	if o.kill {
		l.dead.Store(true)
		l.cancel()
		return errDead
	}
	if o.err != nil {
		return o.err
	}
	return err
}

func (l *life) Insert(ctx context.Context, n run.New) (v run.View, created bool, err error) {
	err = l.do("Insert", func() (err error) { v, created, err = l.Ledger.Insert(ctx, n); return })
	return v, created, err
}

func (l *life) Apply(ctx context.Context, wr run.Write) (v run.View, err error) {
	err = l.do("Apply", func() (err error) { v, err = l.Ledger.Apply(ctx, wr); return })
	return v, err
}

func (l *life) ApplyAll(ctx context.Context, list []run.Write) (v []run.View, err error) {
	err = l.do("ApplyAll", func() (err error) { v, err = l.Ledger.ApplyAll(ctx, list); return })
	return v, err
}

func (l *life) Withdraw(ctx context.Context, wr run.Write, by run.Withdrawal) (v run.View, held []run.Asker, err error) {
	err = l.do("Apply", func() (err error) { v, held, err = l.Ledger.Withdraw(ctx, wr, by); return })
	return v, held, err
}

// copy takes the time that copying takes.
func (w *world) copy(ctx context.Context) error {
	var takes time.Duration
	if w.with(func() { takes = w.copying }); takes == 0 {
		return nil
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return fault.Wrap("", "", "stopped while copying", ctx.Err())
	}
}

func (l *life) Put(_ context.Context, r io.Reader, limit int64) (sum string, size int64, err error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", 0, err
	}
	var takes func(int) time.Duration
	if l.w.with(func() { takes = l.w.storing }); takes != nil {
		time.Sleep(takes(len(b)))
	}
	err = l.do("Put", func() error {
		if int64(len(b)) > limit {
			return fault.New(fault.Policy, "artifact_too_large", "more than allowed")
		}
		sum, size = l.w.store(b), int64(len(b))
		return nil
	})
	return sum, size, err
}

func (l *life) Reader(_ context.Context, sum string) (io.ReadCloser, int64, error) {
	b, err := os.ReadFile(filepath.Join(l.w.dir, sum))
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), err
}

// Contract returns the contract of the test's pack.
func (l *life) Contract(_ context.Context, packHash string) (run.Contract, error) {
	var judge error
	var ok bool
	l.w.with(func() { judge, ok = l.w.contracts[packHash] })
	if !ok {
		return nil, fault.New(fault.NotFound, "pack_not_found", packHash)
	}
	if fault.Is(judge, fault.Internal) || fault.CodeOf(judge) == "pack_unreadable" {
		return nil, judge
	}
	return contract{l.w.asked, judge}, nil
}

// asked is what the test's pack requires, other than its output schema.
type asked struct {
	timeout     time.Duration // of staging
	bytes, rows int64
	value       error                                             // result of checking a JSON output's content; nil: not checked
	verify      bool                                              // verify the input
	lines       map[string]func(line string) (is, message string) // by role and path, "role path"
	factor      int                                               // the retry factor; 0: none
}

type contract struct {
	asked
	err error
}

func (c contract) Timeout() time.Duration                   { return c.timeout }
func (c contract) CheckOutput(json.RawMessage) error        { return c.err }
func (c contract) Verify(role string) bool                  { return c.verify && role == "bam" }
func (c contract) Least(role string) (bytes, rows int64)    { return c.bytes, c.rows }
func (c contract) AfterOutOfMemory(memMB int) int           { return memMB * max(1, c.factor) }
func (c contract) AfterTimeLimit(seconds int) int           { return seconds * max(1, c.factor) }
func (c contract) Asks(role string) bool                    { return c.value != nil }
func (c contract) CheckValue(string, json.RawMessage) error { return c.value }

func (c contract) LineFiles(role string) (paths []string) {
	for file := range c.lines {
		if of, path, _ := strings.Cut(file, " "); of == role {
			paths = append(paths, path)
		}
	}
	return paths
}

func (c contract) Line(role, path, line string) (is, message string) {
	if means := c.lines[role+" "+path]; means != nil {
		return means(line)
	}
	return "", ""
}

// Check returns the only format check of these tests, for JSON; see run.Formats.
func (l *life) Check(typ string, rows bool) run.FormatCheck { return &formatCheck{typ: typ} }

// CheckInput counts its calls; in these tests every artifact must be JSON.
func (l *life) CheckInput(typ string) run.FormatCheck {
	l.w.with(func() { l.w.calls["CheckInput "+typ]++ })
	return &formatCheck{typ: "JSON"}
}

type formatCheck struct {
	bytes.Buffer
	typ string
}

func (c *formatCheck) Finish() error {
	if c.typ == "JSON" && !json.Valid(c.Bytes()) {
		return errors.New("it is no JSON")
	}
	return nil
}

func (c *formatCheck) Lines() int64 { return int64(bytes.Count(c.Bytes(), []byte("\n"))) }
func (c *formatCheck) Close() error { return nil }

func (l *life) Render(j run.JobSpec) (script, pinned []byte, err error) {
	if err := j.Spec.Validate(plan.Rules{Docker: j.Spec.Placement == (plan.Placement{}), Stored: true}); err != nil { // as the real one
		return nil, nil, err
	}
	pinned = []byte(j.Spec.ImageDigest() + "  " + j.ImagePath + "\n")
	for _, in := range j.Spec.IO.Inputs {
		pinned = append(pinned, in.ChecksumSHA256+"  "+in.DestRelpath+"\n"...)
	}
	return []byte("#!/bin/bash\n" + j.JobName + "\n"), pinned, nil
}

func (l *life) RenderArray(j run.JobSpec) ([]byte, error) {
	script := "#!/bin/bash\n" + j.Array.Name + "\n"
	for _, t := range j.Array.Tasks {
		script += t.AttemptDir + " " + t.ScriptSHA + "\n"
	}
	return []byte(script), nil
}

func (l *life) Send(ctx context.Context, spec run.JobSpec, k int) (res run.SendResult) {
	hang := false
	if l.hang(ctx, "Send", spec.RunID) {
		return run.SendResult{Outcome: run.SendDoubt, Code: "send_held"}
	}
	err := l.do("Send", func() error {
		res, hang = l.w.sbatch(spec, k)
		return nil
	})
	switch {
	case hang:
		<-ctx.Done()
		return run.SendResult{Outcome: run.SendDoubt, Code: "send_held"}
	case err != nil:
		return run.SendResult{Outcome: run.SendDoubt, Text: err.Error()}
	}
	return res
}

// hang blocks an operation as a user whose host no longer answers until the gateway ends. hung: it was blocked.
func (l *life) hang(ctx context.Context, op, runID string) (hung bool) {
	var user string
	var hanging func(op, user string) bool
	if l.w.with(func() { user, hanging = l.w.hangs[op], l.w.hanging }); user == "" && hanging == nil {
		return false
	}
	of, err := l.w.ledger.UserOf(context.Background(), runID)
	if hung = err == nil && of != "" && (of == user || hanging != nil && hanging(op, of)); hung {
		<-ctx.Done()
	}
	return hung
}

// sbatch runs one sbatch process and slurmctld's part in it.
func (w *world) sbatch(spec run.JobSpec, k int) (res run.SendResult, hang bool) {
	key := fmt.Sprintf("%s/%d", spec.Token, k)
	kind, alone := w.kinds[spec.Token]
	res, twice := w.sent[key]
	switch {
	case twice && w.held[key]:
		return run.SendResult{Outcome: run.SendDoubt, Code: "send_held"}, false
	case twice && alone:
		return res, false
	case twice:
		w.t.Errorf("second sbatch of send %s", key)
	case alone: // no gateway made this send
		return w.outcome(spec, key, map[runtest.Kind]sendKind{runtest.Wrong: reject, runtest.NoRoom: deferSend}[kind])
	}
	for i, s := range tasksOf(w, spec) {
		v, err := w.ledger.View(context.Background(), s.RunID)
		if err != nil || v.Run.Phase != run.Submitting && v.Run.Phase != run.Unconfirmed || v.Submission.Token != s.Token ||
			s.RunID == spec.RunID && v.Sends != k ||
			(spec.Array != nil) != (v.Attempt.ArrayTask != nil) || spec.Array != nil && (v.Submission.Array != spec.Array.Name ||
			*v.Attempt.ArrayTask != i) {
			w.t.Errorf("sbatch was started while the run was %v (%v), want a recorded send first", v.Run.Phase, err)
		}
		if a := w.attempt(s.RunID, s.N); spec.Array != nil && (a == nil || hash(a.ctl["script"]) != spec.Array.Tasks[i].ScriptSHA) {
			w.t.Error("an array was sent before everything was in place")
		}
	}
	if k > 1 && w.attempt(spec.RunID, spec.N) == nil { // the folder was removed meanwhile
		w.sent[key] = run.SendResult{Outcome: run.SendNotRun, Code: "control_unwritable", Text: "no such file or directory"}
		return w.sent[key], false
	}
	if a := w.attempt(spec.RunID, spec.N); a == nil || a.token != spec.Token || a.ctl["script"] == nil || a.ctl["pinned.sha256"] == nil ||
		spec.Array != nil && a.ctl[run.ArrayFile(k)] == nil {
		w.t.Error("sbatch before everything was in place")
	}
	if w.forge != nil { // the user's own shell returns this result
		w.sent[key] = w.forge(spec)
		return w.sent[key], false
	}
	become := accept
	if w.send != nil {
		become = w.send(len(w.sent) + 1)
	}
	return w.outcome(spec, key, become)
}

// outcome carries out an sbatch with the outcome of its kind.
func (w *world) outcome(spec run.JobSpec, key string, kind sendKind) (res run.SendResult, hang bool) {
	doubt := run.SendResult{Outcome: run.SendDoubt}
	code := 1
	w.sent[key] = doubt
	switch kind {
	case accept, hangs, lostAnswer:
		j := w.submit(spec)
		zero := 0
		id, _, _ := strings.Cut(j.ID, "_")
		res = run.SendResult{Outcome: run.SendAccepted, JobID: id, Cluster: "c1", ExitCode: &zero, Text: id}
		w.sent[key] = res
		w.held[key] = kind == hangs || w.slow
		if kind == hangs && w.hung != nil {
			w.hung[j.Name] = true
		}
		if kind == lostAnswer {
			w.each(j, func(j *job) { j.forgot = true })
			other := &job{Job: j.Job, foreign: true}
			other.Name = "someone-elses"
			w.jobs = append(w.jobs, other)
		}
		return res, w.held[key]
	case reject:
		res = run.SendResult{Outcome: run.SendRejected, Code: "ESLURM_INVALID_PARTITION_NAME", ExitCode: &code,
			Text: "sbatch: error: Invalid partition name specified"}
	case rejectNodes:
		res = run.SendResult{Outcome: run.SendRejected, Code: "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", ExitCode: &code,
			Text: "sbatch: error: Batch job submission failed: Requested node configuration is not available"}
	case deferSend:
		res = run.SendResult{Outcome: run.SendDeferred, Code: "QOSMaxSubmitJobPerUserLimit", Scope: w.deferred.Scope, ExitCode: &code,
			Text: "no room"}
		if w.deferred.Code != "" {
			res.Code = w.deferred.Code
		}
	case refuseWords:
		res = run.SendResult{Outcome: run.SendDoubt, Code: run.RefusedInWords, ExitCode: &code,
			Text: "sbatch: error: Project alice-2 has used its hours\nsbatch: error: Batch job submission failed: Unspecified error"}
	case notRun:
		return run.SendResult{Outcome: run.SendNotRun, Code: "sbatch_not_started", Text: "exec: not found"}, false
	case doubtJob:
		w.submit(spec)
		return doubt, false
	case doubtLate:
		w.each(w.submit(spec), func(j *job) { j.late = true })
		return doubt, false
	default:
		return doubt, false
	}
	w.sent[key] = res
	return res, false
}

// tasksOf returns the jobs of an sbatch: one, or the tasks of an array.
func tasksOf(w *world, spec run.JobSpec) (list []run.JobSpec) {
	if spec.Array == nil {
		return []run.JobSpec{spec}
	}
	for _, t := range spec.Array.Tasks {
		id := run.RunOf(t.JobName)
		one := run.JobSpec{RunID: id, N: 1, JobName: t.JobName, Spec: spec.Spec}
		if a := w.attempt(id, 1); a != nil {
			one.Token = a.token
		}
		list = append(list, one)
	}
	return list
}

// submit creates the jobs of an sbatch, and returns the first.
func (w *world) submit(spec run.JobSpec) (first *job) {
	if spec.Array == nil {
		first = w.submitOne(spec)
		first.workDir = spec.WorkDir()
		return first
	}
	array := fmt.Sprint(100 + len(w.jobs))
	for i, s := range tasksOf(w, spec) {
		j := w.submitOne(s)
		j.workDir = spec.WorkDir()
		j.ID, j.Task, j.Name = run.TaskID(array, i), new(i), spec.Array.Name
		if i == 0 {
			first = j
		}
	}
	return first
}

// each sets something on all jobs of an sbatch.
func (w *world) each(first *job, set func(*job)) {
	array, _, tasks := strings.Cut(first.ID, "_")
	for _, j := range w.jobs {
		if j == first || tasks && strings.HasPrefix(j.ID, array+"_") {
			set(j)
		}
	}
}

func (w *world) submitOne(spec run.JobSpec) *job {
	now := time.Now()
	user, err := w.ledger.UserOf(context.Background(), spec.RunID)
	if err != nil || user == "" {
		user = "gateway" // for a conformance test's job, which has no run
	}
	j := &job{spec: spec, as: w.plugin, stays: w.kinds[spec.Token], Job: run.Job{Cluster: "c1", ID: fmt.Sprint(100 + len(w.jobs)),
		Name: spec.JobName, User: user, State: "PENDING", Class: run.ClassPending, Why: "Priority", Restarts: 0, Submitted: &now}}
	w.jobs = append(w.jobs, j)
	return j
}

func (l *life) Receipt(_ context.Context, spec run.JobSpec, k int) (res run.SendResult, held bool) {
	if err := l.do("Receipt", func() error {
		key := fmt.Sprintf("%s/%d", spec.Token, k)
		held = l.w.held[key]
		if res = l.w.sent[key]; held || res.Outcome == "" {
			res = run.SendResult{Outcome: run.SendDoubt}
		}
		if held {
			res.Code, res.Text = run.SendHeld, "sbatch has not ended (process 7)"
		}
		return nil
	}); err != nil {
		return run.SendResult{Outcome: run.SendDoubt}, true
	}
	return res, held
}

func (l *life) Jobs(_ context.Context, sought map[string]bool) (list []run.Job, err error) {
	err = l.do("Queue", func() error {
		if l.w.auto {
			l.w.moveOn()
		}
		for _, j := range l.w.jobs {
			if !j.late && !j.forgot && !l.w.hung[j.Name] {
				list = append(list, j.shown())
			}
		}
		if l.w.queue != nil {
			list = l.w.queue(list)
		}
		list = slices.DeleteFunc(list, func(j run.Job) bool {
			return j.Class != run.ClassUnread && !strings.HasPrefix(j.Name, "sg-") && !sought[j.ID] && j.WorkDir == ""
		})
		list = append(list, l.w.besides("squeue")...)
		return nil
	})
	return list, err
}

func (l *life) Records(ctx context.Context, since time.Time, _ ...run.JobKey) (list []run.Job, err error) {
	err = l.do("Accounting", func() error {
		if l.w.accounting == nil {
			_, err := run.NoAccounting{}.Records(ctx, since)
			return err
		}
		list, err = l.w.accounting()
		list = append(list, l.w.besides("sacct")...)
		return err
	})
	return list, err
}

// told returns the lines known to be harmless.
func (w *world) told() (list []string) {
	w.with(func() { list = slices.Clone(w.harmless) })
	return list
}

// besides returns the record of another line that a program printed, unless that is known to be harmless.
func (w *world) besides(program string) []run.Job {
	if line := w.beside[program]; line != "" && !slices.Contains(w.harmless, line) {
		return []run.Job{{Class: run.ClassUnread, Why: line, Beside: true}}
	}
	return nil
}

// shown returns the job as Slurm shows it.
func (j *job) shown() run.Job {
	one := j.Job
	if j.as != "" {
		one.Name = j.as
	}
	if run.Renamed([]byte(one.Name), []byte(j.workDir)) {
		one.WorkDir = j.workDir
	}
	return one
}

// Cancel does what scancel --name=NAME ID does.
func (l *life) Cancel(ctx context.Context, id, name, shown string) error {
	runID := run.RunOf(name)
	if run.IsArrayName(name) {
		row, err := l.w.ledger.Index(l.w.cfg.Site).Array(context.Background(), name)
		if err != nil && !fault.Is(err, fault.NotFound) { // the suite of arrays has no ledger
			l.w.t.Error(err)
		}
		runID = row.RunID
	}
	l.hang(ctx, "Cancel", runID)
	l.w.mu.Lock()
	takes := l.w.scancel
	l.w.mu.Unlock()
	time.Sleep(takes)
	return l.do("Cancel", func() error {
		ids := run.JobIDs(id)
		l.w.cancels, l.w.cancelled = append(l.w.cancels, id), append(l.w.cancelled, time.Now())
		if l.w.deaf {
			return nil
		}
		for _, j := range l.w.jobs {
			if slices.Contains(ids, j.ID) && j.shown().Name == cmp.Or(shown, name) && !j.late && !j.forgot && j.Class != run.ClassEnded {
				if j.Class == run.ClassRunning {
					l.w.exitFile(j, 143, "terminated")
				}
				l.w.end(j, "CANCELLED", 0)
			}
		}
		return nil
	})
}

func (l *life) Usage(ctx context.Context, since time.Time, of ...run.JobKey) (list []run.Usage, err error) {
	err = l.do("Usage", func() error {
		l.w.keys = append(l.w.keys, of...)
		if l.w.accounting == nil {
			_, err := run.NoAccounting{}.Usage(ctx, since)
			return err
		}
		list = l.w.used
		return nil
	})
	return list, err
}

func (l *life) Harmless(why string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.harmless = append(l.w.harmless, why)
}

func (l *life) Unusable(context.Context) (list map[string]run.Unusable, err error) {
	err = l.do("Unusable", func() error { list = l.w.unusable; return nil })
	return list, err
}

func (l *life) SeesAll(context.Context) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.sights++
	return l.w.hidden
}

func (l *life) MessageTimeout(context.Context) (d time.Duration, err error) {
	err = l.do("MessageTimeout", func() error { d = l.w.timeout; return nil })
	return d, err
}

// What tests call.

const project = "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY"

// pack is the definition of the tests' pack; the fake contracts do not read it.
const pack = `{"id":"test.tool"}`

var packHash = plan.Hash([]byte(pack))

// order returns the request of the tests: one input, two outputs. Each change gives another identity.
func order(change ...func(*plan.Params)) run.Order {
	sum := hash([]byte("reads"))
	id, err := plan.ArtifactID(project, sum, "BAM", "reads")
	if err != nil {
		panic(err)
	}
	doc, err := json.Marshal(map[string]any{
		"version": 1, "resources": map[string]any{"time_limit_seconds": 60, "cpus": 1, "mem_mb": 100},
		"placement": map[string]any{"partition": "short", "account": "lab"},
		"execution": map[string]any{"kind": "container", "container": map[string]any{"engine": "apptainer",
			"image": "sha256:" + strings.Repeat("a", 64), "network_mode": "none", "readonly_rootfs": true},
			"command": map[string]any{"argv": []string{"tool"}}},
		"io": map[string]any{"inputs": []any{map[string]any{"role": "bam", "artifact_id": id, "checksum_sha256": sum,
			"dest_relpath": "in/x.bam"}},
			"outputs": []any{map[string]any{"role": "report", "src_relpath": "out/report.json", "type": "JSON", "label": "report"},
				map[string]any{"role": "table", "src_relpath": "out/t.tsv", "type": "TSV", "label": "table"}}},
	})
	if err != nil {
		panic(err)
	}
	spec, err := plan.DecodeSpec(doc, plan.Rules{})
	if err != nil {
		panic(err)
	}
	o := run.Order{ToolID: "test.tool", ToolName: "test_tool", ToolVersion: "1.0.0", ContractVersion: "v1", PackHash: packHash,
		Pack: json.RawMessage(pack), Policy: json.RawMessage(`{"version":1}`), Actor: "human",
		Params: plan.Params{ProjectID: project, Script: "slurm_script_v1", Spec: spec, Tool: &plan.ToolExtra{Version: "1.0.0",
			MaxOutputBytes: 1000}}}
	o.PolicyHash = plan.Hash(o.Policy)
	for _, c := range change {
		c(&o.Params)
	}
	return o
}

// submit submits the order, which must succeed.
func (l *life) submit(o run.Order) run.SubmitAnswer {
	l.w.t.Helper()
	l.w.input(o)
	a, err := l.engine.Submit(context.Background(), o)
	if err != nil {
		l.w.t.Fatal(err)
	}
	return a
}

// cancelRun cancels a run, which must succeed.
func (l *life) cancelRun(runID string) {
	l.w.t.Helper()
	if _, err := l.engine.Cancel(context.Background(), runID, "enough", run.Withdrawal{All: true}); err != nil {
		l.w.t.Fatalf("Cancel(%s): %v", runID, err)
	}
}

// submitted returns a gateway and the answer to an order submitted to it.
func (w *world) submitted() (*life, run.SubmitAnswer) {
	w.t.Helper()
	l := w.life()
	return l, l.submit(order())
}

// running returns submitted once the run's phase is running.
func (w *world) running() (*life, run.SubmitAnswer) {
	w.t.Helper()
	l, a := w.submitted()
	w.startJob(a.RunID)
	return l, a
}

// untilAll waits until ok is true for each run.
func (w *world) untilAll(ids []string, ok func(run.View) bool) {
	w.t.Helper()
	for _, id := range ids {
		w.until(id, ok)
	}
}

// wantAll waits until the runs have ended, and fails the test unless each has this state and reason.
func (w *world) wantAll(ids []string, state run.State, reason string) {
	w.t.Helper()
	for _, id := range ids {
		w.ended(id, state, reason)
	}
}

// ended waits until a run has ended, and fails the test unless it has this state and reason.
func (w *world) ended(id string, state run.State, reason string) run.View {
	w.t.Helper()
	v := w.until(id, done)
	w.want(v, state, reason)
	return v
}

// submitAll submits orders, one after another.
func (l *life) submitAll(list []run.Order) {
	l.w.t.Helper()
	for _, o := range list {
		l.submit(o)
	}
}

// submitEach submits orders, each after ok is true for the run before.
func (l *life) submitEach(list []run.Order, ok func(run.View) bool) {
	l.w.t.Helper()
	for _, o := range list {
		l.w.until(l.submit(o).RunID, ok)
	}
}

// startJob starts the first job, and waits until the run's phase is running.
func (w *world) startJob(runID string) {
	w.t.Helper()
	w.with(func() { w.start(w.jobs[0]) })
	w.until(runID, in(run.InJob))
}

// input registers the order's input artifact.
func (w *world) input(o run.Order) {
	in := o.Params.Spec.IO.Inputs[0]
	if _, _, err := w.ledger.AddArtifact(context.Background(), run.Artifact{ID: in.ArtifactID, ProjectID: project, SHA256: in.ChecksumSHA256,
		Type: "BAM", Label: "reads", SizeBytes: 5, Source: "import"}); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for up to an hour of the world's time until a run satisfies the condition.
func (w *world) until(runID string, there func(run.View) bool) run.View {
	w.t.Helper()
	for range 3600 {
		v, err := w.ledger.View(context.Background(), runID)
		if err != nil {
			w.t.Fatal(err)
		}
		if there(v) {
			return v
		}
		time.Sleep(time.Second)
	}
	v, _ := w.ledger.View(context.Background(), runID)
	w.t.Fatalf("STUCK in %s/%s: %s %s", v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail)
	return v
}

func in(p run.Phase) func(run.View) bool { return func(v run.View) bool { return v.Run.Phase == p } }

func done(v run.View) bool { return v.Run.State.Terminal() }

// with changes the world under its lock.
func (w *world) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) largest(context.Context, string, plan.Params) (mem, time run.Ceiling) {
	return run.Ceiling{Most: w.most, Why: "the largest node"}, run.Ceiling{}
}

func (w *world) count(op string) (n int) { w.with(func() { n = w.calls[op] }); return n }

// job returns the i-th job that Slurm was given.
func (w *world) job(i int) (j *job) { w.with(func() { j = w.jobs[i] }); return j }

// slurm returns Slurm's present record of the i-th job.
func (w *world) slurm(i int) (j run.Job) { w.with(func() { j = w.jobs[i].Job }); return j }

// events returns the types of a run's events in order.
func (w *world) events(runID string) (list []string) {
	events, err := w.ledger.Events(context.Background(), runID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		list = append(list, strings.TrimPrefix(e.Type, "run."))
	}
	return list
}

// outputs returns the content of a run's registered outputs, by role.
func (w *world) outputs(runID string) map[string]string {
	list, err := w.ledger.Outputs(context.Background(), runID)
	if err != nil {
		w.t.Fatal(err)
	}
	m := map[string]string{}
	for _, o := range list {
		b, err := os.ReadFile(filepath.Join(w.dir, o.Artifact.SHA256))
		if o.Role == "slurm_script" {
			b, err = w.ledger.Payload(context.Background(), o.Artifact.SHA256)
		}
		if err != nil || int64(len(b)) != o.Artifact.SizeBytes && o.Artifact.Type != plan.Directory { // whose size is that of its files
			w.t.Errorf("the output %+v has %d bytes %v, want its size", o, len(b), err)
		}
		m[o.Role] = string(bytes.TrimSpace(b))
	}
	return m
}

func (w *world) want(v run.View, state run.State, reason string) {
	w.t.Helper()
	if v.Run.State != state || v.Run.Reason != reason {
		w.t.Errorf("%s (%s: %s), want %s (%s)", v.Run.State, v.Run.Reason, v.Run.Detail, state, reason)
	}
}

// wantCount fails the test unless an operation was done this often.
func (w *world) wantCount(op string, want int) {
	w.t.Helper()
	if n := w.count(op); n != want {
		w.t.Errorf("%s was done %d times, want %d", op, n, want)
	}
}

// wantPhase fails the test unless an order is answered with a run in that phase.
func (l *life) wantPhase(o run.Order, want run.Phase) {
	l.w.t.Helper()
	if a := l.submit(o); a.Phase != want {
		l.w.t.Errorf("the order is answered %+v, want a run that is %s", a, want)
	}
}

// wantSame fails the test unless an order is answered with the existing run.
func (l *life) wantSame(o run.Order, id string) {
	l.w.t.Helper()
	if a := l.submit(o); !a.Replayed || a.RunID != id {
		l.w.t.Errorf("the order is answered %+v, want the run %s", a, id)
	}
}

// wantCancel fails the test unless a cancel of a run has this answer; empty: any.
func (l *life) wantCancel(id string, state run.State, executed string) {
	l.w.t.Helper()
	got, err := l.engine.Cancel(context.Background(), id, "", run.Withdrawal{})
	if err != nil || state != "" && got.State != state || executed != "" && got.Executed != executed {
		l.w.t.Errorf("the cancel is answered %+v, %v; want %s, executed: %s", got, err, state, executed)
	}
}

var errTransient = fault.Wrap(fault.Transport, "transient", "it did not work this time", errors.New("input/output error"))

var ledgerAll = ledger.Filter{}

// hasStep reports whether the run's next steps include a verb, and no command is recorded with the run.
func hasStep(v run.View, verb string) bool {
	return !strings.Contains(v.Run.Detail, "slurmgate ") && slices.ContainsFunc(run.NextSteps(v),
		func(s fault.Step) bool { return s.Verb == verb })
}
