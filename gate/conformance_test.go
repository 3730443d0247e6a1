package gate_test

import (
	"context"
	"testing"

	"slurmgate/gate"
	"slurmgate/gate/conformance"
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
