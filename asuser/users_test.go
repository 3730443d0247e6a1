package asuser_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/asuser"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

const (
	runOfAlice = "run_0X8Z4D1X467KV94K4TXG0D9BXT"
	runOfBob   = "run_4892C8PXMRCH3ZCVXQYKTVJ9DG"
	runOfCarol = "run_1CARO1X467KV94K4TXG0D9BXTA"
	runOfSelf  = "run_2SE1F41X467KV94K4TXG0D9BXT"
)

var owners = map[string]string{runOfAlice: "alice", runOfBob: "bob", runOfCarol: "carol", runOfSelf: ""}

// world is the far side: each user's parts record their calls.
type world struct {
	mu     sync.Mutex
	calls  map[string][]string // user → "method run"
	events []string            // logins and their ends
	open   map[string]func(ctx context.Context) error
	hold   chan struct{} // nil: calls return at once
	asked  int           // UserOf
	latest map[string]func() string
}

func newWorld(limit int) (*world, *asuser.Users) {
	w := &world{calls: map[string][]string{}, open: map[string]func(context.Context) error{}, latest: map[string]func() string{}}
	return w, asuser.New(asuser.Config{Limit: limit, Idle: time.Minute, Login: w.login,
		UserOf: func(_ context.Context, runID string) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked++
			user, known := owners[runID]
			if !known {
				return "", fault.New(fault.NotFound, "run_not_found", "there is no run "+runID)
			}
			return user, nil
		},
		LeaderOf: func(_ context.Context, array string) (string, error) {
			if array != arrayOfBob {
				return "", fault.New(fault.NotFound, "array_not_found", "there is no array "+array)
			}
			return runOfBob, nil
		},
		RunDir: func(user, runID string) string { return "/scratch/" + user + "/" + runID }})
}

// The hex digits make a name that RunOf alone would misread.
const arrayOfBob = "sg-array-a23456789abcdef012345678"

// A task is cancelled as the user whose runs are in the array. Another array has no user.
func TestCancelTasks(t *testing.T) {
	w, u := newWorld(2)
	defer u.Close()
	must(t, u.Cancel(t.Context(), "7_[0,2]", arrayOfBob, ""))
	if err := u.Cancel(t.Context(), "7_0", "sg-array-b23456789abcdef012345678", ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("Cancel of an unknown array = %v, want not found", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls["bob"]) != 1 || len(w.calls) != 1 || w.latest["bob"]() != runOfBob {
		t.Errorf("the calls are %v and the last run of bob is %q, want one call as bob for %s", w.calls, w.latest["bob"](), runOfBob)
	}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf(format, args...))
}

func (w *world) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.events = nil }()
	return strings.Join(w.events, ", ")
}

func (w *world) login(user string, latest func() string) (asuser.Login, error) {
	w.note("in %s", user)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest[user] = latest
	return &way{w, user, latest}, nil
}

type way struct {
	*world
	user   string
	latest func() string
}

func (l *way) Open(ctx context.Context) (asuser.Parts, error) {
	l.mu.Lock()
	open := l.open[l.user]
	l.mu.Unlock()
	if open != nil {
		if err := open(ctx); err != nil {
			return asuser.Parts{}, err
		}
	}
	p := parts{l}
	return asuser.Parts{Submitter: p, Canceller: p, Workspace: p}, nil
}
func (l *way) Drop(reason string) { l.note("drop %s: %s", l.user, reason) }
func (l *way) Up() bool           { return true }
func (l *way) Close()             { l.note("out %s", l.user) }

// parts records each call with its run.
type parts struct{ *way }

