package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"slurmgate/plan"
	"slurmgate/secrets"
)

// Config is what a site and its policy decide about the lifecycle.
type Config struct {
	Workers     int           // runs staged, sent or collected in parallel
	SendsAtOnce int           // sbatch processes in parallel
	Allowance   time.Duration // added to the program's time limit for the job's; the sum is rounded up to minutes
	SubmitWait  time.Duration // how long a submit waits for its receipt before it answers "staging"
	Floor       time.Duration // least time between two watch cycles
	Ceiling     time.Duration // longest time between two watch cycles
	AbsenceGap  time.Duration // between the two queries that make a started job LOST (rule 8), unless Slurm's MessageTimeout asks for more
	LateOutputs time.Duration // how long outputs may take to appear after the job's end
	OpenRuns    int           // most unfinished runs of one project; 0: no bound
	OutputBytes int64         // bound on outputs, where the tool sets none
	LogBytes    int64         // bytes of each log stream that the log artifact keeps
	Attempts    int           // most attempts, the first included; further ones only after an infrastructure ending
	OneNode     bool          // the site is one host: no other node is left after a node fault
	ReuseAcross bool          // answer with an equivalent run made under another policy
	// SharesRuns reports whether a request in a project is answered with an equivalent run of another user; nil: never.
	SharesRuns   func(projectID string) bool
	Warnings     []string         // added to each run's answer, e.g. that only the image is verified
	Site         string           // the engine has the runs of this site only
	OwnUser      string           // owner of the jobs of runs that are not executed as another user; "": Queue shows no other user's jobs
	Placement    plan.Placement   // the site's defaults, for jobs that name no place
	DeferBackoff time.Duration    // first back-off, doubled up to Ceiling
	Secrets      *secrets.Scanner // with the site's own patterns; nil: without
	InFlight     map[string]int   // most runs of a toolpack in flight, by tool name; a missing tool has no limit
	// How many runs of a project, and of a caller, may be in flight; 0, or a nil function: any number.
	ProjectInFlight func(projectID string) int
	CallerInFlight  func(caller string) int
	Arrays          Arrays                     // when runs are sent as an array
	Program         []byte                     // the script that plans of the kind script execute; nil: none
	Weight          func(projectID string) int // turns of a project for one of another; nil: 1 for each
}

func (c Config) weight(project string) int {
	if c.Weight == nil {
		return 1
	}
	return c.Weight(project)
}

// Parts are the outside systems the engine works through.
type Parts struct {
	Store      Store
	Index      Index
	Renderer   Renderer
	Submitter  Submitter
	Queue      Queue
	Accounting Accounting
	Canceller  Canceller
	Workspace  Workspace
	Images     Images
	Objects    Objects
	Contracts  Contracts
	Formats    Formats
	// Place returns where a job reads its inputs; nil: from private copies.
	Place Placing
	// Pace waits until the site's budget allows another send, and takes it from the budget; nil: it does not wait.
	// first is set for the send of a caller that has sent nothing lately: part of the budget is reserved for those.
	Pace func(ctx context.Context, first bool) error
	// Budget returns how much of the site's budget is used; nil: there is no budget.
	Budget func() Budget
	// Partitions queries the site's Slurm for its partitions; nil: they are unknown.
	Partitions func(ctx context.Context) ([]Partition, error)
	// Connections returns those to hosts of the site, also before it is open; nil: the site is on this host.
	Connections func() []Connection
	// Room returns a fault while the disks, or the quota of the run's project or caller, have no room for another run;
	// nil: not checked.
	Room func(ctx context.Context, s Share) error
	// Admit returns a fault if a new attempt of the share would exceed the quota of its project or its caller. It is
	// called in the transaction that opens the attempt; nil: not checked.
	Admit func(s Share, project, caller Spent) error
	// Allowed asks policy again at the boundary of execution, before anything of an attempt is put in place and before
	// each send: what policy allowed when the run was made it may not allow now. A Policy fault ends the attempt; nil:
	// not checked.
	Allowed func(toolID string, p plan.Params) error
	// Most returns the most memory (MiB) and time (seconds) that a job of the plan can have at the site, as far as
	// known; nil: not checked.
	Most func(ctx context.Context, toolID string, p plan.Params) (mem, time Ceiling)
	// Discard removes the workspace of a finished run, because it filled the disk; nil: the workspace is left to gc.
	Discard func(ctx context.Context, runID string) error
	// Waits is called before a call waits for a run: until resume is called, the call releases what others need. ok is
	// false if its caller has too many waiting calls; nil: nothing is released and waiting calls are not counted.
	Waits func(ctx context.Context) (resume func(), ok bool)
	// Watch counts the bytes that the other parts copy; nil: they are not counted.
	Watch Watch
	Log   *slog.Logger
	Now   func() time.Time
}

