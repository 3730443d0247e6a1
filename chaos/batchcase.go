package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/run"
)

// Cases of batches: the gateway itself submits the rows of a sheet, of one tool or of two steps that feed each other,
// and the batch is cancelled while it does. Once a cancel is acknowledged no row may become a run and no run may be
// sent; after cancel-all nothing may start. The gateway may die at any of this.

// batchPlan describes what a case does with a batch.
type batchPlan struct {
	rows     int
	steps    bool          // two tools, the second of which waits for the first
	cancel   time.Duration // after the batch was accepted
	everyone bool          // by cancel-all instead of batch cancel
	repeat   bool          // the same request is made once more after the cancel, and makes nothing
	again    time.Duration // cancelled rows are submitted again, and cancelled so long after; 0: they are not; negative: they run
}

func (b batchPlan) String() string {
	text := fmt.Sprintf("batch of %d rows", b.rows)
	if b.steps {
		text += " in two steps"
	}
	verb := "cancelled"
	if b.everyone {
		verb = "cancelled by cancel-all"
	}
	text += fmt.Sprintf(", %s after %s", verb, b.cancel)
	if b.repeat {
		text += ", asked for once more"
	}
	switch {
	case b.again > 0:
		text += fmt.Sprintf(", submitted again and cancelled after %s", b.again)
	case b.again < 0:
		text += ", submitted again"
	}
	return text
}

// batchSeams are places that a batch passes, and about how often: once for every part rows.
var batchSeams = []struct {
	name string
	part int
}{{"Store.Insert", 1}, {"Workspace.StageInputs", 2}, {"Store.Apply.run.intent", 6}, {"Submitter.Send", 6}, {"Store.Apply.run.cancelled", 3},
	{"Workspace.TakeClaim", 3}, {"Store.ApplyAll.run.intent", 12}}

// batchPlaces are places that only batches pass.
var batchPlaces = []string{"Store.ApplyAll.run.collecting", "Store.ApplyAll.run.completing"}

// firstBatch is the number of the first case of a batch.
const firstBatch = 1_000_000

// batchCases draws the first n cases of batches, over transports that have one user.
func batchCases(seed uint64, n int, over []carrier) (out []testCase) {
	var self []carrier
	for _, c := range over {
		if c != caller {
			self = append(self, c)
		}
	}
	for i := range n {
		if len(self) == 0 {
			return nil
		}
		r := newSource(seed, firstBatch+i)
		b := &batchPlan{rows: 8 + r.IntN(17), steps: r.chance(40), cancel: r.between(0, 1200*time.Millisecond), everyone: r.chance(40)}
		switch {
		case r.chance(25):
			b.again = r.between(100*time.Millisecond, 2*time.Second)
		case r.chance(25):
			b.again = -1
		}
		b.repeat = r.chance(40)
		c := testCase{n: firstBatch + i, batch: b, scenario: scenarioNamed("plain"), carrier: self[i%len(self)], killSbatch: -1, block: -1,
			brute: r.chance(50)}
		switch {
		case r.chance(40):
			place := batchSeams[r.IntN(len(batchSeams))]
			at := seam{name: place.name, fail: r.chance(30), most: b.rows / place.part}
			if !at.fail {
				at.name += []string{".before", ".after"}[r.IntN(2)]
			}
			c.starts = []start{at.start(r)}
		case r.chance(50):
			c.starts = []start{{after: r.between(200*time.Millisecond, 4*time.Second), pause: r.pause()}}
		}
		out = append(out, c)
	}
	return out
}

// batchPacks returns the toolpacks of batches, by file name.
func batchPacks() map[string]string {
	files := map[string]string{}
	for _, name := range []string{"row", "next"} {
		files["toolpacks/"+name+".tool.yaml"] = strings.ReplaceAll(`id: chaos.NAME
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
deterministic: true
timeoutMs: 600000
limits: {maxInputBytes: 1048576, maxOutputBytes: 1048576}
inputSchema: {type: object, required: [seed, mark, work], additionalProperties: false, properties: {seed: {type: string}, mark: {type: string}, work: {type: integer}}}
outputSchema: {type: object}
inputs: [{role: seed, param: seed, types: [TEXT], destRelpath: in/seed}]
declaredOutputs: [{role: result, type: TEXT, label: result, srcRelpath: out/result}]
container: {image: chaosprog}
resources: {cpus: 1, memMb: 64, timeLimitSeconds: 60}
execution: {kind: cli, cmd: [chaosprog, "{{ params.mark }}", "{{ params.work }}", "0"]}
`, "NAME", name)
	}
	return files
}

