package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/gate"
)

func keys(t *testing.T, w *World) {
	a, b := w.as(everyone("a")), w.as(everyone("b"))
	first := w.call(a, request("test.execute", `{"n":1}`, withKey("k")))
	w.want(first, "", "")
	for range 3 {
		again := w.call(a, request("test.execute", `{"n":1}`, withKey("k")))
		w.want(again, "", "")
		if string(again.Result) != string(first.Result) || again.ToolCallID == first.ToolCallID {
			t.Errorf("%s, first %s", again.Result, first.Result)
		}
	}
	w.want(w.call(a, request("test.execute", `{"n":2}`, withKey("k"))), "validation", "idempotency_conflict")
	w.want(w.call(a, request("test.once", `{"n":1}`, withKey("k"))), "validation", "idempotency_conflict")
	if n := w.count("test.execute"); n != 1 {
		t.Errorf("reached %d times", n)
	}
	// Another principal's keys are its own.
	w.want(w.call(b, request("test.execute", `{"n":2}`, withKey("k"))), "", "")
	// The outcome is the first one's though it was a failure for good; what may be tried again stays open.
	for _, kind := range []string{"tool", "conflict", "validation"} {
		one, two := w.call(a, request("test.fails", `{"text":"`+kind+`"}`, withKey(kind))),
			w.call(a, request("test.fails", `{"text":"`+kind+`"}`, withKey(kind)))
		if one.Error.Message != two.Error.Message || two.Error.Code != "test_"+kind {
			t.Errorf("%s: %+v, then %+v", kind, one.Error, two.Error)
		}
	}
	before := w.count("test.fails")
	for range 2 {
		w.want(w.call(a, request("test.fails", `{"text":"transport"}`, withKey("again"))), "transport", "test_transport")
	}
	if n := w.count("test.fails") - before; n != 2 {
		t.Errorf("reached %d times", n)
	}
	w.want(w.call(a, request("test.fails", `{"text":"tool"}`, withKey("again"))), "validation", "idempotency_conflict")
	// Never, not after years.
	w.later(10 * 365 * 24 * time.Hour)
	if again := w.call(a, request("test.execute", `{"n":1}`, withKey("k"))); string(again.Result) != string(first.Result) {
		t.Errorf("%s", again.Result)
	}
	// What a refused call asked for does not bind its key.
	w.want(w.call(a, request("test.execute", `{"x":1}`, withKey("fresh"))), "validation", "ARGS-SCHEMA")
	w.want(w.call(a, request("test.execute", `{"n":7}`, withKey("fresh"))), "", "")
	// A secret that was revealed once is not kept to be revealed again.
	w.want(w.call(a, request("test.reveal", `{}`, withKey("r"))), "", "")
	if again := w.call(a, request("test.reveal", `{}`, withKey("r"))); !strings.Contains(string(again.Result),
		`"token":"`+gate.Redacted+`"`) || !strings.Contains(string(again.Result), "revoke what was made") || w.count("test.reveal") != 1 {
		t.Errorf("%s", again.Result)
	}
}

