package conformance

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/gate"
)

func consent(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	ask := func(n int) (gate.Response, string) {
		t.Helper()
		res := w.call(e, request("test.asked", fmt.Sprintf(`{"n":%d}`, n)))
		if res.OK {
			return res, ""
		}
		id := ""
		if i := strings.Index(res.Error.Message, "apr_"); i >= 0 {
			id = res.Error.Message[i : i+30]
		}
		return res, id
	}
	answer := func(id string, approve bool, uses int) {
		t.Helper()
		if err := w.answer(id, approve, uses, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	res, id := ask(1)
	w.want(res, "policy", "consent_required")
	if _, same := ask(1); same != id {
		t.Errorf("asked twice: %s and %s", id, same)
	}
	_, other := ask(2)
	if other == id {
		t.Error("another payload has the same approval")
	}
	w.want(w.call(w.as(everyone("b")), request("test.asked", `{"n":1}`)), "policy", "consent_required")
	answer(id, true, 1)
	w.want(w.call(e, request("test.asked", `{"n":3}`)), "policy", "consent_required")
	w.want(w.call(w.as(everyone("b")), request("test.asked", `{"n":1}`)), "policy", "consent_required")
	res, _ = ask(1)
	w.want(res, "", "")
	res, _ = ask(1)
	w.want(res, "policy", "consent_required") // used up
	answer(other, false, 0)
	res, _ = ask(2)
	w.want(res, "policy", "consent_denied")
	// Bounded uses, and an end.
	_, id = ask(4)
	answer(id, true, 2)
	for _, code := range []string{"", "", "consent_required"} {
		res, _ := ask(4)
		w.want(res, "policy", code)
	}
	_, id = ask(5)
	answer(id, true, 5)
	w.later(2 * time.Hour)
	res, _ = ask(5)
	w.want(res, "policy", "consent_required")
	// A question that nobody answered in time is asked anew.
	_, old := ask(6)
	w.later(2 * time.Hour)
	if err := w.answer(old, true, 1, time.Hour); err == nil {
		t.Error("an expired question was answered")
	}
	if _, fresh := ask(6); fresh == old {
		t.Error("the expired question again")
	}
	if n := w.count("test.asked"); n != 3 {
		t.Errorf("reached %d times", n)
	}
	// Of many calls at a time with one approval, one passes.
	_, id = ask(7)
	answer(id, true, 1)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := e.Call(t.Context(), request("test.asked", `{"n":7}`)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.count("test.asked"); n != 4 {
		t.Errorf("reached %d times", n)
	}
}