// Engine moves the runs of one site through their lifecycle. One engine per site and ledger; all methods are safe for
// concurrent use. Nothing moves until [Engine.Start] is called.
type Engine struct {
	Parts
	cfg      Config
	work     *workQueue[string] // runs that a worker can move on
	users    *userSlots[string] // bounds those of one user in parallel
	checks   *userChecks
	sends    *sendLine
	pending  *pendingArrays
	tasks    *taskNames
	moves    moves
	collects *collectSlots
	pressure *backPressure
	limits   *limiter
	waiters  *waiters
	watcher  *watcher
	cancels  *canceller
	late     *lateFiles
	away     func() error // returns why the site is not open; nil: it is
	disk     *diskHealth
	nodes    nodesSeen
	hung     hungSends
	forged   forgeries
	calls    *workerCalls // set in the engine for calls of service workers; else nil
}

// NewEngine returns an engine.
func NewEngine(cfg Config, p Parts) *Engine {
	if p.Room == nil {
		p.Room = func(context.Context, Share) error { return nil }
	}
	if p.Allowed == nil {
		p.Allowed = func(string, plan.Params) error { return nil }
	}
	if p.Most == nil {
		p.Most = func(context.Context, string, plan.Params) (mem, time Ceiling) { return mem, time }
	}
	if p.Waits == nil {
		p.Waits = func(context.Context) (func(), bool) { return func() {}, true }
	}
	if cfg.Secrets == nil {
		cfg.Secrets = secrets.Default()
	}
	workers := max(1, cfg.Workers)
	work := newWorkQueue[string](cfg.weight, workers)
	tasks := &taskNames{index: p.Index, user: cfg.userOf, runDir: func(id string) string { return p.Workspace.RunDir(id) }}
	p.Queue, p.Accounting = tasks.queue(p.Queue), tasks.accounting(p.Accounting)
	e := &Engine{Parts: p, cfg: cfg, work: work, sends: newSendLine(cfg, p, work.of), tasks: tasks, pending: newPendingArrays(cfg.Arrays),
		users: newUserSlots[string](max(1, workers/2)), checks: &userChecks{users: map[string]int{}, runs: map[string]bool{}},
		collects: newCollectSlots(workers, cfg.weight),
		waiters:  newWaiters(), watcher: newWatcher(p.Now), late: &lateFiles{now: p.Now, since: map[string]time.Time{}},
		disk: &diskHealth{now: p.Now, fresh: 2 * cfg.Ceiling}, hung: hungSends{now: p.Now}}
	e.pressure = newBackPressure(cfg, p.Now, p.Log, e.watcher.wake)
	e.limits = newLimiter(cfg, e.pressure, e.work.add)
	e.cancels = newCanceller(e)
	return e
}

// Start takes up every unfinished run of the ledger, and works and watches until ctx ends. The returned function waits
// for all work in flight; it waits for a running sbatch and never kills it.
func (e *Engine) Start(ctx context.Context) (wait func(), err error) {
	// The watcher offers deferred runs, a thousand at a time.
	open, err := e.Index.Waiting(ctx, "", 0, Staging, Submitting, Collecting)
	if err != nil {
		return nil, err
	}
	if err := e.recallStrays(ctx); err != nil {
		return nil, err
	}
	if err := e.limits.count(ctx, e.Index); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for range max(1, e.cfg.Workers) + 1 { // the last serves a caller without a worker
		wg.Go(func() { e.work.each(ctx, e.advance) })
	}
	for range parallelCancels {
		wg.Go(func() { e.cancels.jobs.each(ctx, e.cancels.carry) })
	}
	wg.Go(func() { e.watch(ctx) })
	e.offer(open)
	return func() {
		e.work.close()
		e.cancels.jobs.close()
		wg.Wait()
		e.pending.wg.Wait()
		e.work.standIns.Wait()
		e.cancels.jobs.standIns.Wait()
		e.checks.flying.Wait()
	}, nil
}

