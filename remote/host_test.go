package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
)

func ok(t *testing.T, h *Host) {
	t.Helper()
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); err != nil {
		t.Fatal(err)
	}
}

// A host that refuses connections is not flooded: calls share an attempt, and attempts become less frequent.
//
// proves SITE-04
func TestBackOff(t *testing.T) {
	s, c := serve(t, "")
	s.Deaf.Store(true)
	h := open(t, c)
	h.timing.first, h.timing.longest, h.timing.patience = 50*time.Millisecond, time.Hour, 0
	var all sync.WaitGroup
	began := time.Now()
	for time.Since(began) < time.Second || s.Accepted.Load() < 2 {
		for range 10 {
			all.Go(func() {
				_, err := h.Run(t.Context(), Call{Script: "true", Limit: 1})
				if !NotStarted(err) || fault.CodeOf(err) != Unreachable {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	took := time.Since(began)
	most := int64(3)
	for d := h.timing.first; d < took; d *= 2 {
		most++
	}
	if n := s.Accepted.Load(); n > most {
		t.Errorf("%d attempts in %s, want at most %d", n, took, most)
	}
	var err error
	for !strings.Contains(fmt.Sprint(err), "the next try is in") { // a slow machine may hit the end of a back-off; the next one is longer
		if _, err = h.Run(t.Context(), Call{Script: "true", Limit: 1}); !NotStarted(err) {
			t.Fatalf("Run on a host that refuses connections = %v", err)
		}
	}
	if fault.RetryOf(err) < 1 {
		t.Errorf("Run during a back-off = %v with a retry after %d s, want at least 1 s", err, fault.RetryOf(err))
	}
	s.Deaf.Store(false)
	h.mu.Lock()
	h.until = time.Now()
	h.mu.Unlock()
	ok(t, h)
}

// A lost connection fails the running calls with an error that shows what it proves, and is opened again.
//
// proves SITE-04
func TestConnectionLost(t *testing.T) {
	s, c := serve(t, "")
	h := open(t, c)
	h.timing.alive = 2 * time.Second
	ok(t, h)
	first, err := h.Connection(t.Context())
	must(t, err)
	for name, lose := range map[string]func(){"cut": s.Cut, "frozen": func() { s.Frozen.Store(true) }} {
		dir, lost := t.TempDir(), make(chan struct{})
		go func() {
			defer close(lost)
			await(t, dir+"/up")
			lose()
		}()
		_, err := h.Run(t.Context(), Call{Script: `touch "$1"/up; sleep 60`, Args: []string{dir}, Limit: 1, Once: true})
		if fault.CodeOf(err) != Cut || NotStarted(err) {
			t.Errorf("%s: %v", name, err)
		}
		<-lost // on a slow machine the call may end first
		s.Frozen.Store(false)
		ok(t, h)
	}
	if now, err := h.Connection(t.Context()); err != nil || now == first {
		t.Errorf("connection %d, then %d (%v)", first, now, err)
	}
}

// Beyond MaxSessions calls wait for each other; if no session ends, the error proves that nothing was started.
//
// proves SITE-04
func TestMaxSessions(t *testing.T) {
	s, c := serve(t, "")
	s.Allowed.Store(2)
	h := open(t, c)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			out, err := h.Run(t.Context(), Call{Script: `sleep 0.05; echo "$1"`, Args: []string{fmt.Sprint(i)}, Limit: 10})
			if err != nil || string(out.Stdout) != fmt.Sprintln(i) {
				t.Errorf("%q %v", out.Stdout, err)
			}
		})
	}
	all.Wait()
	if n := s.Accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	s.Allowed.Store(0)
	h.timing.busy = 200 * time.Millisecond
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); fault.CodeOf(err) != Busy || !NotStarted(err) {
		t.Error(err)
	}
	h.timing.busy = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Run(ctx, Call{Script: "true", Limit: 1}); !NotStarted(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.Allowed.Store(10)
	ok(t, h)
}

// A closed host starts nothing.
func TestClosed(t *testing.T) {
	_, c := serve(t, "")
	h := open(t, c)
	ok(t, h)
	h.Close()
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); !NotStarted(err) {
		t.Error(err)
	}
}

// Sessions returns how many sessions a host allows, and closes all of them.
func TestSessions(t *testing.T) {
	for _, x := range []struct{ allowed, wanted, got int }{{10, 4, 4}, {3, 4, 3}, {1, 4, 1}, {0, 4, 0}, {10, 10, 10}, {10, 0, 0}} {
		s, c := serve(t, "")
		h := open(t, c)
		s.Allowed.Store(int64(x.allowed))
		if n, err := h.Sessions(t.Context(), x.wanted); n != x.got || err != nil {
			t.Errorf("%d of %d: %d %v", x.allowed, x.wanted, n, err)
		}
		if x.allowed > 0 {
			ok(t, h)
		}
	}
	s, c := serve(t, "")
	h := open(t, c)
	ok(t, h)
	s.Deaf.Store(true)
	s.Cut()
	if n, err := h.Sessions(t.Context(), 4); n != 0 || !NotStarted(err) {
		t.Errorf("%d %v", n, err)
	}
}