func (p parts) did(method, runID string) {
	p.mu.Lock()
	p.calls[p.user] = append(p.calls[p.user], method+" "+runID)
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

func (p parts) Send(_ context.Context, job run.JobSpec, _ int) run.SendResult {
	p.did("Send", job.RunID)
	return run.SendResult{Outcome: run.SendAccepted, JobID: "7"}
}
func (p parts) Receipt(_ context.Context, job run.JobSpec, _ int) (run.SendResult, bool) {
	p.did("Receipt", job.RunID)
	return run.SendResult{Outcome: run.SendAccepted, JobID: "7"}, false
}
func (p parts) Cancel(_ context.Context, _, name, _ string) error {
	p.did("Cancel", run.RunOf(name))
	return nil
}
func (p parts) StageInputs(_ context.Context, runID string, _ []plan.Input, _ run.Opener) error {
	p.did("StageInputs", runID)
	return nil
}
func (p parts) OpenTogether(context.Context, []run.Opening) []error {
	panic("each user's runs are opened one by one")
}
func (p parts) OpenAttempt(_ context.Context, runID string, _ int, _ string, _ ...run.ControlFile) error {
	p.did("OpenAttempt", runID)
	return nil
}
func (p parts) ReadControlFrom(_ context.Context, runID string, _ int, _ string, _, _ int64) (run.Part, error) {
	p.did("ReadControlFrom", runID)
	return run.Part{Data: []byte(p.user)}, nil
}
func (p parts) TakeClaim(_ context.Context, runID string, _ int, content []byte) ([]byte, error) {
	p.did("TakeClaim", runID)
	return content, nil
}
func (p parts) OpenOutput(_ context.Context, runID string, _ int, _ string) (io.ReadCloser, int64, error) {
	p.did("OpenOutput", runID)
	return io.NopCloser(strings.NewReader(p.user)), int64(len(p.user)), nil
}
func (p parts) Undeclared(_ context.Context, runID string, _ int, _ []string, _ int) ([]string, error) {
	p.did("Undeclared", runID)
	return nil, nil
}
func (p parts) RemoveRun(_ context.Context, runID string, _ map[int]string, _ func() (bool, error)) (int64, error) {
	p.did("RemoveRun", runID)
	return 1, nil
}
func (p parts) RunSize(_ context.Context, runID string) (int64, error) {
	p.did("RunSize", runID)
	return 1, nil
}
func (p parts) EachFile(_ context.Context, runID string, _ func(func() (io.ReadCloser, error)) (bool, error)) error {
	p.did("EachFile", runID)
	return nil
}
func (p parts) RunDir(string) string { return "unused" }

// everything calls each method of the ports about a run, and returns what failed.
func everything(u *asuser.Users, runID string) error {
	ctx, job := context.Background(), run.JobSpec{RunID: runID, N: 1}
	var errs []error
	if res := u.Send(ctx, job, 1); res.Outcome != run.SendAccepted {
		errs = append(errs, errors.New(res.Code))
	}
	if res, held := u.Receipt(ctx, job, 1); held {
		errs = append(errs, errors.New(res.Code))
	}
	errs = append(errs, u.Cancel(ctx, "7", run.JobName(runID, 1, "0123456789abcdef"), ""), u.StageInputs(ctx, runID, nil, nil),
		u.OpenAttempt(ctx, runID, 1, "t"))
	_, err := u.ReadControlFrom(ctx, runID, 1, "exit", 0, 1)
	errs = append(append(errs, err), u.OpenTogether(ctx, []run.Opening{{RunID: runID, N: 1, Token: "t"}})...)
	_, err = u.TakeClaim(ctx, runID, 1, nil)
	errs = append(errs, err)
	if r, _, err := u.OpenOutput(ctx, runID, 1, "out/x"); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, r.Close())
	}
	_, err = u.Undeclared(ctx, runID, 1, nil, 1)
	errs = append(errs, err)
	_, err = u.RemoveRun(ctx, runID, nil, nil)
	errs = append(errs, err)
	_, err = u.RunSize(ctx, runID)
	return errors.Join(append(errs, err, u.EachFile(ctx, runID, nil))...)
}

// Every call about a run reaches only the parts of its user, while other users are served at the same time.
func TestRunsStayWithTheirUsers(t *testing.T) {
	w, u := newWorld(2)
	defer u.Close()
	var all sync.WaitGroup
	for range 20 {
		for _, runID := range []string{runOfAlice, runOfBob, runOfCarol} {
			all.Go(func() {
				if err := everything(u, runID); err != nil {
					t.Errorf("a call about %s: %v", runID, err)
				}
			})
		}
	}
	all.Wait()
	for user, calls := range w.calls {
		for _, c := range calls {
			if _, runID, _ := strings.Cut(c, " "); owners[runID] != user {
				t.Errorf("%s was asked for %s", user, c)
			}
		}
		if len(calls) != 20*13 {
			t.Errorf("%d calls as %s, want 20 of each of the 13", len(calls), user)
		}
	}
	if len(w.calls) != 3 {
		t.Errorf("calls were made as %d users, want 3", len(w.calls))
	}
	for runID, dir := range map[string]string{runOfAlice: "/scratch/alice/", runOfBob: "/scratch/bob/", runOfSelf: "/scratch//"} {
		if got := u.RunDir(runID); got != dir+runID {
			t.Errorf("RunDir(%s) = %s, want %s", runID, got, dir+runID)
		}
	}
}

// A run without a user, of the gateway's own user or of an unknown name reaches no parts.
func TestRunsOfNobody(t *testing.T) {
	w, u := newWorld(2)
	defer u.Close()
	for runID, code := range map[string]string{runOfSelf: asuser.NoUser, "run_UNKNOWN": "run_not_found"} {
		if err := u.StageInputs(t.Context(), runID, nil, nil); fault.CodeOf(err) != code {
			t.Errorf("StageInputs(%s) = %v, want the code %s", runID, err, code)
		}
		res := u.Send(t.Context(), run.JobSpec{RunID: runID}, 1)
		if res.Outcome != run.SendNotRun || res.Code != code || res.Scope != run.ScopeRun {
			t.Errorf("Send(%s) = %s, code %q, scope %q, want %s, %s, %s",
				runID, res.Outcome, res.Code, res.Scope, run.SendNotRun, code, run.ScopeRun)
		}
		if res, held := u.Receipt(t.Context(), run.JobSpec{RunID: runID}, 1); !held || res.Outcome != run.SendDoubt || res.Code != code {
			t.Errorf("Receipt(%s) = %s, code %q, held %t, want %s, %s, held", runID, res.Outcome, res.Code, held, run.SendDoubt, code)
		}
	}
	if err := u.Cancel(t.Context(), "7", "mine", ""); !fault.Is(err, fault.Internal) {
		t.Errorf("Cancel with a foreign name = %v, want an internal fault", err)
	}
	if len(w.calls) > 0 || w.seen() != "" {
		t.Errorf("the calls are %v and the logins %v, want none", w.calls, w.events)
	}
}

