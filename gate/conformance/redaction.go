package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/gate"
)

// secrets: fifty of them through every place a caller can write into; none is found anywhere afterwards.
func secrets(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	var said strings.Builder
	note := func(res gate.Response) gate.Response {
		raw, _ := json.Marshal(res)
		said.Write(raw)
		said.WriteByte('\n')
		return res
	}
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for i, s := range Secrets() {
		for _, tool := range []string{"test.execute", "test.read"} {
			w.want(note(w.call(e, request(tool, `{"text":`+quote(s.Text)+`}`))), "validation", "secret_in_args")
			w.want(note(w.call(e, request(tool, `{"list":[{"deep":[`+quote("before "+s.Text+" after")+`]}]}`))), "validation", "secret_in_args")
			w.want(note(w.call(e, request(tool, `{"list":[{"api_key":`+quote(s.Text)+`}]}`))), "validation", "secret_in_args")
			w.want(note(w.call(e, request(tool, `{`+quote(s.Text)+`:1}`))), "validation", "secret_in_args")
		}
		if can(e, ArgsRef) {
			w.want(note(w.call(e, request("test.write", `{}`, func(r *gate.Request) {
				r.ArgsRef = ptr("artifact://" + w.artifact(mine,
					`{"text":`+quote(s.Text)+`}`))
			}))), "validation", "secret_in_args")
		}
		// Where a secret does not keep a call from being made, it does not stay either.
		w.valid(note(w.call(e, request("test.read", `{"n":`+fmt.Sprint(i)+`}`, func(r *gate.Request) {
			r.SessionID, r.Actor.AgentID, r.Actor.ModelID, r.IdempotencyKey = clip(s.Text), clip(s.Text), clip(s.Text), clip(s.Text)
		}))))
		w.valid(note(w.call(e, request(strings.Map(toolRune, clipped(s.Text, 100)), `{}`))))
		if raw, ok := e.(RawEntry); ok {
			res, err := raw.CallRaw(t.Context(), []byte(`{"tool_id":"test.read",`+quote(s.Text)+`:`+quote(s.Text)+`}`))
			if err != nil {
				t.Error(err)
			}
			w.want(note(res), "validation", "VAL-HTC-001")
		}
	}
	// Under a secret's name anything is one.
	for _, key := range []string{"password", "dbPassword", "API-Key", "client_secret", "authorization", "accessToken"} {
		w.want(note(w.call(e, request("test.execute", `{"list":[{`+quote(key)+`:"tuesday afternoon"}]}`))), "validation", "secret_in_args")
	}
	w.want(note(w.call(e, request("test.execute",
		`{"text":"the tokens of a sentence; a keyboard; max_tokens: 5; AKIAVLGRSTKDEEELIKKAQGSR"}`))), "", "")
	w.want(note(w.call(e, request("test.leaks", `{}`))), "", "")
	w.want(note(w.call(e, request("test.panic", `{}`))), "tool", "internal")
	revealed := w.call(e, request("test.reveal", `{}`))
	w.want(revealed, "", "")
	if !strings.Contains(string(revealed.Result), Revealed) {
		t.Errorf("not shown to the caller: %s", revealed.Result)
	}
	if n := w.count("test.execute"); n != 1 {
		t.Errorf("%d calls with a secret reached the tool", n)
	}
	w.Records()
	w.find("the answers", said.String(), "tuesday afternoon")
	w.find("the log", w.Log.String(), Revealed)
	w.searchLedger("tuesday afternoon", Revealed)
}

// find looks for every planted secret, and some more.
func (w *World) find(where, text string, more ...string) {
	w.T.Helper()
	for _, s := range Secrets() {
		if strings.Contains(text, s.Core) {
			w.T.Errorf("%s hold the %s", where, s.Kind)
		}
	}
	for _, s := range more {
		if strings.Contains(text, s) {
			w.T.Errorf("%s hold %q", where, s)
		}
	}
}

// searchLedger looks into the bytes of the database itself, its journal included. JSON escapes nothing the secrets consist of.
func (w *World) searchLedger(more ...string) {
	w.T.Helper()
	files, err := filepath.Glob(w.Ledger.Path() + "*")
	if err != nil || len(files) == 0 {
		w.T.Fatal(files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			w.T.Fatal(err)
		}
		w.find(filepath.Base(f), string(data), more...)
	}
}
