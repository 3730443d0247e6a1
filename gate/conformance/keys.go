package conformance

import (
	"context"
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
	// What is idempotent by itself is carried out again; of the other nobody knows.
	w.want(w.call(e, request("test.execute", `{"n":2}`, withKey("crash test.execute"))), "", "")
	w.want(w.call(e, request("test.execute", `{"n":3}`, withKey("crash test.execute"))), "validation", "idempotency_conflict")
	w.want(w.call(e, request("test.once", `{"n":2}`, withKey("crash test.once"))), "transport", "outcome_unknown")
	if w.count("test.execute") != 3 || w.count("test.once") != 1 {
		t.Error(w.count("test.execute"), w.count("test.once"))
	}
}
