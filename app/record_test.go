package app

import (
	"encoding/json"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// The gateway takes records of the shell's own tools only, with payloads that are the event's.
func TestForgedShellRecords(t *testing.T) {
	g := tableGateway(t)
	boss := gate.Process().Principal
	res := g.calls(t, boss, "event.list", `{}`, "")
	if !res.OK {
		t.Fatal(res.Error)
	}
	g.Gate.Close() // its record is written
	page, err := g.Ledger.Calls(t.Context(), ledger.CallFilter{})
	if err != nil || len(page.Calls) != 1 {
		t.Fatal(page.Calls, err)
	}
	real := string(page.Calls[0].Event)
	shell := strings.Replace(real, "event.list", "image.list", 1)
	for name, args := range map[string]string{
		"another tool":      `{"chain":"looks","event":` + real + `}`,
		"no event":          `{"chain":"looks","event":{"type":"tool_call"}}`,
		"a look as effect":  `{"chain":"effects","event":` + shell + `}`,
		"another's payload": `{"chain":"looks","event":` + shell + `,"payloads":[{"kind":"args","payload":{"x":1}}]}`,
	} {
		var a ShellRecord
		if err := json.Unmarshal([]byte(args), &a); err != nil {
			t.Fatal(err)
		}
		if _, err := a.record(gate.Caller{Principal: gate.Principal{Name: "user:x"}}); !fault.Is(err, fault.Validation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := (ShellRecord{Chain: gate.Looks, Event: json.RawMessage(shell)}).
		record(gate.Caller{Principal: gate.Principal{Name: "user:x", ID: "prn_x"}}); err != nil || r.Principal != "user:x" ||
		r.PrincipalID != "prn_x" ||
		r.ToolID != "image.list" {
		t.Error(r, err)
	}
}
