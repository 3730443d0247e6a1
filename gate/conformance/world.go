// Package conformance is the suite that every entry point of the gate passes (HTC-12): in process, over the socket, the HTTP port
// or a chat's protocol. It brings its own tools, a real ledger and a real artifact store; an entry point brings the way.
package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/ledger/ledgertest"
	"slurmgate/plan"
	"slurmgate/run"
)

// Entry is one way to the gate, for one principal.
type Entry interface {
	// Call makes a call. An error is one of the way, not of the call.
	Call(ctx context.Context, req gate.Request) (gate.Response, error)
}

// RawEntry is an entry that takes the bytes of an envelope as they are.
type RawEntry interface {
	CallRaw(ctx context.Context, body []byte) (gate.Response, error)
}

// Feature is a part of the envelope that a way may have no words for.
type Feature string

// The features that the suite can do without.
const (
	DryRun      Feature = "dry_run"
	ArgsRef     Feature = "args_ref"
	ToolVersion Feature = "tool_version"
	ToolIDs     Feature = "tool_id" // tools are called by their ids, not by their names
)

// Partial is an entry that cannot say all that an envelope can. The suite leaves out what needs the rest, and nothing else.
type Partial interface {
	// Lacks returns what cannot be said, and why.
	Lacks() map[Feature]string
}

// can reports whether an entry has words for a feature.
func can(e Entry, f Feature) bool {
	p, partial := e.(Partial)
	return !partial || p.Lacks()[f] == ""
}

// Open makes an entry over a gate for calls of the principal.
type Open func(t *testing.T, g *gate.Gate, who gate.Principal) Entry

// The projects of the world.
var (
	mine   = plan.ProjectID("mine")
	theirs = plan.ProjectID("theirs")
)

// World is a gate with all it needs, and tools that count how often they are reached.
type World struct {
	T         *testing.T
	Gate      *gate.Gate
	Ledger    *ledger.Ledger
	Transport gate.Transport
	Log       *logBook

	store   *artifact.Store
	open    Open
	reached sync.Map // tool id → *atomic.Int64
	clock   atomic.Int64
	release chan struct{} // lets test.wait go
	account atomic.Value  // string: what the jobs of test.asked charge; "none": it starts none
	starts  atomic.Int64  // calls of test.asked that could start a job
}

// logBook keeps what is logged.
type logBook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rules are the policy of the world.
type rules struct{}

func (rules) AllowTool(name string) error {
	if name == "test_denied" {
		return fault.New(fault.Policy, "tool_denied", name+" is not on the list")
	}
	return nil
}

func (rules) Rules(name string) gate.Rules {
	r := gate.Rules{Timeout: time.Minute}
	switch name {
	case "test_wait":
		r.Together = 1
	case "test_slow":
		r.Timeout = 50 * time.Millisecond
	case "test_asked", "test_asked_once", "test_hidden_asked":
		r.Consent = &gate.ConsentRule{Ask: time.Hour, Answer: time.Hour}
	}
	return r
}

// NewWorld makes a world for an entry point.
func NewWorld(t *testing.T, by gate.Transport, open Open) *World {
	t.Helper()
	w := &World{T: t, Transport: by, Log: &logBook{}, open: open, release: make(chan struct{})}
	dir := t.TempDir()
	var err error
	w.Ledger = ledgertest.Open(t, filepath.Join(dir, "ledger.db"), ledger.Options{NewID: func() string { return "gw-test" }, Now: w.now})
	t.Cleanup(func() { w.Ledger.Close() })
	if w.store, err = artifact.Open(filepath.Join(dir, "artifacts")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() })
	w.start()
	t.Cleanup(func() { w.Gate.Close() })
	return w
}

// start makes the gate; again after the one before was closed, as after a restart.
func (w *World) start() {
	w.T.Helper()
	w.Gate = w.gateWith(w.Ledger)
}

func (w *World) now() time.Time { return time.Now().Add(time.Duration(w.clock.Load())) }

// later moves the clock on.
func (w *World) later(d time.Duration) { w.clock.Add(int64(d)) }

