package gate_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/gate/conformance"
	"slurmgate/ledger"
)

// inProcess is the gate itself.
type inProcess struct {
	gate *gate.Gate
	who  gate.Caller
}

func (p inProcess) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	return p.gate.Call(ctx, p.who, req), nil
}

func (p inProcess) CallRaw(ctx context.Context, body []byte) (gate.Response, error) {
	return p.gate.CallRaw(ctx, p.who, body), nil
}

// proves HTC-01 HTC-02 HTC-03 HTC-04 HTC-07 HTC-08 HTC-09 HTC-10 HTC-12
func TestConformance(t *testing.T) {
	conformance.Run(t, gate.Local, func(_ *testing.T, g *gate.Gate, who gate.Principal) conformance.Entry {
		return inProcess{g, gate.Caller{Principal: who, Transport: gate.Local}}
	})
}

// What a recorded look costs, one at a time and many together; and with its record kept beside the ledger, which is what a gateway does.
func BenchmarkRecordedCall(b *testing.B) {
	for _, name := range []string{"one", "many", "one/aside", "many/aside"} {
		b.Run(name, func(b *testing.B) {
			l, err := ledger.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"), ledger.Options{NewID: func() string { return "gw-bench" }})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			r, err := gate.NewRegistry(gate.Tool{ID: "bench.read", Version: "1.0.0", SideEffect: gate.Read, Idempotency: gate.Idempotent,
				Determinism: gate.BestEffort, Availability: gate.OfflineOK, Capabilities: []string{gate.CapRead},
				Bindings: []gate.Transport{gate.Local}, Input: json.RawMessage(`{"type":"object"}`), Handle: func(_ context.Context,
					c gate.Call) (any, error) {
					return map[string]any{"target_run_id": "run_00000000000000000000000000", "state": "running", "warnings": []string{}}, nil
				}})
			if err != nil {
				b.Fatal(err)
			}
			c := gate.Config{Registry: r, Journal: l, Promises: l, Owners: l}
			if strings.HasSuffix(name, "aside") {
				c.Aside = gate.Aside{Dir: b.TempDir(), Written: l.Recorded}
			}
			g := gate.New(c)
			defer g.Close()
			call := func() {
				if res := g.Call(b.Context(), gate.Process(), gate.NewRequest("bench.read", "1.0.0",
					json.RawMessage(`{"run_id":"run_00000000000000000000000000"}`))); !res.OK {
					b.Error(res.Error)
				}
			}
			if strings.HasPrefix(name, "one") {
				for b.Loop() {
					call()
				}
				return
			}
			b.SetParallelism(50)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					call()
				}
			})
		})
	}
}
