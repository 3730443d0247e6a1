package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
)

func (g *Gateway) calls(t *testing.T, who gate.Principal, tool, args string, key string) gate.Response {
	t.Helper()
	req := gate.NewRequest(tool, BuiltinVersion, json.RawMessage(args))
	if key != "" {
		req.IdempotencyKey = &key
	}
	return g.Gate.Call(t.Context(), gate.Caller{Principal: who, Transport: gate.Local}, req)
}

// A token grants no more than its creator has, and for no longer than the creator's credentials last.
func TestTokenWithinItsMaker(t *testing.T) {
	g := tableGateway(t)
	demo := []string{plan.ProjectID("demo")}
	maker := gate.Principal{Name: "token:ops", Method: gate.ByToken,
		Rights: gate.Rights{{Capabilities: []string{"gateway", "admin"}, Projects: []string{gate.All}}, {Capabilities: []string{"read"},
			Projects: demo}},
		Accounts: map[string]string{plan.ProjectID("demo"): "research"}, Expires: time.Now().Add(time.Hour)}
	for args, code := range map[string]string{
		`"capabilities":["read"],"projects":["demo"],"expires_in_seconds":3000`:                          "",
		`"capabilities":["read"],"projects":["demo"],"expires_in_seconds":7200`:                          "lifetime_denied",
		`"capabilities":["slurm"],"projects":["demo"],"expires_in_seconds":60`:                           "capability_denied",
		`"capabilities":["read"],"projects":["other"],"expires_in_seconds":60`:                           "capability_denied",
		`"capabilities":["read"],"projects":["demo"],"accounts":{"demo":"boss"},"expires_in_seconds":60`: "account_denied",
	} {
		res := g.calls(t, maker, "token.create", `{"name":"x",`+args+`}`, "")
		if got := fmt.Sprint(res.Error); (code == "") != res.OK || !strings.Contains(got, code) && code != "" {
			t.Errorf("%s: %s %s", args, got, res.Result)
		}
		if code == "" && !strings.Contains(string(res.Result), `"accounts":{"`+plan.ProjectID("demo")+`":"research"}`) {
			t.Errorf("the maker's account is not the token's: %s", res.Result)
		}
	}
	maker.Expires = time.Time{}
	if res := g.calls(t, maker, "token.create", `{"name":"x","capabilities":["read"],"projects":["demo"],"expires_in_seconds":7200}`,
		""); !res.OK {
		t.Error(res.Error)
	}
}

// The same call with the same key creates no second token, and its answer states that the text is gone and what to
// do.
func TestTokenUnderOneKey(t *testing.T) {
	g := tableGateway(t)
	boss := gate.Process().Principal
	const args = `{"name":"x","capabilities":["read"],"projects":["demo"],"expires_in_seconds":600}`
	var first, again TokenCreated
	for _, out := range []*TokenCreated{&first, &again} {
		res := g.calls(t, boss, "token.create", args, "k")
		if err := json.Unmarshal(res.Result, out); err != nil || !res.OK {
			t.Fatal(res.Error, err)
		}
	}
	if !strings.HasPrefix(first.Token, "sgt_") || first.Note != "" || again.TokenID != first.TokenID || again.Token != gate.Redacted ||
		!strings.Contains(again.Note, "revoke") {
		t.Errorf("token.create: %s, then %s with the note %q; want the token only once", first.TokenID, again.TokenID, again.Note)
	}
	if list, _, err := g.Ledger.Tokens(t.Context()); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if t.Failed() {
		return
	}
	if res := g.calls(t, boss, "event.list", `{}`, ""); strings.Contains(string(res.Result), first.Token[21:]) {
		t.Error("the secret is in the record")
	}
}

// The same answer to an approval again is no conflict; another one is.
func TestApprovalAnsweredAgain(t *testing.T) {
	g := tableGateway(t)
	a, err := g.Ledger.Ask(t.Context(), gate.Question{Who: gate.Principal{Name: "token:bot"}, Covers: gate.Coverage{ContractVersion: "v1"},
		ToolID: "slurm.submit", ToolVersion: "1.0.0",
		Binding: strings.Repeat("0", 64), ArgsHash: strings.Repeat("0", 64),
		Payload: json.RawMessage(`{}`), Expires: time.Now().Add(time.Hour)})
	must(t, err)
	boss, other := gate.Process().Principal, gate.Process().Principal
	boss.ID, other.ID = "prn_boss", "prn_other"
	for _, c := range []struct {
		who     gate.Principal
		approve bool
		code    string
	}{{boss, true, ""}, {boss, true, ""}, {boss, false, "approval_answered"}, {other, true, "approval_answered"}} {
		res := g.calls(t, c.who, "approval.answer", fmt.Sprintf(`{"approval_id":%q,"approve":%t}`, a.ID, c.approve), "")
		if res.OK != (c.code == "") || !res.OK && res.Error.Code != c.code {
			t.Errorf("approval.answer (approve %t) ended with %+v, want %q", c.approve, res.Error, c.code)
		}
	}
}

// Revoking a token need not leave the tokens created with it valid: the answer names them, and they can be revoked
// with it.
func TestRevokedWithItsDescendants(t *testing.T) {
	g := tableGateway(t)
	boss := gate.Process().Principal
	top := g.tokenOf(t, "A", "top", boss, time.Hour)
	below := g.tokenOf(t, "B", "below", top, time.Hour)
	g.tokenOf(t, "C", "deep", below, time.Hour)
	g.tokenOf(t, "D", "expired", top, -time.Hour)
	g.tokenOf(t, "E", "other", boss, time.Hour)
	ended := []string{}
	g.Revoked = func(p gate.Principal) { ended = append(ended, p.Name) }
	id := func(letter string) string { return "tok_" + strings.Repeat(letter, 16) }
	for _, descendants := range []bool{false, true} {
		var out TokenRevoked
		res := g.calls(t, boss, "token.revoke", fmt.Sprintf(`{"token_id":%q,"descendants":%t}`, id("A"), descendants), "")
		if err := json.Unmarshal(res.Result, &out); err != nil || !slices.Equal(out.Descendants, []string{id("B"), id("C")}) {
			t.Errorf("%s %+v %v", res.Result, res.Error, err)
		}
		for letter, want := range map[string]bool{"A": true, "B": descendants, "C": descendants, "D": false, "E": false} {
			if tok, err := g.Ledger.Token(t.Context(), id(letter)); err != nil || (tok.RevokedAt != nil) != want {
				t.Errorf("%s, with descendants %t: %+v %v", letter, descendants, tok, err)
			}
		}
	}
	if !slices.Equal(ended, []string{"token:top", "token:top", "token:below", "token:deep"}) {
		t.Error("what was begun with them ends:", ended)
	}
}
