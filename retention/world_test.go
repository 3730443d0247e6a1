package retention_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/ledger/ledgertest"
	"slurmgate/plan"
	"slurmgate/retention"
	"slurmgate/run"
	"slurmgate/staging"
)

const project = "proj_01HZZZZZZZZZZZZZZZZZZZZZZZ"

// world holds the real ledger, store and workspaces, with a clock that starts a year ago. Stored data gets the age of
// that clock.
type world struct {
	t      *testing.T
	ledger *ledger.Ledger
	store  *artifact.Store
	shared *staging.Shared
	dir    string
	clock  atomic.Int64 // microseconds

	mu        sync.Mutex
	artifacts map[string]run.Artifact // all that were ever imported
	runs      map[string]*sync.Mutex  // held while one works on the run: the engine has one worker for a run
	tokens    atomic.Int64
	refused   atomic.Int64 // submits that came after the removal
	user      string       // the user of later runs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), artifacts: map[string]run.Artifact{}, runs: map[string]*sync.Mutex{}}
	w.clock.Store(time.Now().AddDate(-1, 0, 0).UnixMicro())
	must(t, os.MkdirAll(w.dir+"/runs", 0o700))
	var err error
	w.ledger = ledgertest.Open(t, w.dir+"/ledger.db", ledger.Options{Now: w.now, NewID: func() string { return "gw-1" }})
	t.Cleanup(func() { w.ledger.Close() })
	w.store, err = artifact.Open(w.dir + "/artifacts")
	must(t, err)
	w.ledger.CheckBytes(w.store.Has)
	w.store.Consult(w.ledger)
	t.Cleanup(func() { w.store.Close() })
	w.shared, err = staging.NewShared(staging.Config{RunsDir: w.dir + "/runs", GatewayID: "gw-1"})
	must(t, err)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) now() time.Time { return time.UnixMicro(w.clock.Add(1)) }

func (w *world) pass(d time.Duration) { w.clock.Add(d.Microseconds()) }

func (w *world) object(sum string) string {
	return filepath.Join(w.dir, "artifacts/objects", sum[:2], sum)
}

// put stores bytes at the world's time.
func (w *world) put(content string) string {
	sum, _, err := w.store.Put(context.Background(), strings.NewReader(content), 1<<20)
	if err != nil {
		w.t.Error(err)
		return ""
	}
	at := w.now()
	if err := os.Chtimes(w.object(sum), at, at); err != nil {
		w.t.Errorf("stored and not there: %v", err)
	}
	return sum
}

func (w *world) artifact(content, label, source string) run.Artifact {
	return w.named(w.put(content), content, label, source)
}

// payload makes an artifact whose bytes go into the ledger.
func (w *world) payload(content, label, source string) (run.Artifact, run.Payload) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	return w.named(sum, content, label, source), run.Payload{SHA256: sum, Data: []byte(content)}
}

func (w *world) named(sum, content, label, source string) run.Artifact {
	id, err := plan.ArtifactID(project, sum, "TEXT", label)
	if err != nil {
		w.t.Error(err)
	}
	return run.Artifact{ID: id, ProjectID: project, SHA256: sum, Type: "TEXT", Label: label, SizeBytes: int64(len(content)), Source: source}
}

// add imports like the tool: bytes first, then the row.
func (w *world) add(content, label string) run.Artifact {
	a, _, err := w.ledger.AddArtifact(context.Background(), w.artifact(content, label, "import"))
	for frozen(err) {
		a, _, err = w.ledger.AddArtifact(context.Background(), w.artifact(content, label, "import"))
	}
	if err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.artifacts[a.ID] = a
	w.mu.Unlock()
	return a
}

// frozen reports whether an import took so long between storing bytes and writing their row that a sweep removed the
// bytes. The row is refused, and the import starts again.
func frozen(err error) bool { return fault.CodeOf(err) == "artifact_bytes_missing" }

func (w *world) token() string { return fmt.Sprintf("%032x", w.tokens.Add(1)) }