// The number of users has a bound: the user who has been idle longest is logged out, a user in use never is.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, u := newWorld(2)
		read := func(runID string) error {
			_, err := u.RunSize(t.Context(), runID)
			return err
		}
		must(t, read(runOfAlice))
		time.Sleep(time.Second)
		must(t, read(runOfBob))
		time.Sleep(time.Second)
		must(t, read(runOfAlice))
		must(t, read(runOfCarol))
		synctest.Wait()
		if got := w.seen(); got != "in alice, in bob, in carol, out bob" && got != "in alice, in bob, out bob, in carol" {
			t.Errorf("the logins are %q, want alice, bob and carol in and bob out", got)
		}
		if up, refused := u.State(); up != 2 || refused != 0 {
			t.Errorf("State = %d connected, %d refused, want 2 and 0", up, refused)
		}
		// Alice's output is being read and carol has a running call: bob waits.
		r, _, err := u.OpenOutput(t.Context(), runOfAlice, 1, "out/x")
		must(t, err)
		w.hold = make(chan struct{})
		go read(runOfCarol)
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := u.RunSize(ctx, runOfBob); fault.CodeOf(err) != asuser.Busy || !fault.Is(err, fault.Transport) {
			t.Errorf("a call for a third user while two are in use = %v, want the code %s", err, asuser.Busy)
		}
		done := make(chan error)
		go func() { done <- read(runOfBob) }()
		synctest.Wait()
		must(t, r.Close())
		synctest.Wait()
		close(w.hold)
		must(t, <-done)
		synctest.Wait()
		if got := w.seen(); !strings.Contains(got, "out alice") || !strings.Contains(got, "in bob") || strings.Contains(got, "carol") {
			t.Errorf("the logins are %q, want alice out and bob in, and none of carol", got)
		}
		// An idle user is logged out after a while.
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := w.seen(); !strings.Contains(got, "out bob") || !strings.Contains(got, "out carol") {
			t.Errorf("after the idle time the logins are %q, want bob and carol out", got)
		}
		if up, _ := u.State(); up != 0 {
			t.Errorf("after the idle time %d users are connected, want 0", up)
		}
		u.Close()
		if err := read(runOfAlice); !fault.Is(err, fault.Transport) {
			t.Errorf("a call after Close = %v, want a transport fault", err)
		}
		synctest.Wait()
	})
}

// A refused login affects one user only. An attempt outlives the call that began it, and concurrent calls share it.
func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, u := newWorld(4)
		defer u.Close()
		refused := fault.New(fault.Policy, "user_refused", "no")
		tries, go1 := 0, make(chan struct{})
		w.open["alice"] = func(context.Context) error { return refused }
		w.open["bob"] = func(ctx context.Context) error {
			tries++
			select {
			case <-go1:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if _, err := u.RunSize(t.Context(), runOfAlice); !errors.Is(err, refused) {
			t.Errorf("RunSize with a refused login = %v, want %v", err, refused)
		}
		must(t, u.EachFile(t.Context(), runOfCarol, nil))
		if up, no := u.State(); up != 1 || no != 1 {
			t.Errorf("State = %d connected, %d refused, want 1 and 1", up, no)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := u.RunSize(ctx, runOfBob); fault.CodeOf(err) != "login_slow" {
			t.Errorf("RunSize during a slow login = %v, want the code login_slow", err)
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := u.RunSize(t.Context(), runOfBob); err != nil {
					t.Errorf("RunSize after the login = %v, want no error", err)
				}
			})
		}
		synctest.Wait()
		if w.latest["bob"]() != runOfBob {
			t.Errorf("the last run of bob is %q, want %q", w.latest["bob"](), runOfBob)
		}
		close(go1)
		all.Wait()
		if tries != 1 {
			t.Errorf("%d attempts to log bob in, want 1", tries)
		}
		w.open["alice"] = nil
		must(t, u.EachFile(t.Context(), runOfAlice, nil))
		if up, no := u.State(); up != 3 || no != 0 {
			t.Errorf("State = %d connected, %d refused, want 3 and 0", up, no)
		}
		// The ledger is asked for a run's user once.
		if asked := w.asked; asked != 3 {
			t.Errorf("the ledger was asked for a user %d times, want 3", asked)
		}
		w.seen()
		u.Drop("bob", "revoked")
		u.DropUnless(func(user string) bool { return user == "bob" }, "reload")
		u.Drop("nobody", "x")
		got := strings.Split(w.seen(), ", ")
		slices.Sort(got)
		if fmt.Sprint(got) != "[drop alice: reload drop bob: revoked drop carol: reload]" {
			t.Errorf("the logins are %q, want alice and carol dropped by reload and bob as revoked", got)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
