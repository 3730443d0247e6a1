package app

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/retention"
)

const leaked = `xq-"Zt'7 of nobody's`

// eraseCall makes a call of secret.erase with a body.
func (g *Gateway) eraseCall(t *testing.T, who gate.Caller, args map[string]any, body string, key *string) gate.Response {
	t.Helper()
	raw, err := json.Marshal(args)
	must(t, err)
	if who.Body = nil; body != "" {
		who.Body = strings.NewReader(body)
	}
	req := gate.NewRequest("secret.erase", BuiltinVersion, raw)
	req.IdempotencyKey = key
	return g.Gate.Call(t.Context(), who, req)
}

// The secret of an erasure is in no record, including that of a refused one; earlier records of it are erased, and
// the chains verify.
//
// proves HTC-09
func TestErase(t *testing.T) {
	dir := t.TempDir()
	g := gatewayOver(t, dir, "../domains/genomics", "version: 1\n")
	admin := everything("user:boss", gate.All)
	var imported ImportAnswer
	g.says(t, admin, "artifact.import", map[string]any{"text": "before " + leaked + " after", "label": "notes"}, "", &imported)
	reason := map[string]any{"reason": "it leaked"}
	for what, c := range map[string]struct {
		args map[string]any
		body string
		code string
	}{
		"no secret": {reason, "", "secret_missing"}, "short": {reason, "short", "secret_length"},
		"long":          {reason, strings.Repeat("abcdefgh", retention.SecretMost), "body_too_large"},
		"in the reason": {map[string]any{"reason": "it is " + leaked}, leaked, "secret_in_reason"},
		"no reason":     {map[string]any{}, leaked, "ARGS-SCHEMA"},
	} {
		if res := g.eraseCall(t, admin, c.args, c.body, nil); res.Error == nil || res.Error.Code != c.code {
			t.Errorf("secret.erase %s ended with %+v, want %s", what, res.Error, c.code)
		}
	}
	weak := everything("user:weak", "proj_x")
	if res := g.eraseCall(t, weak, reason, leaked, nil); res.Error == nil || res.Error.Code != "capability_denied" {
		t.Errorf("the call ended with %+v, want the code capability_denied", res.Error)
	}
	key := "once"
	res := g.eraseCall(t, admin, reason, leaked+"\n", &key)
	var out EraseAnswer
	if err := json.Unmarshal(res.Result, &out); err != nil || out.ID == "" || out.Left != 0 || len(out.Pending) != 0 || len(out.Outside) == 0 {
		t.Fatalf("secret.erase: %+v, %s, %v; want an id, nothing left or pending, and places outside", res.Error, res.Result, err)
	}
	if again := g.eraseCall(t, admin, reason, leaked+"\n", &key); string(again.Result) != string(res.Result) {
		t.Errorf("a repeated call: %s", again.Result)
	}
	if other := g.eraseCall(t, admin, reason, "another secret 42", &key); other.Error == nil || other.Error.Code != "idempotency_conflict" {
		t.Errorf("the key is not bound to the secret: %+v", other)
	}
	if _, err := g.Ledger.Artifact(t.Context(), imported.ArtifactID); err == nil {
		t.Error("the artifact is still there")
	}
	var verified EventsVerified
	g.says(t, admin, "event.verify", map[string]any{}, "", &verified)
	if len(verified.Erased) != 1 || verified.Erased[0].Records < 2 || verified.Erased[0].Reason != "it leaked" {
		t.Errorf("event.verify lists the erasures %+v, want one with at least 2 records", verified.Erased)
	}
	g.Gate.Close()
	s, err := retention.NewSecret([]byte(leaked), "ers_x")
	must(t, err)
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if b, err := os.ReadFile(path); err != nil || s.In(b) {
			t.Errorf("%s has the secret (%v)", path, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if page, err := g.Ledger.Calls(t.Context(), ledger.CallFilter{ToolID: "secret.erase"}); err != nil || len(page.Calls) < 6 {
		t.Error(len(page.Calls), err)
	}
}

// An approval of an erasure holds for one secret: the secret of the call cannot be exchanged after it.
func TestEraseWithConsent(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\nconsent: {tools: [secret_erase]}\n")
	admin := everything("user:boss", gate.All)
	reason := map[string]any{"reason": "it leaked"}
	asked := func(body string) string {
		t.Helper()
		res := g.eraseCall(t, admin, reason, body, nil)
		if res.Error == nil || res.Error.Code != "consent_required" {
			t.Fatalf("secret.erase ended with %+v, want consent_required", res.Error)
		}
		list, _, _, err := g.Ledger.Approvals(t.Context(), nil, true)
		if err != nil || bytes.Contains(list[0].Payload, []byte(body)) {
			t.Fatal(list, err)
		}
		return res.Error.Message
	}
	asked(leaked)
	list, _, _, err := g.Ledger.Approvals(t.Context(), nil, true)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if _, err := g.Ledger.AnswerApproval(t.Context(), list[0].ID, ledger.Answer{Approve: true, By: gate.Principal{Name: "user:other"}, Uses: 2,
		Expires: list[0].ExpiresAt}); err != nil {
		t.Fatal(err)
	}
	if res := g.eraseCall(t, admin, reason, leaked, nil); !res.OK {
		t.Errorf("the call ended with %+v, want success", res.Error)
	}
	asked("another secret 42") // the approval is not for it
}

// A gateway that starts with no erasure to finish does not block a gc: the shell's gc runs in the process that has
// just started.
func TestNoErasureLeft(t *testing.T) {
	t.Parallel()
	g := tableGateway(t)
	g.sweeping.Lock()
	done := make(chan struct{})
	go func() { g.ResumeDeletions(t.Context()); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it waits for the lock of gc")
	}
	g.sweeping.Unlock()
}
