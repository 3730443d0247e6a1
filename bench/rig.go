package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"slurmgate/apptainer"
	"slurmgate/artifact"
	"slurmgate/filetype"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
	"slurmgate/staging"
)

// rig is a gateway without a shell: every part is the real one, wired as cmd/slurmgate does.
//
//	<dir>/ledger.db   <dir>/runs   <dir>/artifacts   <dir>/images   <dir>/locks   <dir>/bin   <dir>/gateway.log
type rig struct {
	dir     string
	ledger  *ledger.Ledger
	staging *staging.Shared
	cli     *slurm.CLI
	engine  *run.Engine
	parts   run.Parts
	rates   rates
	arrays  run.Arrays
	store   *artifact.Store
	log     *os.File
	closers []func()
	image   string // sha256:…
	input   plan.Input
}

// rates holds the settings of an admin.
type rates struct {
	rpcPerMinute   int
	floor, ceiling time.Duration
}

// unlimited measures the code, not the rate limit.
var unlimited = rates{rpcPerMinute: 1_000_000, floor: 2 * time.Second, ceiling: 10 * time.Second}

const project = "bench"

var script = slurm.ScriptConfig{Runtime: slurm.Runtime{Path: "/usr/bin/apptainer"}, Verify: slurm.VerifyAll, GraceSeconds: 10,
	VerifyAllowanceSeconds: 300}

// openRig opens the rig in dir and creates what is missing. Nothing is started.
func openRig(ctx context.Context, dir string, r rates) (g *rig, err error) {
	g = &rig{dir: dir}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot open the rig: %w", errors.Join(err, g.close()))
		}
	}()
	if err := os.MkdirAll(filepath.Join(dir, "runs"), 0o700); err != nil {
		return g, err
	}
	if g.log, err = os.OpenFile(filepath.Join(dir, "gateway.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return g, err
	}
	if g.ledger, err = ledger.Open(ctx, filepath.Join(dir, "ledger.db"), ledger.Options{Filesystem: staging.Filesystem,
		NewID: func() string { return "gw-bench" }}); err != nil {
		return g, err
	}
	if g.staging, err = staging.NewShared(staging.Config{RunsDir: filepath.Join(dir, "runs"), GatewayID: g.ledger.ID()}); err != nil {
		return g, err
	}
	if g.store, err = artifact.Open(filepath.Join(dir, "artifacts")); err != nil {
		return g, err
	}
	g.ledger.CheckBytes(g.store.Has)
	g.store.Consult(g.ledger)
	images, err := g.openImages(ctx)
	if err != nil {
		return g, err
	}
	if err := g.addInput(ctx); err != nil {
		return g, err
	}
	if err := g.commands(); err != nil {
		return g, err
	}
	if g.cli, err = slurm.NewCLI(slurm.Config{BinDir: filepath.Join(dir, "bin"), LocksDir: filepath.Join(dir, "locks"), User: user,
		Script: script, RPCPerMinute: r.rpcPerMinute}); err != nil {
		return g, err
	}
	g.parts = run.Parts{Store: g.ledger, Index: g.ledger.Index("bench"), Renderer: g.cli, Submitter: g.cli, Queue: g.cli, Accounting: g.cli,
		Canceller: g.cli, Pace: g.cli.Pace,
		Workspace: g.staging, Images: images, Objects: g.store, Contracts: noContracts{}, Formats: noFormats{},
		Log: slog.New(slog.NewTextHandler(g.log, nil)), Now: time.Now}
	g.rates = r
	g.engine = g.newEngine()
	return g, nil
}

// newEngine creates an engine that has not started; an engine can start only once.
func (g *rig) newEngine() *run.Engine {
	return run.NewEngine(run.Config{
		Workers: 2 * workers, SendsAtOnce: workers, SubmitWait: 2 * time.Minute, Floor: g.rates.floor, Ceiling: g.rates.ceiling,
		AbsenceGap:  time.Minute,
		LateOutputs: time.Minute, DeferBackoff: 5 * time.Second, OutputBytes: 1 << 30, LogBytes: 1 << 20, Attempts: 1, Site: "bench",
		Arrays: g.arrays,
	}, g.parts)
}

// workers is the number of sbatch that run at a time, with the gateway and without.
const workers = 4

func (g *rig) openImages(ctx context.Context) (apptainer.Images, error) {
	store, err := apptainer.OpenStore(filepath.Join(g.dir, "images"))
	if err != nil {
		return apptainer.Images{}, err
	}
	img, err := store.Add(ctx, filepath.Join(filepath.Dir(g.dir), "image.sif"))
	if err != nil {
		return apptainer.Images{}, err
	}
	if path, err := store.Verify(ctx, img.Digest); err == nil { // an image younger than two seconds is hashed for each run
		if info, err := os.Stat(path); err == nil {
			time.Sleep(time.Until(info.ModTime().Add(2500 * time.Millisecond)))
		}
	}
	g.image = img.Ref()
	return apptainer.Images{Store: store, Runtime: apptainer.NewRuntime(apptainer.Config{})}, nil
}

