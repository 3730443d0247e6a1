package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"slurmgate/filetype"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
)

// limit is the longest time from the lift of the last fault until a run has ended or names a verb.
const limit = 120 * time.Second

// trial is one case in progress.
type trial struct {
	*testCase
	s              *site
	observedBefore observed // by the site's connections before
	log            *os.File
	keep           *supervisor
	runID          string
	token          string
	owner          string // whose run it is, with run_as: caller; empty: the gateway's own user's
	seed           string // what the run reads; empty: seedText

	cancels bool // any attempt may have been cancelled, not the newest alone

	twin    *trial        // the second user's run, with run_as: caller
	mates   []*trial      // runs that leave together with this one
	isTwin  bool          // a twin, or a mate; and then:
	file    string        // its plan
	over    chan struct{} // closed: it has ended
	paused  int           // how often its job was suspended
	again   bool          // its job was started again
	array   string        // that it was a task of at last
	renamed int           // jobs that accounting has under other names
	ended   string        // how it ended
	met0    int           // requests that met a fault of the site's signer before

	mu        sync.Mutex
	lifted    time.Time // when the last fault besides the gateway's own was lifted
	pending   int       // faults that are not lifted yet
	answers   []string  // run ids that submits answered with
	cancelled bool      // a cancel was answered
	answered  time.Time // when all callers were
	retried   bool      // a retry was answered
	strange   string    // the job of another user's that has the run's name
	disturbed int       // how often something happened to slurmrestd
	blocked   bool      // the run was blocked, and a cancel resolved it
	fits      bool      // every attempt is a path of the model
	trouble   []finding
	story     string // runs show, at the end
}

// finding is one broken promise.
type finding struct {
	kind string // duplicate, lost, stuck, misattributed; unmodelled, see replay.go; broken, for ledger and artifacts
	text string
}

func (t *trial) find(kind, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trouble = append(t.trouble, finding{kind, fmt.Sprintf(format, args...)})
}

// spec returns the plan of the case; the token makes its run unique.
func (t *trial) spec() plan.Spec {
	sc := t.scenario
	limit := cmp.Or(sc.limit, max(60, 30+int(sc.work.Seconds())))
	if sc.work == untilStopped {
		limit = 600
	}
	s := plan.Spec{Version: plan.SpecVersion, Resources: plan.Resources{TimeLimitSeconds: limit, CPUs: 1, MemMB: 64},
		Placement: plan.Placement{Partition: sc.partition, Account: "research"},
		Execution: plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer", Image: t.s.image, NetworkMode: "none",
			ReadonlyRootfs: true},
			Command: plan.Command{Argv: []string{"chaosprog", t.token, fmt.Sprint(sc.work.Milliseconds()), fmt.Sprint(sc.exit)},
				Workdir: plan.Workdir, Env: map[string]string{}}},
		IO: plan.IO{Inputs: []plan.Input{t.s.input}, Outputs: []plan.Output{{Role: "result", SrcRelpath: "out/result", Type: "TEXT",
			Label: "result"}}}}
	if s.Placement.Partition == "" {
		s.Placement.Partition = "main"
	}
	if sc.qos != "" {
		s.Placement.QOS = &sc.qos
	}
	return s
}

// identify writes the plan and computes the run's identity, which is the same for every caller.
func (t *trial) identify() (file string, err error) {
	spec := t.spec()
	data, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	decoded, err := plan.DecodeSpec(data, plan.Rules{Types: filetype.Names()})
	if err != nil {
		return "", err
	}
	order := run.Order{ToolName: "slurm_submit", ContractVersion: "v1", PolicyHash: t.s.policyHash,
		Params: t.params(decoded, slurm.ScriptVersion)}
	_, id, err := order.Identity()
	if err != nil {
		return "", err
	}
	t.runID = id.RunID()
	if t.owner != "" {
		t.s.owners.Store(t.runID, t.owner)
	}
	file = t.s.home + "/plans/" + t.token + ".json"
	return file, t.s.write(file, string(data))
}

