package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/policy"
)

// What policies.yaml says of calls is what the gate goes by.
//
// proves AX-08
func TestPolicyReachesTheGate(t *testing.T) {
	p, err := policy.Parse("p", []byte("version: 1\nconcurrency: {global: 7, per_tool: {samtools_flagstat: 2, slurm_submit: "+
		"3}}\ndefault_timeout_sec: 30\negress_allowlist: [\"api.example.org:443\"]\n"+
		"consent: {tools: [slurm_submit], request_expires_seconds: 120, approval_expires_seconds: 60}\nlogging: {level: warn}\n"), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	g := tableGateway(t)
	g.Policy = p
	r := rulesOf{p, g.RunLimits()}
	if got := r.Rules("samtools_flagstat"); got.Together != 0 || got.Timeout != 30*time.Second || got.Consent != nil {
		t.Errorf("%+v", got)
	}
	if got := r.Rules("slurm_submit"); got.Together != 3 || got.Consent == nil || *got.Consent != (gate.ConsentRule{Ask: 2 * time.Minute,
		Answer: time.Minute}) {
		t.Errorf("%+v", got)
	}
	if got := g.RunLimits(); len(got) != 1 || got["samtools_flagstat"] != 2 { // the engine bounds these, run.TestRunsOfOneTool
		t.Errorf("%v", got)
	}
	for _, word := range []string{"debug", "info", "warn", "error"} {
		var level slog.LevelVar
		if err := level.UnmarshalText([]byte(word)); err != nil {
			t.Error(word, err)
		}
	}
}

// The account a principal's jobs charge is its own, not the one it names.
func TestCharged(t *testing.T) {
	g := tableGateway(t)
	b := g.fill(t, "own")
	for _, c := range []struct {
		accounts      map[string]string
		project, want string
	}{{nil, b.project, ""}, {map[string]string{b.project: "a"}, b.project, "a"}, {map[string]string{"*": "b"}, b.project, "b"},
		{map[string]string{"*": "b", b.project: "a"}, b.project, "a"}, {map[string]string{b.project: "a"}, "proj_x", ""}} {
		who := gate.Principal{Accounts: c.accounts}
		if got := who.Account(c.project); got != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// default_timeout_sec limits every call, except of the tools with a time of their own that docs/access.md names.
//
// proves AX-08
func TestDefaultTimeout(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\ndefault_timeout_sec: 3600\n")
	own := map[string]time.Duration{"artifact.import": 6 * time.Hour, "artifact.verify": 24 * time.Hour, "gateway.gc": 12 * time.Hour,
		"secret.erase": 12 * time.Hour, "artifact.remove": time.Hour, "run.remove": time.Hour, "reference.add": 6 * time.Hour,
		"batch.run": 10 * time.Minute, "batch.table": time.Minute}
	for _, id := range []string{"artifact.preview.text", "artifact.preview.table", "artifact.preview.image", "slurm.job.logs"} {
		own[id] = 10 * time.Second
	}
	for _, x := range g.Gate.Registry().List() {
		if x.Timeout != own[x.ID] {
			t.Errorf("%s has %s of its own, docs/access.md says %s", x.ID, x.Timeout, own[x.ID])
		}
	}
	var left time.Duration
	x := Operation{ID: "config.show", Title: "Show", Description: "Shows.", Effect: gate.Read, Repeat: gate.Idempotent,
		Outcome: gate.BestEffort, Capability: gate.CapRead, Faces: shellOnly, Input: object(""),
		Does: does(func(ctx context.Context, _ gate.Call, _ struct{}) (struct{}, error) {
			until, _ := ctx.Deadline()
			left = time.Until(until)
			return struct{}{}, nil
		})}.Tool()
	r, err := gate.NewRegistry(x)
	if err != nil {
		t.Fatal(err)
	}
	timed := gate.New(gate.Config{Registry: r, Policy: rulesOf{Policy: g.Policy}, Log: g.Log})
	defer timed.Close()
	if res := timed.Call(t.Context(), gate.Process(), gate.NewRequest(x.ID, x.Version, json.RawMessage("{}"))); res.Error != nil ||
		left <= 0 || left > time.Hour || left < 50*time.Minute {
		t.Errorf("%+v: %s left of an hour", res.Error, left)
	}
}