// addInput stores the one input of every run.
func (g *rig) addInput(ctx context.Context) error {
	data := bytes.Repeat([]byte("ACGT"), 1024)
	sum, size, err := g.store.Put(ctx, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	a := run.Artifact{ProjectID: plan.ProjectID(project), SHA256: sum, Type: "TEXT", Label: "reads", SizeBytes: size, Source: "import"}
	if a.ID, err = plan.ArtifactID(a.ProjectID, sum, a.Type, a.Label); err != nil {
		return err
	}
	g.input = plan.Input{Role: "reads", ArtifactID: a.ID, ChecksumSHA256: sum, DestRelpath: "in/reads.txt"}
	_, _, err = g.ledger.AddArtifact(ctx, a)
	return err
}

// commands creates the folder of Slurm's commands. All are the system's own except squeue, which also shows the jobs of seeded runs
// (seed.go).
func (g *rig) commands() error {
	bin := filepath.Join(g.dir, "bin")
	if _, err := os.Stat(bin); err == nil {
		return nil
	}
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"sbatch", "sacct", "scancel", "scontrol", "squeue"} {
		if err := os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}

func (g *rig) close() error {
	var errs []error
	for _, f := range g.closers {
		f()
	}
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	if g.ledger != nil {
		errs = append(errs, g.ledger.Close())
	}
	if g.log != nil {
		errs = append(errs, g.log.Close())
	}
	return errors.Join(errs...)
}

// during calls f while the engine works and watches.
func (g *rig) during(ctx context.Context, f func() error) error {
	g.engine = g.newEngine()
	running, stop := context.WithCancel(ctx)
	wait, err := g.engine.Start(running)
	if err != nil {
		stop()
		return err
	}
	err = f()
	stop()
	wait()
	return err
}

// order returns the i-th request; no two give the same run.
func (g *rig) order(i int) run.Order {
	spec := plan.Spec{
		Version: plan.SpecVersion, Resources: plan.Resources{TimeLimitSeconds: 900, CPUs: 1, MemMB: 1024},
		Placement: plan.Placement{Partition: waitRoom, Account: "research"},
		Execution: plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer", Image: g.image, NetworkMode: "none",
			ReadonlyRootfs: true},
			Command: plan.Command{Argv: []string{"samtools", "flagstat", "-@", fmt.Sprint(i), "/work/in/reads.txt"},
				Env: map[string]string{"LC_ALL": "C"}}},
		IO: plan.IO{Inputs: []plan.Input{g.input}, Outputs: []plan.Output{{Role: "report", SrcRelpath: "out/report.json", Type: "JSON",
			Label: "report"}}},
	}
	spec.Fill()
	policy := json.RawMessage(`{"version":1}`)
	return run.Order{ToolID: "samtools.flagstat", ToolName: "samtools_flagstat", ToolVersion: "1.0.0", ContractVersion: "v1",
		PackHash: "sha256:none",
		Params: plan.Params{ProjectID: plan.ProjectID(project), Script: slurm.ScriptVersion, Spec: spec,
			Tool: &plan.ToolExtra{Version: "1.0.0", MaxOutputBytes: 1 << 20}},
		PolicyHash: plan.Hash(policy), Policy: policy, Actor: "human"}
}

// noFormats: nothing is collected.
type noFormats struct{}

func (noFormats) Check(typ string, _ bool) run.FormatCheck {
	return filetype.NewChecker(typ, filetype.Checks{})
}

func (f noFormats) CheckInput(typ string) run.FormatCheck { return f.Check(typ, false) }

// noContracts: the tool has no output schema.
type noContracts struct{}

func (noContracts) Contract(context.Context, string) (run.Contract, error) { return noContract{}, nil }

type noContract struct{}

func (noContract) Timeout() time.Duration                   { return 0 }
func (noContract) CheckOutput(json.RawMessage) error        { return nil }
func (noContract) Verify(string) bool                       { return false }
func (noContract) Least(string) (bytes, rows int64)         { return 0, 0 }
func (noContract) AfterOutOfMemory(memMB int) int           { return memMB }
func (noContract) AfterTimeLimit(seconds int) int           { return seconds }
func (noContract) Asks(string) bool                         { return false }
func (noContract) CheckValue(string, json.RawMessage) error { return nil }
func (noContract) LineFiles(string) []string                { return nil }

func (noContract) Line(role, path, line string) (is, message string) { return "", "" }
