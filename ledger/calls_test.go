package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// aCall returns a record with a payload.
func aCall(chain string, n int, at time.Time) gate.Record {
	payload := json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))
	sum := sha256.Sum256(payload)
	hash := hex.EncodeToString(sum[:])
	by := ""
	if n >= 100 {
		by = "prn_lab" // those before are as an older program wrote them
	}
	return gate.Record{Chain: chain, Principal: "user:lab", PrincipalID: by, ToolCallID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", n),
		ToolID: "test.tool", OK: n%2 == 0, At: at,
		Event:    json.RawMessage(fmt.Sprintf(`{"args_hash":%q,"ok":%t,"tool_id":"test.tool"}`, hash, n%2 == 0)),
		Payloads: []gate.Payload{{Kind: "args", JSON: payload, SHA256: hash}}}
}

// callBook makes a ledger with 20 read-only calls, a minute apart, and 3 effects.
func callBook(t *testing.T) *Ledger {
	t.Helper()
	l := fresh(t)
	for n := range 20 {
		must(t, l.Record(t.Context(), []gate.Record{aCall(gate.Looks, n, t0.Add(time.Duration(n)*time.Minute))}))
	}
	must(t, l.Record(t.Context(), []gate.Record{aCall(gate.Effects, 100, t0), aCall(gate.Effects, 101, t0), aCall(gate.Effects, 102, t0)}))
	return l
}

