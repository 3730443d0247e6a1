package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// hiddenArgs are the sensitive arguments of test.hidden.
var hiddenArgs = []string{"text", "list"}

// hiddenValues must be found nowhere. None looks like the others, and one needs escapes in JSON and in URLs.
var hiddenValues = []string{"ghp_0123456789abcdefghijABCDEFGHIJ012345", "winter in Ålesund 2026", `quo"te<&>/back\slash`, "90071992",
	"under a key of a list"}

// hiddenInput is arguments with all of them.
func hiddenInput(n int, change string) string {
	text, _ := json.Marshal(strings.Join(hiddenValues[:3], "|") + change)
	return fmt.Sprintf(`{"n":%d,"text":%s,"list":[90071992,{"token":"under a key of a list"}]}`, n, text)
}

// hidden is a worker that repeats what it should not, in each way that there is.
func (w *World) hidden(_ context.Context, c gate.Call) (any, error) {
	var a struct {
		N    int
		Text string
		List []any
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return nil, nil // a dry run has markers
	}
	marked := a.Text == gate.Redacted || string(c.Stored) == string(c.Args)
	if !c.Request.DryRun && (marked || strings.Contains(string(c.Request.Args), "winter")) {
		return nil, fault.New(fault.Internal, "test_marker", "the worker was given the marker")
	}
	said := fmt.Sprintf("%s %v %s %s", a.Text, a.List, url.QueryEscape(a.Text), base64.StdEncoding.EncodeToString([]byte(a.Text)))
	switch a.N {
	case 1:
		return map[string]any{"said": said, "list": a.List, a.Text: a.Text, "parts": strings.Fields(a.Text)}, nil
	case 2:
		return nil, fault.New(fault.Tool, "test_tool", "the upstream refused "+said).WithNext("not with " + a.Text)
	case 3:
		panic(said)
	case 4:
		return nil, fault.New(fault.Timeout, "timeout", "no answer to "+said)
	case 5:
		return nil, fault.Invalid("bad "+said, fault.Problem{Code: "X", Field: a.Text, Rule: said, Msg: said})
	case 6:
		return map[string]any{"said": said + strings.Repeat("x", gate.MaxInline) + said}, nil
	}
	return map[string]any{"ok": true}, nil
}

// sensitive: what a tool declares sensitive reaches its handler and is found nowhere else, whatever becomes of the call.
func sensitive(t *testing.T, w *World) {
	e, weak := w.as(everyone("a")), w.as(principal("weak"))
	var said strings.Builder
	note := func(res gate.Response) gate.Response {
		raw, _ := json.Marshal(res)
		said.Write(raw)
		return res
	}
	want := func(n int, kind, code string) {
		t.Helper()
		w.want(note(w.call(e, request("test.hidden", hiddenInput(n, "")))), kind, code)
	}
	want(0, "", "")
	want(1, "", "")
	want(2, "tool", "test_tool")
	want(3, "tool", "internal")
	want(4, "timeout", "timeout")
	want(5, "validation", "X")
	large := note(w.call(e, request("test.hidden", hiddenInput(6, ""))))
	if w.want(large, "", ""); large.ResultRef == nil {
		t.Errorf("%d bytes", len(large.Result))
	}
	// Refused: by rights, by the schema, by what another argument holds, by its form.
	w.want(note(w.call(weak, request("test.hidden", hiddenInput(0, "")))), "capability", "capability_denied")
	w.want(note(w.call(e, request("test.hidden", strings.Replace(hiddenInput(0, ""), `"n":0`, `"n":"x"`, 1)))), "validation", "ARGS-SCHEMA")
	w.want(note(w.call(e, request("test.hidden", `{"list":"`+hiddenValues[1]+`"}`))), "validation", "ARGS-SCHEMA")
	w.want(note(w.call(e, request("test.hidden", `{"run_id":"`+hiddenValues[0]+`"}`))), "validation", "secret_in_args")
	if can(e, DryRun) {
		for n := range 7 {
			dry := w.call(e, request("test.hidden", hiddenInput(n, ""), func(r *gate.Request) { r.DryRun = true }))
			if w.want(note(dry), "", ""); !strings.Contains(string(dry.Result), gate.Redacted) {
				t.Errorf("%s", dry.Result)
			}
		}
	}
	if can(e, ArgsRef) {
		w.want(note(w.call(e, request("test.hidden", `{}`, func(r *gate.Request) {
			r.ArgsRef = ptr("artifact://" + w.artifact(mine, `{"text":"a harmless one"}`))
		}))), "validation", "sensitive_by_reference")
	}
	// A key is bound to the values too.
	for range 2 {
		w.want(note(w.call(e, request("test.hidden", hiddenInput(1, ""), withKey("k")))), "", "")
	}
	w.want(note(w.call(e, request("test.hidden", hiddenInput(1, "other"), withKey("k")))), "validation", "idempotency_conflict")
	// So is an approval; who gives it is shown a marker.
	asked := func(change string) gate.Response {
		return note(w.call(e, request("test.hidden.asked", hiddenInput(0, change))))
	}
	w.want(asked(""), "policy", "consent_required")
	list, _, _, err := w.Ledger.Approvals(t.Context(), nil, false)
	if err != nil || len(list) != 1 || !strings.Contains(string(list[0].Payload), `"text":"`+gate.Redacted+`"`) {
		t.Fatal(list, err)
	}
	if err := w.answer(list[0].ID, true, 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	w.want(asked(""), "", "")
	w.want(asked("other"), "policy", "consent_required")
	if n := w.count("test.hidden.asked"); n != 1 {
		t.Errorf("reached %d times", n)
	}
	w.Records()
	w.searchAll(t, said.String())
}

// searchAll looks for the values in the answers, in the log, and in every file of the world.
func (w *World) searchAll(t *testing.T, answers string) {
	t.Helper()
	look := func(where, text string) {
		for _, v := range hiddenValues {
			quoted, _ := json.Marshal(v)
			encoded := base64.RawStdEncoding.EncodeToString([]byte(v))
			for _, form := range []string{v, strings.Trim(string(quoted), `"`), url.QueryEscape(v), encoded} {
				if strings.Contains(text, form) {
					t.Errorf("%s: %q", where, form)
				}
			}
		}
	}
	look("the answers", answers)
	look("the log", w.Log.String())
	files := 0
	err := filepath.WalkDir(filepath.Dir(w.Ledger.Path()), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		look(path, string(data))
		files++
		return err
	})
	if err != nil || files < 2 {
		t.Error(files, err)
	}
}