// submit creates a run with an artifact and stages it; it returns "" if the artifact was removed before.
func (w *world) submit(a run.Artifact) string {
	ctx := context.Background()
	token := w.token()
	params, policy := json.RawMessage(fmt.Sprintf(`{"token":%q}`, token)), json.RawMessage(`{"version":1}`)
	id := plan.Identity{ToolName: "t_x", ContractVersion: "v1", PolicyHash: plan.Hash(policy), ParamsHash: plan.Hash(params)}
	r := run.Run{ID: id.RunID(), ToolID: "t.x", ToolName: "t_x", ToolVersion: "1.0.0", ContractVersion: "v1", PolicyHash: id.PolicyHash,
		ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(),
		ProjectID: project, ExecutedAs: w.user, Actor: "human", State: run.Queued, Phase: run.Staging, AttemptN: 1, Warnings: []string{},
		ResultJSON: json.RawMessage(`{}`)}
	_, _, err := w.ledger.Insert(ctx, run.New{Run: r, Submission: run.Submission{Token: token, JobName: run.JobName(r.ID, 1, token[20:]),
		CreatedAt: w.now()}, Params: params, Policy: policy,
		Inputs: []run.Link{{Role: "r", ArtifactID: a.ID, Relpath: "in/f"}}, Event: run.Event{Type: "run.created", Data: map[string]any{}}})
	if fault.CodeOf(err) == "artifact_removed" {
		w.refused.Add(1)
		return ""
	}
	if err != nil {
		w.t.Error(err)
		return ""
	}
	own := &sync.Mutex{}
	own.Lock()
	defer own.Unlock()
	w.mu.Lock()
	w.runs[r.ID] = own
	w.mu.Unlock()
	w.stage(r.ID, 1, token, a)
	return r.ID
}

// stage creates a workspace, as the engine does.
func (w *world) stage(id string, n int, token string, a run.Artifact) {
	in := []plan.Input{{Role: "r", ArtifactID: a.ID, ChecksumSHA256: a.SHA256, DestRelpath: "in/f"}}
	err := errors.Join(w.shared.StageInputs(context.Background(), id, in, w.store.Reader),
		w.shared.OpenAttempt(context.Background(), id, n, token, run.ControlFile{Name: run.PinnedFile, Data: []byte("pinned\n")},
			run.ControlFile{Name: run.ScriptFile, Data: []byte("script\n")}))
	if err != nil {
		w.t.Errorf("an accepted run cannot be staged: %v", err)
	}
}

// alone locks a run for the caller, which acts as its worker.
func (w *world) alone(id string) (done func()) {
	w.mu.Lock()
	own := w.runs[id]
	w.mu.Unlock()
	own.Lock()
	return own.Unlock
}

// finish ends a run: with an output, a log and the claim of its job, or without any of them.
func (w *world) finish(id string, r *rand.Rand) {
	defer w.alone(id)()
	ctx := context.Background()
	v, err := w.ledger.View(ctx, id)
	if err != nil || v.Run.State.Terminal() {
		return
	}
	at, code := w.now(), 1
	write := run.Write{Run: v.Run, Event: run.Event{Type: "run.over", Data: map[string]any{}}}
	write.Run.State, write.Run.Phase, write.Run.Reason, write.Run.FinishedAt, write.Run.ExitCode = run.Failed, run.Done, "tool_failed", &at,
		&code
	a := v.Attempt
	a.Ending = run.EndedToolFailed
	if r.IntN(2) == 0 {
		claim := fmt.Sprintf("slurmgate-claim 1 job=%d task=- restart=0 token=%s node=n1\n", r.IntN(1000), a.Token)
		if _, err := w.shared.TakeClaim(ctx, id, a.N, []byte(claim)); err != nil {
			w.t.Error(err)
		}
		out := w.artifact(fmt.Sprint("content ", r.IntN(8)), "out", id) // may be the bytes, and the artifact, of an import
		log := w.artifact("log of "+a.Token, "log", id)
		write.Artifacts, write.Outputs = []run.Artifact{out, log}, []run.Link{{Role: "out", ArtifactID: out.ID, Relpath: "out/f"},
			{Role: "log", ArtifactID: log.ID}}
		write.Run.LogArtifactID = log.ID
	}
	script, payload := w.payload("script of "+id+strings.Repeat("as long as scripts are\n", 100), "slurm_script", id)
	write.Payloads, write.Artifacts, write.Run.ScriptArtifactID = []run.Payload{payload}, append(write.Artifacts, script), script.ID
	write.Attempts = []run.Attempt{a}
	if _, err := w.ledger.Apply(ctx, write); err != nil && fault.CodeOf(err) != "stale_run" && !frozen(err) {
		w.t.Error(err)
	}
}