// proves HTC-08 HTC-09
func TestCallChains(t *testing.T) {
	l := callBook(t)
	states, err := l.VerifyCalls(t.Context())
	if err != nil || len(states) != 3 || states[0].Kept != 3 || states[1].Kept != 20 || states[0].Head == states[1].Head {
		t.Fatal(states, err)
	}
	var all []CallEvent
	for cursor := ""; ; {
		page, err := l.Calls(t.Context(), CallFilter{Limit: 7, Cursor: cursor})
		must(t, err)
		if (page.Total != Total{23, true}) {
			t.Error(page.Total)
		}
		all = append(all, page.Calls...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	seen := map[string]bool{}
	for i, e := range all {
		seen[fmt.Sprint(e.Chain, e.Seq)] = true
		if i > 0 && e.At.After(all[i-1].At) {
			t.Error("not newest first")
		}
	}
	if len(all) != 23 || len(seen) != 23 {
		t.Error(len(all), len(seen))
	}
	for f, want := range map[CallFilter]int{{Failed: true}: 11, {Chain: gate.Effects}: 3, {Principal: "nobody"}: 0,
		{ToolID: "test.tool", Limit: 500}: 23} {
		if got, err := l.Calls(t.Context(), f); err != nil || len(got.Calls) != want || got.Total != (Total{int64(want), true}) {
			t.Errorf("Calls(%+v) = %d of %d calls, exact %t, %v; want %d", f, len(got.Calls), got.Total.N, got.Total.Exact,
				err, want)
		}
	}
	e, payloads, _, err := l.Call(t.Context(), "00000007-0000-4000-8000-000000000000")
	if err != nil || e.Seq != 8 || len(payloads) != 1 || string(payloads[0].Payload) != `{"n":7}` {
		t.Error(e, payloads, err)
	}
	if _, _, _, err := l.Call(t.Context(), "none"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, err := l.Calls(t.Context(), CallFilter{Cursor: "xx"}); !fault.Is(err, fault.Validation) {
		t.Error(err)
	}
}

// Old read-only calls are dropped from the oldest on; the remaining chain verifies, and so does the record of the
// dropped ones.
func TestDropLooks(t *testing.T) {
	l := callBook(t)
	long := t0.Add(-time.Hour)
	for _, c := range []struct {
		before  time.Time
		keep    int64
		dropped int64
	}{{long, 100, 0}, {t0.Add(5 * time.Minute), 100, 5}, {t0.Add(5 * time.Minute), 100, 0}, {long, 8, 7}, {t0.Add(time.Hour), 100, 8},
		{t0.Add(time.Hour), 0, 0}} {
		n, err := l.DropCalls(t.Context(), gate.Looks, CallLimits{c.before, c.keep, 1 << 40})
		if err != nil || n != c.dropped {
			t.Errorf("before %s, keep %d: %d dropped, %v", c.before, c.keep, n, err)
		}
		if _, err := l.VerifyCalls(t.Context()); err != nil {
			t.Error(err)
		}
	}
	must(t, l.Record(t.Context(), []gate.Record{aCall(gate.Looks, 50, t0)}))
	states, err := l.VerifyCalls(t.Context())
	if err != nil || states[1].Kept != 1 || states[1].Dropped != 20 || states[0].Kept != 3 {
		t.Error(states, err)
	}
	must(t, l.Integrity(t.Context()))
	var left int
	must(t, l.r.QueryRow("SELECT count(*) FROM tool_payloads WHERE chain = 'looks'").Scan(&left))
	if left != 1 {
		t.Error(left)
	}
}

// A batch that is larger than one transaction may be.
func TestDropManyLooks(t *testing.T) {
	l := fresh(t)
	var batch []gate.Record
	for n := range 2*dropAtOnce + 10 {
		batch = append(batch, aCall(gate.Looks, n, t0))
	}
	must(t, l.Record(t.Context(), batch))
	if n, err := l.DropCalls(t.Context(), gate.Looks, CallLimits{t0.Add(-time.Hour), 5, 1 << 40}); err != nil || n != 2*dropAtOnce+5 {
		t.Error(n, err)
	}
	if _, err := l.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
}

// Read-only calls push out no refused call, however many there are; and each chain keeps its own limits, bytes among
// them.
//
// proves HTC-08
func TestLooksDoNotWashRefusedCallsOut(t *testing.T) {
	l := fresh(t)
	refused := aCall(gate.Refused, 1, t0)
	refused.Count = 40
	must(t, l.Record(t.Context(), []gate.Record{refused}))
	var flood []gate.Record
	for n := range 500 {
		flood = append(flood, aCall(gate.Looks, 1000+n, t0.Add(time.Hour)))
	}
	must(t, l.Record(t.Context(), flood))
	for _, chain := range []string{gate.Looks, gate.Refused} {
		if _, err := l.DropCalls(t.Context(), chain, CallLimits{t0.Add(-time.Hour), 10, 1 << 40}); err != nil {
			t.Error(err)
		}
	}
	page, err := l.Calls(t.Context(), CallFilter{Chain: gate.Refused})
	if err != nil || len(page.Calls) != 1 || page.Calls[0].Count != 40 || (page.Total != Total{1, true}) {
		t.Error(page, err)
	}
	var bytes int64
	must(t, l.r.QueryRow("SELECT bytes FROM call_chains WHERE chain = 'looks'").Scan(&bytes))
	if n, err := l.DropCalls(t.Context(), gate.Looks, CallLimits{t0, 1000, bytes / 2}); err != nil || n != 5 {
		t.Error(n, err, "of 10 records of one size the older half goes")
	}
	if n, err := l.DropCalls(t.Context(), gate.Effects, CallLimits{t0.Add(time.Hour), 0, 0}); err != nil || n != 0 {
		t.Error(n, err)
	}
	must(t, l.Integrity(t.Context()))
}

// A call that uses another call's id hides nothing of it, from any caller.
func TestSameCallID(t *testing.T) {
	l := callBook(t)
	shadow := aCall(gate.Looks, 100, t0.Add(time.Hour)) // the id of effects/1
	shadow.Principal = "token:other"
	must(t, l.Record(t.Context(), []gate.Record{shadow}))
	e, payloads, others, err := l.Call(t.Context(), shadow.ToolCallID)
	if err != nil || e.Name() != "effects/1" || e.Principal != "user:lab" || len(payloads) != 1 || len(others) != 1 ||
		others[0] != "looks/21" {
		t.Error(e, payloads, others, err)
	}
	if e, _, _, err := l.Call(t.Context(), "looks/21"); err != nil || e.Principal != "token:other" {
		t.Error(e, err)
	}
	if _, _, _, err := l.Call(t.Context(), "looks/9999"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// The check detects any change of the file; and the database itself refuses ordinary changes.
func TestTamperedCalls(t *testing.T) {
	for _, q := range []string{"UPDATE tool_call_events SET principal = 'x'", "DELETE FROM tool_call_events",
		"DELETE FROM tool_call_events WHERE chain = 'effects'", "UPDATE call_chains SET seq = 1", "DELETE FROM call_chains",
		"UPDATE call_chains SET horizon_seq = 2 WHERE chain = 'effects'"} {
		l := callBook(t)
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
	unlock := "DROP TRIGGER tool_call_events_fixed; DROP TRIGGER tool_call_events_keep; DROP TRIGGER call_chains_keep; DROP TRIGGER " +
		"call_chains_grow; PRAGMA foreign_keys = OFF; "
	for _, q := range []string{
		"UPDATE tool_call_events SET principal = 'user:other' WHERE chain = 'effects' AND seq = 2",
		"UPDATE tool_call_events SET principal_id = 'prn_other' WHERE chain = 'effects' AND seq = 2",
		"UPDATE tool_call_events SET principal_id = '' WHERE chain = 'effects' AND seq = 2",
		"UPDATE tool_call_events SET principal_id = 'prn_lab' WHERE chain = 'looks' AND seq = 2",
		"UPDATE tool_call_events SET event = replace(event, 'true', 'false') WHERE chain = 'effects' AND seq = 1",
		"UPDATE tool_call_events SET at = at + 1 WHERE chain = 'looks' AND seq = 20",
		"UPDATE tool_call_events SET count = 7 WHERE chain = 'looks' AND seq = 4",
		"UPDATE tool_call_events SET hash = prev_hash WHERE chain = 'looks' AND seq = 3",
		"DELETE FROM tool_call_events WHERE chain = 'looks' AND seq = 1",
		"DELETE FROM tool_call_events WHERE chain = 'looks' AND seq = 10",
		"DELETE FROM tool_call_events WHERE chain = 'effects' AND seq = 3",
		"DELETE FROM tool_call_events WHERE chain = 'looks' AND seq <= 5; UPDATE call_chains SET horizon_seq = 5, horizon_hash = (SELECT " +
			"prev_hash FROM tool_call_events WHERE chain = 'looks' AND seq = 6) WHERE chain = 'looks'",
		"UPDATE tool_payloads SET payload_redacted = '{}' WHERE chain = 'effects' AND seq = 2",
		"UPDATE tool_payloads SET payload_redacted = '{\"n\":5}', payload_sha256 = '" + strings.Repeat("0",
			64) + "' WHERE chain = 'looks' AND seq = 2",
	} {
		l := callBook(t)
		if _, err := l.w.Exec(unlock + q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if _, err := l.VerifyCalls(t.Context()); fault.CodeOf(err) != "call_chain_broken" {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// A refused record of a read-only call takes no other with it.
func TestRecordIsAllOrNothing(t *testing.T) {
	l := callBook(t)
	bad := aCall(gate.Looks, 1, t0)
	bad.Payloads[0].SHA256 = "short"
	if err := l.Record(t.Context(), []gate.Record{aCall(gate.Looks, 60, t0), bad}); fault.CodeOf(err) != "ledger_refused" {
		t.Error(err)
	}
	if states, err := l.VerifyCalls(t.Context()); err != nil || states[1].Kept != 20 {
		t.Error(states, err)
	}
}

func TestTokenRows(t *testing.T) {
	l := fresh(t)
	tok := gate.Token{ID: "tok_AAAAAAAAAAAAAAAA", Name: "bot", SecretSHA256: strings.Repeat("a", 64), Capabilities: []string{"read"},
		Projects: []string{"*"}, Accounts: map[string]string{"*": "x"}, CreatedBy: "user:lab", ExpiresAt: t0.Add(time.Hour)}
	must(t, l.AddToken(t.Context(), tok))
	if err := l.AddToken(t.Context(), tok); err == nil {
		t.Error("twice")
	}
	got, _, err := l.RevokeToken(t.Context(), tok.ID, "user:boss", false)
	if err != nil || got.RevokedAt == nil || *got.RevokedBy != "user:boss" || got.Accounts["*"] != "x" {
		t.Error(got, err)
	}
	again, _, err := l.RevokeToken(t.Context(), tok.ID, "user:other", true)
	if err != nil || *again.RevokedBy != "user:boss" {
		t.Error(again, err)
	}
	if _, _, err := l.RevokeToken(t.Context(), "tok_B", "x", true); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if list, s, err := l.Tokens(t.Context()); err != nil || len(list) != 1 || s.Tokens != 1 || s.Revoked != 1 || s.Expired != 0 ||
		s.State(list[0]) != "revoked" {
		t.Error(list, s, err)
	}
	for _, q := range []string{"UPDATE tokens SET expires_at = expires_at + 1", "UPDATE tokens SET revoked_at = NULL", "DELETE FROM tokens",
		"UPDATE tokens SET capabilities = '[\"*\"]'"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
}

// Keys never expire: not even the database deletes one.
//
// proves HTC-10
func TestIdempotencyRows(t *testing.T) {
	l := fresh(t)
	k := gate.Key{Principal: "p", KeyHash: strings.Repeat("1", 64), ToolID: "test.tool", Binding: strings.Repeat("2", 64), ToolCallID: "c"}
	must(t, l.Begin(t.Context(), &k, ""))
	must(t, l.Record(t.Context(), []gate.Record{{Chain: gate.Effects, Event: json.RawMessage(`{}`), At: t0,
		Outcome: &gate.Outcome{Principal: "p", KeyHash: k.KeyHash, Response: json.RawMessage(`{"ok":true}`)}}}))
	must(t, l.Record(t.Context(), []gate.Record{{Chain: gate.Effects, Event: json.RawMessage(`{}`), At: t0,
		Outcome: &gate.Outcome{Principal: "p", KeyHash: k.KeyHash, Response: json.RawMessage(`{"ok":false}`)}}}))
	got, err := l.Key(t.Context(), gate.Principal{ID: "p"}, k.KeyHash)
	if err != nil || string(got.Outcome) != `{"ok":true}` {
		t.Error(got, err)
	}
	for _, q := range []string{"DELETE FROM idempotency_keys", "UPDATE idempotency_keys SET outcome = NULL, settled_at = NULL",
		"UPDATE idempotency_keys SET outcome = '{}'", "UPDATE idempotency_keys SET binding = key_hash"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
	if _, err := l.Key(t.Context(), gate.Principal{ID: "q"}, k.KeyHash); !fault.Is(err, fault.NotFound) {
		t.Error("a key is its principal's own:", err)
	}
}

// A record has an id and a time around its event, for readers of such events.
func TestEventIDs(t *testing.T) {
	l := fresh(t)
	must(t, l.Record(t.Context(), []gate.Record{aCall(gate.Looks, 1, t0), aCall(gate.Looks, 2, t0), aCall(gate.Effects, 3, t0)}))
	page, err := l.Calls(t.Context(), CallFilter{})
	must(t, err)
	seen := map[string]bool{}
	for _, e := range page.Calls {
		seen[e.EventID] = true
		if !e.Timestamp.Equal(e.At) || len(e.EventID) != 36 {
			t.Errorf("the call %s at %s has the event id %q with the time %s, want 36 characters and the same time",
				e.Name(), e.At, e.EventID, e.Timestamp)
		}
	}
	again, _, _, err := l.Call(t.Context(), page.Calls[0].Name())
	must(t, err)
	// A handle names one payload, of the first record that has it.
	bare := aCall(gate.Refused, 2, t0.Add(-time.Hour))
	bare.Payloads = nil
	must(t, l.Record(t.Context(), []gate.Record{bare}))
	found, payloads, others, err := l.Call(t.Context(), gate.PayloadRef(bare.ToolCallID, "args", sumOf(`{"n":2}`)))
	if err != nil || found.Chain != gate.Looks || len(payloads) != 1 || string(payloads[0].Payload) != `{"n":2}` || len(others) != 0 {
		t.Error(found, payloads, others, err)
	}
	if _, _, _, err := l.Call(t.Context(), "artifact://tool_payloads/"+bare.ToolCallID+"/result"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	// Another call with the same id has other arguments: each handle leads to its own.
	twin := aCall(gate.Looks, 2, t0.Add(time.Hour))
	twin.Payloads[0].JSON = json.RawMessage(`{"n":"twin"}`)
	twin.Payloads[0].SHA256 = sumOf(`{"n":"twin"}`)
	twin.Event = json.RawMessage(strings.Replace(string(twin.Event), payloads[0].SHA256, twin.Payloads[0].SHA256, 1))
	must(t, l.Record(t.Context(), []gate.Record{twin}))
	for want, sum := range map[string]string{`{"n":2}`: payloads[0].SHA256, `{"n":"twin"}`: twin.Payloads[0].SHA256} {
		_, got, _, err := l.Call(t.Context(), gate.PayloadRef(twin.ToolCallID, "args", sum))
		if err != nil || len(got) != 1 || string(got[0].Payload) != want {
			t.Errorf("the handle with hash %s leads to %v, %v; want %s", sum, got, err, want)
		}
	}
	if len(seen) != 3 || again.EventID != page.Calls[0].EventID {
		t.Errorf("event ids of 3 calls: %v; the newest read again has %s, want %s", seen, again.EventID, page.Calls[0].EventID)
	}
	if _, err := l.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
}
