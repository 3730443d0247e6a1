package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
	// A question that was not answered in time is asked anew.
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

// consentCovers: an approval is good for what it covers and for nothing else, also where the gateway died after it was used up.
func consentCovers(t *testing.T, w *World) {
	call := func(key string) gate.Response {
		t.Helper()
		return w.call(w.as(everyone("a")), request("test.asked", `{"n":1}`, withKey(key)))
	}
	waiting := func() gate.Approval {
		t.Helper()
		list, total, _, err := w.Ledger.Approvals(t.Context(), []string{mine}, false)
		if err != nil || total != 1 || len(list) != 1 {
			t.Fatal(list, total, err)
		}
		return list[0]
	}
	approve := func() {
		t.Helper()
		if err := w.answer(waiting().ID, true, 1, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	w.account.Store("research")
	w.want(call("k"), "policy", "consent_required")
	first := waiting()
	if first.Covers.Account != "research" || first.Covers.ProjectID != mine || first.Covers.ContractVersion != "v1" {
		t.Errorf("%+v", first)
	}
	approve()
	w.account.Store("teaching")
	res := call("k")
	w.want(res, "policy", "consent_required")
	if second := waiting(); !strings.Contains(res.Error.Message, "account teaching instead of research") || second.Replaces == nil ||
		*second.Replaces != first.ID {
		t.Errorf("%s, %+v", res.Error.Message, second)
	}
	w.account.Store("research")
	w.want(call("k"), "policy", "consent_required") // void is void
	approve()
	// The gateway dies after the approval was used up. The same call continues with it, unless it would do something else by now.
	ctx, stop := context.WithCancel(t.Context())
	w.Gate.Close()
	w.Gate = w.gateWith(&dyingJournal{w.Ledger, ctx})
	stop()
	_ = call("k")
	w.Gate.Close()
	w.start()
	w.account.Store("teaching")
	w.want(call("k"), "policy", "consent_required")
	w.account.Store("research")
	w.want(call("k"), "", "")
	if n := w.count("test.asked"); n != 2 {
		t.Errorf("reached %d times", n)
	}
	w.want(call("other"), "policy", "consent_required")
	// A call that starts nothing needs no approval, and its tool knows that it has none.
	asked, started := waiting(), w.starts.Load()
	w.account.Store("none")
	w.want(call("third"), "", "")
	if now := waiting(); now.ID != asked.ID || w.starts.Load() != started || w.count("test.asked") != 3 {
		t.Errorf("%+v, %d of %d calls could start a job", now, w.starts.Load(), w.count("test.asked"))
	}
}

// consentAndRights: an approval gives no right. A caller who lost the right to make the call does not get it back by an approval.
func consentAndRights(t *testing.T, w *World) {
	who := everyone("a")
	w.want(w.call(w.as(who), request("test.asked", `{"n":1}`)), "policy", "consent_required")
	list, _, _, err := w.Ledger.Approvals(t.Context(), nil, false)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	// Of two people who answer at once, one is heard.
	var wg sync.WaitGroup
	var heard atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			if err := w.answer(list[0].ID, i%2 == 0, 1, time.Hour); err == nil {
				heard.Add(1)
			}
		})
	}
	wg.Wait()
	if heard.Load() != 1 {
		t.Errorf("%d answers", heard.Load())
	}
	weak := who
	weak.Rights = gate.RightsOf([]string{gate.CapRead}, []string{mine})
	w.want(w.call(w.as(weak), request("test.asked", `{"n":1}`)), "capability", "capability_denied")
	if n := w.count("test.asked"); n != 0 {
		t.Errorf("reached %d times", n)
	}
}