// CaughtUp waits until Slurm has been queried once since [Engine.Start] and the work that followed is done. It returns
// the query's error.
func (e *Engine) CaughtUp(ctx context.Context) error {
	select {
	case <-e.watcher.first:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := e.Settled(ctx); err != nil {
		return err
	}
	_, err := e.Watched()
	return err
}

// Settled waits until no run waits for the gateway itself: every run is with Slurm, deferred or finished, and Slurm was
// asked to cancel what is to be cancelled.
func (e *Engine) Settled(ctx context.Context) error {
	for {
		if err := e.work.idle(ctx); err != nil {
			return err
		}
		if none, err := e.pending.idle(ctx); err != nil {
			return err
		} else if none {
			break
		}
	}
	return e.cancels.jobs.idle(ctx)
}

// advance moves one run as far as possible without waiting for Slurm. An error that belongs to the run is recorded in
// it, every other is logged; the run stays in its phase and is taken up again.
func (e *Engine) advance(ctx context.Context, id string) {
	h, ok := e.waiters.take(id)
	for ctx.Err() == nil {
		var err error
		if !ok {
			if h.view, err = e.Store.View(ctx, id); err != nil {
				e.unread(ctx, "cannot read a run", "run_id", id, "err", err)
				return
			}
		}
		err = e.stepAs(ctx, h)
		switch h, ok = (handed{view: h.view}), false; {
		case err == nil, ctx.Err() != nil:
			e.handBack(id)
			return
		case !stale(err): // if stale, another write changed the run: read it again
			e.Log.Warn("a run could not be moved on", append(about(h.view), "phase", h.view.Run.Phase, "err", err)...)
			e.pressure.delay(id, e.cfg.Floor)
			e.handBack(id)
			return
		}
	}
}

// admit returns the check that the ledger calls for a new attempt of the run.
func (e *Engine) admit(r Run) func(project, caller Spent) error {
	if e.Admit == nil {
		return nil
	}
	return func(project, caller Spent) error { return e.Admit(ShareOf(r), project, caller) }
}

// handBack releases the place that was reserved for a run, unless the run was queued again meanwhile.
func (e *Engine) handBack(id string) {
	if !e.work.queued(id) {
		e.limits.unclaimed(id)
	}
}

// step does what the run's phase requires of the gateway; in a phase without a step the run waits for Slurm or for a
// person. p is the run's stored params if the caller has them, else nil.
func (e *Engine) step(ctx context.Context, v View, p *plan.Params) error {
	if beforeJob[v.Run.Phase] != "" && v.Run.CancelAt != nil {
		return e.cancelUnsent(ctx, v)
	}
	if !e.pressure.due(v.Run.ID) || e.pending.has(v.Run.ID) {
		return nil
	}
	switch v.Run.Phase {
	case Staging:
		if p != nil {
			return e.stageAndSend(ctx, v, placed(*p, v.Attempt))
		}
		p, err := e.params(ctx, v)
		if err != nil {
			return err
		}
		return e.stageAndSend(ctx, v, p)
	case Deferred:
		return e.resend(ctx, v)
	case Submitting:
		return e.recoverSend(ctx, v)
	case Collecting:
		share := ShareOf(v.Run)
		if !e.collects.take(v.Run.ID, share) {
			return nil
		}
		free := sync.OnceFunc(func() {
			if whose, next := e.collects.release(share); next != "" {
				e.work.add(whose, next)
			}
		})
		defer free()
		defer lend(v, free)()
		return e.collect(ctx, v)
	case OutputsLate:
		return e.lookForLate(ctx, v)
	}
	return nil
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

func newSubmission(runID string, n int, now time.Time) Submission {
	token := newToken()
	return Submission{Token: token, JobName: JobName(runID, n, token), CreatedAt: now}
}

// allowed asks policy again.
func (e *Engine) allowed(v View, p plan.Params) error { return e.Allowed(v.Run.ToolID, p) }

// job returns the part of a JobSpec that names the submission; it suffices to find receipts.
func (e *Engine) job(v View, p plan.Params) JobSpec {
	return JobSpec{RunID: v.Run.ID, N: v.Attempt.N, Token: v.Submission.Token, JobName: v.Submission.JobName, ToolID: v.Run.ToolID,
		Principal: v.Run.Principal, Spec: p.Spec,
		RunDir: e.Workspace.RunDir(v.Run.ID), Exclude: v.Attempt.exclude()}
}