// Read returns the bytes of an artifact; with Keep it makes the world the artifacts of the gate.
func (w *World) Read(ctx context.Context, id string, limit int64) ([]byte, error) {
	a, err := w.Ledger.Artifact(ctx, id)
	if err != nil {
		return nil, err
	}
	f, err := w.store.Open(a.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// Keep stores a result.
func (w *World) Keep(ctx context.Context, who gate.Principal, label string, data []byte) (string, error) {
	return w.keep(ctx, who.Own(), label, data)
}

func (w *World) keep(ctx context.Context, project, label string, data []byte) (string, error) {
	sum, size, err := w.store.Put(ctx, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return "", err
	}
	a := run.Artifact{ProjectID: project, SHA256: sum, Type: "JSON", Label: label, SizeBytes: size, Source: "result"}
	if a.ID, err = plan.ArtifactID(project, sum, a.Type, label); err != nil {
		return "", err
	}
	_, _, err = w.Ledger.AddArtifact(ctx, a)
	return a.ID, err
}

// count tells how often a tool was reached.
func (w *World) count(tool string) int64 {
	n, _ := w.reached.LoadOrStore(tool, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

type fixture struct {
	effect  gate.SideEffect
	repeat  string
	caps    []string
	output  string
	reveals []string
	hidden  []string // sensitive arguments, of a worker's tool
	handle  gate.Handler
	dryRun  gate.Handler
}

const anything = `{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"},"text":{"type":"string"},"run_id":{"type":"string"},"artifact_id":{"type":"string"},"project_id":{"type":"string"},"list":{"type":"array"}}}`

// tools are those of the world, each bound to the entry's transport but for one.
func (w *World) tools() []gate.Tool {
	echo := func(_ context.Context, c gate.Call) (any, error) { return map[string]any{"args": c.Args}, nil }
	serial := func(_ context.Context, c gate.Call) (any, error) {
		return map[string]any{"serial": w.count(c.Request.ToolID)}, nil
	}
	list := map[string]fixture{
		"test.read": {effect: gate.Read, caps: []string{gate.CapRead}, handle: echo},
		"test.write": {effect: gate.Write, caps: w.own(gate.CapImport), handle: serial, dryRun: func(context.Context, gate.Call) (any,
			error) {
			return map[string]any{"would": "write"}, nil
		}},
		"test.execute": {effect: gate.Execute, caps: []string{gate.CapSlurm}, handle: serial},
		"test.once":    {effect: gate.Execute, repeat: gate.NonIdempotent, caps: []string{gate.CapSlurm}, handle: serial},
		"test.admin":   {effect: gate.Read, caps: w.own(gate.CapAdmin), handle: echo},
		"test.denied":  {effect: gate.Read, caps: []string{gate.CapRead}, handle: echo},
		"test.asked":   {effect: gate.Execute, caps: []string{gate.CapSlurm}, handle: serial},
		"test.shape":   {effect: gate.Read, caps: []string{gate.CapRead}, output: `{"type":"object","required":["promised"]}`, handle: echo},
		"test.reveal": {effect: gate.Write, repeat: gate.NonIdempotent, caps: []string{gate.CapSlurm}, reveals: []string{"token"},
			handle: func(context.Context, gate.Call) (any, error) { return map[string]any{"token": Revealed}, nil }},
		"test.large": {effect: gate.Read, caps: []string{gate.CapRead}, handle: func(_ context.Context, c gate.Call) (any, error) {
			var a struct{ N int }
			err := json.Unmarshal(c.Args, &a)
			return map[string]any{"data": strings.Repeat("x", a.N)}, err // not under a name that a face quotes a part of
		}},
		"test.slow": {effect: gate.Read, caps: []string{gate.CapRead}, handle: func(ctx context.Context, _ gate.Call) (any,
			error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"test.panic": {effect: gate.Write, caps: []string{gate.CapSlurm}, handle: func(context.Context, gate.Call) (any,
			error) {
			panic("broken: password=" + Revealed)
		}},
		"test.fails": {effect: gate.Execute, caps: []string{gate.CapSlurm}, handle: func(_ context.Context, c gate.Call) (any, error) {
			var a struct{ Text string }
			if err := json.Unmarshal(c.Args, &a); err != nil {
				return nil, err
			}
			return nil, fault.New(fault.Kind(a.Text), "test_"+a.Text, fmt.Sprintf("failed for the %d. time", w.count("test.fails")))
		}},
		"test.wait": {effect: gate.Read, caps: []string{gate.CapRead}, handle: func(ctx context.Context, _ gate.Call) (any, error) {
			select {
			case <-w.release:
				return map[string]any{}, nil
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err())
			}
		}},
		"test.leaks": {effect: gate.Read, caps: []string{gate.CapRead}, handle: func(context.Context, gate.Call) (any, error) {
			return map[string]any{"log": "the job printed " + Secrets()[0].Text}, nil
		}},
		"test.hidden":       {effect: gate.Execute, caps: []string{gate.CapSlurm}, hidden: hiddenArgs, handle: w.hidden, dryRun: w.hidden},
		"test.hidden.asked": {effect: gate.Execute, caps: []string{gate.CapSlurm}, hidden: hiddenArgs, handle: w.hidden},
		"test.elsewhere":    {effect: gate.Read, caps: []string{gate.CapRead}, handle: echo},
	}
	var out []gate.Tool
	for id, f := range list {
		n, _ := w.reached.LoadOrStore(id, new(atomic.Int64))
		t := gate.Tool{ID: id, Version: "1.2.3", ContractVersion: "v1", Title: id, Description: "a tool of the conformance suite",
			SideEffect: f.effect, Idempotency: f.repeat, Determinism: gate.BestEffort,
			Availability: gate.OfflineOK, Capabilities: f.caps, Bindings: []gate.Transport{w.Transport}, Input: json.RawMessage(anything),
			Reveals: f.reveals, DryRun: f.dryRun,
			Handle: func(ctx context.Context, c gate.Call) (any, error) {
				n.(*atomic.Int64).Add(1)
				if id == "test.asked" && !c.Unapproved {
					w.starts.Add(1)
				}
				return f.handle(ctx, c)
			}}
		if t.Idempotency == "" {
			t.Idempotency = gate.Idempotent
		}
		if f.hidden != nil {
			t.Sensitive, t.Worker, t.Determinism = f.hidden, &gate.Worker{Type: "http", Endpoint: "/run"}, gate.NonDeterministic
		}
		if id == "test.asked" {
			t.Covers = func(context.Context, gate.Call) (gate.Coverage, error) {
				account, _ := w.account.Load().(string)
				return gate.Coverage{ProjectID: mine, Account: account, Waits: account == "none"}, nil
			}
		}
		if f.output != "" {
			t.Output = json.RawMessage(f.output)
		}
		if id == "test.elsewhere" {
			t.Bindings = []gate.Transport{gate.MEX}
		}
		out = append(out, t)
	}
	return out
}

// own are the capabilities of an operation of the gateway. A chat has those by their names alone; there it is like any other tool.
func (w *World) own(capability string) []string {
	if w.Transport == gate.MCP {
		return []string{capability}
	}
	return []string{gate.CapGateway, capability}
}

// principal makes one with capabilities, in the project mine.
func principal(name string, capabilities ...string) gate.Principal {
	return gate.Principal{Name: name, Method: gate.ByToken, Rights: gate.RightsOf(capabilities, []string{mine})}
}

// everyone may do everything, in the project mine.
func everyone(name string) gate.Principal { return principal(name, gate.All) }

// as opens the entry for a principal.
func (w *World) as(p gate.Principal) Entry { return w.open(w.T, w.Gate, p) }

// request fills an envelope.
func request(tool, args string, change ...func(*gate.Request)) gate.Request {
	r := gate.NewRequest(tool, "1.2.3", json.RawMessage(args))
	for _, f := range change {
		f(&r)
	}
	return r
}

func withKey(key string) func(*gate.Request) {
	return func(r *gate.Request) { r.IdempotencyKey = &key }
}

// call makes a call that the way itself carries.
func (w *World) call(e Entry, r gate.Request) gate.Response {
	w.T.Helper()
	res, err := e.Call(w.T.Context(), r)
	if err != nil {
		w.T.Fatalf("%s: %v", r.ToolID, err)
	}
	return res
}

// artifact stores bytes in a project and gives the id.
func (w *World) artifact(project, text string) string {
	w.T.Helper()
	id, err := w.keep(w.T.Context(), project, "a fixture", []byte(text))
	if err != nil {
		w.T.Fatal(err)
	}
	return id
}

// Records closes the gate, so that everything is written, and gives all records, oldest first of each chain.
func (w *World) Records() []ledger.CallEvent {
	w.T.Helper()
	w.Gate.Close()
	found, err := w.Ledger.Calls(w.T.Context(), ledger.CallFilter{Limit: 500})
	if err != nil {
		w.T.Fatal(err)
	}
	return found.Calls
}

// answer is a person's word on a question.
func (w *World) answer(id string, approve bool, uses int, good time.Duration) error {
	_, err := w.Ledger.AnswerApproval(w.T.Context(), id, ledger.Answer{Approve: approve, By: gate.Principal{Name: "user:boss"}, Uses: uses,
		Expires: w.now().
			Add(good)})
	return err
}

// dyingJournal is a gateway that dies before its records are written.
type dyingJournal struct {
	gate.Journal
	dead context.Context
}

func (d *dyingJournal) Record(ctx context.Context, records []gate.Record) error {
	if d.dead.Err() != nil {
		return fault.New(fault.Transport, "dead", "the gateway is gone")
	}
	return d.Journal.Record(ctx, records)
}

// gateWith is the gate with another journal.
func (w *World) gateWith(j gate.Journal) *gate.Gate {
	w.T.Helper()
	registry, err := gate.NewRegistry(w.tools()...)
	if err != nil {
		w.T.Fatal(err)
	}
	key, err := w.Ledger.GateKey(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	return gate.New(gate.Config{Registry: registry, Policy: rules{}, Journal: j, Promises: w.Ledger, Owners: w.Ledger, Artifacts: w,
		Words: gate.Words{w.Transport: fault.Words(func(s fault.Step) string { return "do " + s.String() })},
		Key:   key, Log: slog.New(slog.NewTextHandler(w.Log, nil)), Now: w.now})
}