// retry opens a new attempt of a finished run.
func (w *world) retry(id string) {
	defer w.alone(id)()
	ctx := context.Background()
	v, err := w.ledger.View(ctx, id)
	if err != nil || !v.Run.State.Terminal() {
		return
	}
	n, token := v.Run.AttemptN+1, w.token()
	r := v.Run
	r.State, r.Phase, r.AttemptN, r.Reason, r.FinishedAt, r.ExitCode = run.Queued, run.Staging, n, "retry", nil, nil
	sub := run.Submission{Token: token, JobName: run.JobName(id, n, token[20:]), CreatedAt: w.now()}
	_, err = w.ledger.Apply(ctx, run.Write{Run: r, Attempts: []run.Attempt{{RunID: id, N: n, Token: token, CreatedAt: w.now()}},
		Submission: &sub, Event: run.Event{Type: "run.retry", Data: map[string]any{}}})
	if fault.CodeOf(err) == "stale_run" {
		return
	}
	if err != nil {
		w.t.Error(err)
		return
	}
	in, err := w.ledger.Inputs(ctx, id)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.stage(id, n, token, in[0].Artifact)
}

func (w *world) parts() retention.Parts {
	return retention.Parts{Ledger: w.ledger, Workspaces: w.shared, Store: w.store, Now: w.now}
}

// checksums returns those of all artifacts that are not removed, each once.
func (w *world) checksums() []string {
	w.t.Helper()
	sums := map[string]bool{}
	for f := (ledger.ArtifactFilter{Limit: 500}); ; {
		page, err := w.ledger.Artifacts(context.Background(), f)
		must(w.t, err)
		for _, a := range page.Artifacts {
			sums[a.SHA256] = true
		}
		if f.Cursor = page.Cursor; f.Cursor == "" {
			return slices.Collect(maps.Keys(sums))
		}
	}
}

// check fails the test if an invariant of the world is broken.
func (w *world) check() {
	w.t.Helper()
	ctx := context.Background()
	must(w.t, w.ledger.Integrity(ctx))
	// Every artifact that is not removed has its bytes.
	for _, sum := range w.checksums() {
		must(w.t, w.store.Verify(ctx, sum))
	}
	for id := range w.runs {
		v, err := w.ledger.View(ctx, id)
		must(w.t, err)
		for _, list := range []func(context.Context, string) ([]run.Output, error){w.ledger.Inputs, w.ledger.Outputs} {
			links, err := list(ctx, id)
			must(w.t, err)
			for _, o := range links {
				if _, err := w.ledger.Artifact(ctx, o.ArtifactID); err != nil {
					w.t.Errorf("run %s refers to %s, which is gone: %v", id, o.ArtifactID, err)
				}
			}
		}
		for _, a := range []string{v.Run.LogArtifactID, v.Run.ScriptArtifactID} {
			if a == "" {
				continue
			}
			if _, err := w.ledger.Artifact(ctx, a); err != nil {
				w.t.Errorf("run %s: %v", id, err)
			}
		}
		w.checkWorkspace(v)
	}
}

func (w *world) checkWorkspace(v run.View) {
	w.t.Helper()
	dir := filepath.Join(w.dir, "runs", v.Run.ID)
	if !v.Run.State.Terminal() {
		for _, f := range []string{"in/f", fmt.Sprintf("a%d/ctl/token", v.Run.AttemptN), fmt.Sprintf("a%d/ctl/pinned.sha256", v.Run.AttemptN)} {
			if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
				w.t.Errorf("run %s is not over and its workspace was touched: %v", v.Run.ID, err)
			}
		}
	}
	// Each attempt has left a file, or a folder with pinned files or with a claim.
	for n := 1; n <= v.Run.AttemptN; n++ {
		at := filepath.Join(dir, fmt.Sprintf("a%d", n))
		info, err := os.Lstat(at)
		if err != nil {
			w.t.Errorf("attempt %d of %s left nothing: %v", n, v.Run.ID, err)
			continue
		}
		_, pinned := os.Stat(at + "/ctl/pinned.sha256")
		claim, err := os.ReadFile(at + "/ctl/claim")
		if info.IsDir() && pinned != nil && (err != nil || !bytes.HasPrefix(claim, []byte("slurmgate-claim 1 "))) {
			w.t.Errorf("attempt %d of %s was emptied and a late job would find no claim", n, v.Run.ID)
		}
	}
}

func days(n int) *time.Duration { return new(time.Duration(n) * 24 * time.Hour) }