// keysAndRights: a stored answer is given to no caller with fewer rights than the first one had, and a key says nothing to them.
func keysAndRights(t *testing.T, w *World) {
	wide := gate.Principal{ID: "prn_1", Name: "token:ci", Method: gate.ByToken, Accounts: map[string]string{theirs: "research"},
		Rights: gate.Rights{{Capabilities: []string{gate.All}, Projects: []string{mine, theirs}}}}
	first := w.call(w.as(wide), request("test.execute", `{"n":1}`, withKey("k")))
	w.want(first, "", "")
	w.want(w.call(w.as(wide), request("test.once", `{"n":1}`, withKey("once"))), "", "")
	with := func(change func(*gate.Principal)) Entry {
		p := wide
		change(&p)
		return w.as(p)
	}
	for name, e := range map[string]Entry{
		"a project less": with(func(p *gate.Principal) { p.Rights = gate.RightsOf([]string{gate.All}, []string{mine}) }),
		"a capability less": with(func(p *gate.Principal) {
			p.Rights = gate.RightsOf([]string{gate.CapGateway, gate.CapSlurm}, []string{mine, theirs})
		}),
		"other pairs": with(func(p *gate.Principal) {
			p.Rights = gate.Rights{{Capabilities: []string{gate.All}, Projects: []string{mine}},
				{Capabilities: []string{gate.CapRead}, Projects: []string{theirs}}}
		}),
		"bound to an account": with(func(p *gate.Principal) { p.Accounts = map[string]string{mine: "research", theirs: "research"} }),
	} {
		// The right arguments and others get the same answer, so that a key does not tell what it was used for.
		for _, r := range []gate.Request{request("test.execute", `{"n":1}`, withKey("k")), request("test.execute", `{"n":2}`, withKey("k")),
			request("test.once", `{"n":1}`, withKey("k")), request("test.once", `{"n":1}`, withKey("once"))} {
			res := w.call(e, r)
			w.want(res, "capability", "idempotency_rights")
			if strings.Contains(res.Error.Message, "test.") || len(res.Result) > 0 && string(res.Result) != "null" {
				t.Errorf("%s: %+v", name, res)
			}
		}
	}
	// As many rights, or more, are enough; so are more accounts.
	for name, e := range map[string]Entry{"the same": w.as(wide), "more": with(func(p *gate.Principal) {
		p.Rights, p.Accounts = gate.Everything(), nil
	})} {
		if again := w.call(e, request("test.execute", `{"n":1}`, withKey("k"))); string(again.Result) != string(first.Result) {
			t.Errorf("%s: %+v %s", name, again.Error, again.Result)
		}
	}
	// A conflict does not say what the key was used for.
	conflict := w.call(w.as(wide), request("test.execute", `{"n":2}`, withKey("once")))
	w.want(conflict, "validation", "idempotency_conflict")
	if strings.Contains(conflict.Error.Message, "test.once") {
		t.Errorf("%s", conflict.Error.Message)
	}
	// Another principal of the same name has separate keys, whatever its rights.
	namesake := with(func(p *gate.Principal) { p.ID = "prn_2" })
	if res := w.call(namesake, request("test.execute", `{"n":1}`, withKey("k"))); !res.OK || string(res.Result) == string(first.Result) {
		t.Errorf("%+v %s", res.Error, res.Result)
	}
	if n := w.count("test.execute"); n != 2 {
		t.Errorf("reached %d times", n)
	}
}

// readsNeedNoKeys: a key on a call that only reads binds nothing, and the call is answered anew.
func readsNeedNoKeys(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	for n := range 3 {
		res := w.call(e, request("test.read", fmt.Sprintf(`{"n":%d}`, n), withKey("k")))
		w.want(res, "", "")
		if string(res.Result) != fmt.Sprintf(`{"args":{"n":%d}}`, n) {
			t.Errorf("%d: %s", n, res.Result)
		}
	}
	w.want(w.call(e, request("test.execute", `{"n":1}`, withKey("k"))), "", "")
	if n := w.count("test.read"); n != 3 {
		t.Errorf("reached %d times", n)
	}
	for _, r := range w.Records() {
		if !strings.Contains(string(r.Event), `"idempotency_key":"k"`) {
			t.Errorf("the key is not in the record: %s", r.Event)
		}
	}
}

func oneKeyManyCalls(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	var wg sync.WaitGroup
	results := make([]string, 40)
	for i := range results {
		wg.Go(func() {
			res, err := e.Call(t.Context(), request("test.once", `{"n":1}`, withKey("k")))
			if err != nil || !res.OK {
				t.Errorf("%+v %v", res.Error, err)
			}
			results[i] = string(res.Result)
		})
	}
	wg.Wait()
	if n := w.count("test.once"); n != 1 || len(slices.Compact(results)) != 1 {
		t.Errorf("reached %d times: %v", n, results)
	}
}

// keyAfterCrash: a gateway that died between binding a key and settling it.
func keyAfterCrash(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	w.want(w.call(e, request("test.execute", `{"n":1}`, withKey("other"))), "", "")
	for _, tool := range []string{"test.execute", "test.once"} {
		// The key as Begin leaves it, without an outcome.
		ctx, stop := context.WithCancel(t.Context())
		crash := &dyingJournal{w.Ledger, ctx}
		w.Gate.Close()
		w.Gate = w.gateWith(crash)
		stop()
		_ = w.call(w.as(everyone("a")), request(tool, `{"n":2}`, withKey("crash "+tool)))
		w.Gate.Close()
		w.start()
	}
	e = w.as(everyone("a"))
	// What is idempotent by itself is carried out again; of the other it is unknown.
	w.want(w.call(e, request("test.execute", `{"n":2}`, withKey("crash test.execute"))), "", "")
	w.want(w.call(e, request("test.execute", `{"n":3}`, withKey("crash test.execute"))), "validation", "idempotency_conflict")
	w.want(w.call(e, request("test.once", `{"n":2}`, withKey("crash test.once"))), "transport", "outcome_unknown")
	if w.count("test.execute") != 3 || w.count("test.once") != 1 {
		t.Error(w.count("test.execute"), w.count("test.once"))
	}
}