// run carries out the case and leaves what it found in trouble.
func (t *trial) run(ctx context.Context) error {
	if err := errors.Join(t.addTwin(), t.addMates()); err != nil {
		return err
	}
	file, err := t.identify()
	if err != nil {
		return err
	}
	if t.scenario.foreign {
		if err := t.plant(); err != nil {
			return err
		}
	}
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.s.wires.set(networkFaults{})
	t.keep = t.s.keep(ctx, t.log, t.starts)
	defer func() { t.keep.finish(t.brute) }()
	for _, o := range t.others() {
		o.keep = t.keep
	}
	t.assemble(ctx, file)
	t.group.ready(t)
	if err := t.misbehave(); err != nil {
		return err
	}
	defer t.s.lift("sbatch", "squeue", "sacct", "scancel", "sftp-server")
	asBefore, err := t.renameJobs(ctx)
	if err != nil {
		return err
	}
	defer asBefore()
	if t.killSbatch >= 0 {
		t.begin()
		go t.endSbatch(ctx)
	}
	if t.far.cutSend > 0 {
		t.begin()
		go t.cutSend(ctx)
	}
	if t.far.daemon != "" {
		t.begin()
		go t.disturb(ctx)
	}
	if t.far.signer != "" {
		t.begin()
		go t.disturbSigner(ctx)
	}
	if t.far.namesake {
		t.begin()
		go t.pretend(ctx)
	}
	for _, o := range t.others() {
		go o.goAlong(ctx)
	}
	t.depart(ctx)
	var callers sync.WaitGroup
	for range 1 + t.callers() {
		callers.Go(func() { t.submit(ctx, file) })
	}
	if t.scenario.cancel == "soon" {
		t.begin()
		callers.Go(func() {
			defer t.end()
			time.Sleep(t.cancelAfter)
			t.cancel(ctx)
		})
	}
	callers.Wait()
	t.mu.Lock()
	t.answered = time.Now()
	t.mu.Unlock()
	t.follow(ctx)
	for _, o := range t.others() {
		<-o.over
	}
	t.collect(ctx)
	return ctx.Err()
}

func (t *trial) callers() int {
	if t.scenario.double {
		return 1
	}
	return 0
}