const batchSteps = "steps:\n  - {name: a, tool: chaos.row}\n  - {name: b, tool: chaos.next, from: {seed: a.result}}\n"

// period is a time in which rows may become runs.
type period struct{ from, to time.Time }

// batchTrial is a case of a batch in progress.
type batchTrial struct {
	*trial
	name   string
	asked  []period          // in which it was to be submitted
	maybe  map[string]bool   // runs that cancel-all reported as possibly started
	tokens map[string]string // of each sample
	file   string            // the sheet
}

// judgeBatch judges a case of a batch, and books its runs.
func (p *campaigner) judgeBatch(ctx context.Context, t *batchTrial) (run.State, error) {
	runs, err := t.judge(ctx, p.ledgerOf(t.s))
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, runs...)
	p.batches.add(t, runs)
	return "over", nil
}

// run carries out the case.
func (t *batchTrial) run(ctx context.Context) error {
	if err := t.writeSheet(); err != nil {
		return err
	}
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.s.wires.set(networkFaults{})
	t.keep = t.s.keep(ctx, t.log, t.starts)
	defer func() { t.keep.finish(t.brute) }()
	ask := []string{"batch", "run", "chaos.row", "--sheet", t.file, "--name", t.name}
	if t.batch.steps {
		ask = []string{"batch", "run", "--steps", strings.TrimSuffix(t.file, ".csv") + ".yaml", "--sheet", t.file, "--name", t.name}
	}
	from := time.Now()
	t.insist(ctx, ask...)
	sleep(ctx, t.batch.cancel)
	t.cancel(ctx, from)
	if t.batch.repeat {
		t.insist(ctx, ask...)
	}
	if t.batch.again != 0 {
		from = time.Now()
		t.insist(ctx, "batch", "retry", t.name, "--cancelled")
		if t.batch.again > 0 {
			sleep(ctx, t.batch.again)
			t.cancel(ctx, from)
		} else {
			t.asked = append(t.asked, period{from, time.Now().Add(24 * time.Hour)})
		}
	}
	t.follow(ctx)
	return ctx.Err()
}

func (t *batchTrial) writeSheet() error {
	dir := t.s.home + "/plans/"
	t.file = dir + t.token + ".csv"
	sheet := "sample,seed,mark,work\n"
	if t.batch.steps {
		sheet = "sample,a.seed,mark,work\n"
	}
	for i := range t.batch.rows {
		sample := fmt.Sprintf("S%d", i)
		t.tokens[sample] = t.token + "-" + sample
		sheet += fmt.Sprintf("%s,%s,%s,%d\n", sample, t.s.input.ArtifactID, t.tokens[sample], 200+100*(i%8))
	}
	return errors.Join(t.s.write(t.file, sheet), t.s.write(dir+t.token+".yaml", batchSteps))
}

// cancel cancels the batch until that is acknowledged, and notes the time in which rows may have become runs.
func (t *batchTrial) cancel(ctx context.Context, from time.Time) {
	if !t.batch.everyone {
		t.insist(ctx, "batch", "cancel", t.name)
		t.asked = append(t.asked, period{from, time.Now()})
		return
	}
	var out struct {
		Cancelled []app.CancelAnswer `json:"cancelled"`
		Failed    []string           `json:"failed"`
	}
	for again := true; again && ctx.Err() == nil && !t.overdue(); again = len(out.Failed) > 0 {
		t.insistOn(ctx, &out, "cancel-all", "--yes")
	}
	for _, c := range out.Cancelled {
		if !c.State.Terminal() { // sbatch was still running, or the job executes
			t.maybe[c.RunID] = true
		}
	}
	t.asked = append(t.asked, period{from, time.Now()})
}

// follow reads the batch until it has ended.
func (t *batchTrial) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if t.overdue() {
			t.find("stuck", "the batch is not over %s after the last fault", limit)
			return
		}
		if !t.awaitGateway(ctx) {
			continue
		}
		var now app.BatchStatusAnswer
		if err := t.call(ctx, &now, "batch", "status", t.name); err != nil {
			sleep(ctx, 200*time.Millisecond)
			continue
		}
		if now.Over && t.settled() {
			return
		}
		if now.Over {
			t.keep.noMoreFaults()
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