// begin and end bracket a fault that is not the gateway's own death.
func (t *trial) begin() {
	for _, o := range t.others() {
		o.begin()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending++
}

func (t *trial) end() {
	for _, o := range t.others() {
		o.end()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	t.lifted = time.Now()
}

// overdue reports whether the time since the last fault has run out.
func (t *trial) overdue() bool {
	_, good := t.keep.alive()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending > 0 || good.IsZero() {
		return false
	}
	since := good
	if t.lifted.After(since) {
		since = t.lifted
	}
	return time.Since(since) > limit
}

// misbehave sets the flags of the scenario and of the case, and lifts them in time.
func (t *trial) misbehave() error {
	for _, f := range append(t.scenario.flags[:len(t.scenario.flags):len(t.scenario.flags)], t.flags...) {
		line := strings.ReplaceAll(f.line, "CLAIM", t.s.dir(t.runID)+"/a1/ctl/claim")
		if err := t.s.flag(f.program, line); err != nil {
			return err
		}
		if f.lift > 0 {
			t.begin()
			go func() {
				time.Sleep(f.lift)
				t.s.lift(f.program)
				t.end()
			}()
		}
	}
	if t.far.String() == "" {
		return nil
	}
	if t.far.sftp != "" {
		if err := t.s.flag("sftp-server", t.far.sftp); err != nil {
			return err
		}
	}
	t.begin()
	go func() {
		defer t.end()
		time.Sleep(t.far.lift)
		t.s.wires.set(networkFaults{})
		t.s.lift("sftp-server")
		if t.far.token > 0 {
			t.s.rest.renew()
		}
	}()
	return nil
}

// plant leaves an attempt folder with a token that no ledger knows.
func (t *trial) plant() error {
	uid, top := t.s.uid, t.s.shared
	if t.owner != "" {
		top += "/of/" + t.owner
		st, err := os.Stat(t.s.path(top))
		if err != nil {
			return err
		}
		uid = int(st.Sys().(*syscall.Stat_t).Uid)
	}
	dir := t.s.path(t.s.dir(t.runID) + "/a1/ctl")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/token", []byte(strings.Repeat("ab", 16)+"\n"), 0o600); err != nil {
		return err
	}
	for d := dir; d != t.s.path(top); d = d[:strings.LastIndexByte(d, '/')] {
		if err := os.Chown(d, uid, uid); err != nil {
			return err
		}
	}
	return os.Chown(dir+"/token", uid, uid)
}

// follow reads the run until it has ended. It cancels a blocked run: that is the verb each of them names.
func (t *trial) follow(ctx context.Context) {
	asked := t.scenario.cancel == "" || t.scenario.cancel == "soon"
	for ctx.Err() == nil {
		if t.overdue() {
			t.find("stuck", "neither at its end nor naming a verb %s after the last fault", limit)
			return
		}
		if !t.awaitGateway(ctx) {
			continue
		}
		var g run.GetAnswer
		err := t.call(ctx, &g, "get", t.runID, "--wait", "2")
		if e, ok := errors.AsType[*cliError](err); ok && e.exit == 3 && e.code == "run_not_found" {
			t.find("lost", "the submit was answered, and there is no run %s", t.runID)
			return
		}
		if err != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		t.heldBySlurm(ctx, g)
		if t.scenario.requeue && !t.again && g.Phase == run.InJob && g.SlurmJobID != nil {
			t.again = true
			t.startAgain(ctx, *g.SlurmJobID)
		}
		if t.scenario.suspend > 0 && t.paused == 0 && g.Phase == run.InJob && g.SlurmJobID != nil {
			t.suspend(ctx, *g.SlurmJobID)
		}
		wanted := t.scenario.cancel == "pending" && g.Phase == run.Pending || t.scenario.cancel == "running" && g.Phase == run.InJob
		switch {
		case g.State == run.Blocked:
			if len(g.NextSteps) == 0 {
				t.find("stuck", "blocked, and no verb is named: %s", g.Phase)
			}
			t.mu.Lock()
			t.blocked = true
			t.mu.Unlock()
			t.cancel(ctx)
		case !g.State.Terminal() && !asked && wanted:
			asked = true
			t.begin()
			t.cancel(ctx)
			t.end()
		case g.State.Terminal() && t.isTwin:
			return
		case g.State.Terminal() && t.scenario.retry && !t.retried:
			t.retry(ctx)
		case g.State.Terminal() && !t.settled():
			t.keep.noMoreFaults()
			time.Sleep(50 * time.Millisecond)
		case g.State.Terminal():
			return
		}
	}
}

// heldBySlurm puts the limit off while Slurm itself holds the job back: after a failed launch it begins a job again only
// when the old credential has expired.
func (t *trial) heldBySlurm(ctx context.Context, g run.GetAnswer) {
	if g.Phase != run.Pending || g.SlurmJobID == nil || g.Reason == nil || !strings.Contains(*g.Reason, "BeginTime") {
		return
	}
	r, err := t.s.run(ctx, "root", nil, "squeue", "-h", "-j", *g.SlurmJobID, "-o", "%T %r %j %Z")
	if err == nil && strings.HasPrefix(r.stdout, "PENDING BeginTime ") && strings.Contains(r.stdout, t.runID) {
		t.begin()
		t.end()
	}
}

// settled reports whether no fault is left and the good gateway answers.
func (t *trial) settled() bool {
	_, good := t.keep.alive()
	t.mu.Lock()
	defer t.mu.Unlock()
	return !good.IsZero() && t.pending == 0
}
