package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
)

// limited makes a gate with a tool that waits for a run, test.wait, one that works until release is closed, test.work, and one that answers
// at once, test.echo.
func limited(t *testing.T, c Config) (g *Gate, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	waits := tool("test.wait", func(ctx context.Context, c Call) (any, error) {
		resume, ok := Wait(ctx)
		if !ok {
			return nil, fault.New(fault.Transport, "too_many_waits", "too many waits")
		}
		<-release
		resume()
		return c.Args, nil
	})
	waits.SideEffect = Read
	works := tool("test.work", func(_ context.Context, c Call) (any, error) { <-release; return c.Args, nil })
	r := value(NewRegistry(tool("test.echo", echo), waits, works))(t)
	c.Registry = r
	g = New(c)
	t.Cleanup(g.Close)
	return g, release
}

func calls(g *Gate, n int, who, tool string) chan Response {
	answers := make(chan Response, n)
	for range n {
		go func() { answers <- callAs(g, who, NewRequest(tool, "1.2.3", json.RawMessage(`{"n":1}`))) }()
	}
	return answers
}

// A call that waits holds no place in the journal and no slot: twice as many waits as the journal has places delay no
// call.
func TestWaitsHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		g, release := limited(t, Config{Journal: b, Together: 4})
		var answers []chan Response
		for range 2 * maxQueued / 512 {
			answers = append(answers, calls(g, 512, "a", "test.wait"))
			synctest.Wait()
		}
		if len(g.journal.room) != 0 || g.limiter.all.used != 0 {
			t.Errorf("%d places in the journal and %d slots are held", len(g.journal.room), g.limiter.all.used)
		}
		start := time.Now()
		for _, who := range []string{"a", "b"} {
			if res := <-calls(g, 1, who, "test.echo"); !res.OK {
				t.Errorf("the call ended with %+v, want success", res.Error)
			}
		}
		if d := time.Since(start); d > time.Second {
			t.Error("the calls took", d)
		}
		close(release)
		for _, some := range answers {
			for range 512 {
				if res := <-some; !res.OK {
					t.Fatalf("the call ended with %+v, want success", res.Error)
				}
			}
		}
		g.Close()
		if len(b.calls) != 2*maxQueued+2 {
			t.Error(len(b.calls), "records")
		}
	})
}

// A caller has so many calls that wait; one more is refused at once, and others wait all the same.
func TestWaitsPerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, release := limited(t, Config{Limits: Limits{WaitsPerCaller: 3}})
		a := calls(g, 4, "a", "test.wait")
		b := calls(g, 3, "b", "test.wait")
		synctest.Wait()
		if len(a) != 1 || len(b) != 0 {
			t.Fatalf("%d and %d calls are over", len(a), len(b))
		}
		wantError(t, <-a, "transport", "too_many_waits")
		close(release)
		for range 3 {
			if res := <-a; !res.OK {
				t.Errorf("the call ended with %+v, want success", res.Error)
			}
			if res := <-b; !res.OK {
				t.Errorf("the call ended with %+v, want success", res.Error)
			}
		}
		synctest.Wait()
		if len(g.limiter.waits.now) != 0 || len(g.limiter.all.callers) != 0 {
			t.Error("callers without calls are still counted")
		}
	})
}

// Calls that wait for another one with the same idempotency key are waits.
func TestWaitsForAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights
		who, waits := Process(), NewCounter(2)
		leave := value(f.enter(t.Context(), who, "key", waits))(t)
		for range 2 {
			go func() {
				leave, err := f.enter(t.Context(), who, "key", waits)
				if err != nil {
					t.Error(err)
				}
				leave()
			}()
		}
		synctest.Wait()
		if _, err := f.enter(t.Context(), who, "key", waits); fault.CodeOf(err) != "too_many_waits" || fault.RetryOf(err) == 0 {
			t.Error(err)
		}
		leave()
		synctest.Wait()
		if len(waits.now) != 0 {
			t.Error(waits.now)
		}
	})
}

// One caller cannot hold every slot, neither of all tools nor of one; what it has in the queue is bounded, and refused with advice.
func TestSlotsPerCaller(t *testing.T) {
	for name, c := range map[string]Config{
		"site":   {Limits: Limits{Calls: 100, CallsPerCaller: 6}},
		"policy": {Together: 8},
		"tool":   {Policy: eight{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, release := limited(t, c)
				a := calls(g, maxCallsQueue+6+1, "a", "test.work")
				synctest.Wait()
				if len(a) != 1 {
					t.Fatal(len(a), "calls are over, want the one beyond the queue")
				}
				res := <-a
				wantError(t, res, "transport", "too_many_calls")
				if s, _ := res.Error.Details["retry_after_seconds"].(int); !res.Error.Retryable || s == 0 {
					t.Errorf("the error is retryable: %t, after %d s; want true and a time", res.Error.Retryable, s)
				}
				b := calls(g, 1, "b", "test.work")
				synctest.Wait()
				close(release)
				if res := <-b; !res.OK {
					t.Errorf("the call ended with %+v, want success", res.Error)
				}
				for range maxCallsQueue + 6 {
					<-a
				}
			})
		})
	}
}

// eight lets each tool have eight calls at a time.
type eight struct{ denyAll }

func (eight) AllowTool(string) error { return nil }

func (eight) Rules(string) Rules { return Rules{Together: 8} }

// Callers that queue get slots in turn: a caller with one call waits for one call of each other, however many those have.
func TestCallersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		turns := NewTurns(1, 0)
		ask := func(who string) {
			if turns.Take(t.Context(), who, time.Hour) == nil {
				order = append(order, who) // one at a time
				turns.Release(who)
			}
		}
		must(t, turns.Take(t.Context(), "first", 0))
		for i := range 8 {
			go ask("greedy")
			synctest.Wait()
			if i == 5 {
				go ask("late")
				synctest.Wait()
			}
		}
		turns.Release("first")
		synctest.Wait()
		if len(order) != 9 || order[1] != "late" {
			t.Error(order)
		}
	})
}

// A call that gave up in the queue leaves nothing behind, at whatever moment.
func TestGivingUpInTheQueue(t *testing.T) {
	turns := NewTurns(2, 0)
	var took atomic.Int64
	for i := range 200 {
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Microsecond)
		done := make(chan struct{})
		for j := range 8 {
			go func() {
				who := fmt.Sprint(j % 3)
				if turns.Take(ctx, who, time.Hour) == nil {
					took.Add(1)
					turns.Release(who)
				}
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		stop()
	}
	if turns.used != 0 || len(turns.callers) != 0 || len(turns.order) != 0 || took.Load() == 0 {
		t.Errorf("%d used, %d callers, %d in order, %d took", turns.used, len(turns.callers), len(turns.order), took.Load())
	}
}

// Previews have a separate limit, in total and per caller, which several tools share: one caller's previews delay
// neither another's nor any other call, and a client that disconnects releases its slot.
func TestPreviewsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var at, most atomic.Int64
		reads := func(ctx context.Context, c Call) (any, error) {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			select {
			case <-release:
				return c.Args, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		text, table := tool("test.text", reads), tool("test.table", reads)
		text.Work, table.Work = Preview, Preview
		r := value(NewRegistry(tool("test.echo", echo), text, table))(t)
		g := New(Config{Registry: r, Limits: Limits{Previews: 4, PreviewsPerCaller: 2}})
		defer g.Close()
		mine := []chan Response{calls(g, 20, "a", "test.text"), calls(g, 20, "a", "test.table")}
		synctest.Wait()
		if at.Load() != 2 {
			t.Errorf("%d previews of one caller at once", at.Load())
		}
		if res := <-calls(g, 1, "a", "test.echo"); res.Error != nil {
			t.Errorf("another call of the caller ended with %+v, want success", res.Error)
		}
		other, third := calls(g, 1, "b", "test.table"), calls(g, 5, "c", "test.text")
		synctest.Wait()
		if at.Load() != 4 {
			t.Errorf("%d previews at once, with three callers", at.Load())
		}
		close(release)
		for _, answers := range append(mine, other, third) {
			for range cap(answers) {
				if res := <-answers; res.Error != nil {
					t.Errorf("a preview ended with %+v, want success", res.Error)
				}
			}
		}
		if most.Load() != 4 {
			t.Errorf("%d previews at once", most.Load())
		}
	})
}

// After costly work a caller's slot rests, and another's call does not wait for that.
func TestCostlyWorkRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{all: NewTurns(0, 0), tool: map[string][]*Turns{"x": {{n: 2, share: 1, rests: true, callers: map[string]*queue{}}}}}
		took := func(name string, work time.Duration) time.Duration {
			began := time.Now()
			s := value(l.take(t.Context(), Caller{Principal: Principal{ID: name}}, "x"))(t)
			waited := time.Since(began)
			time.Sleep(work)
			s.release()
			return waited
		}
		for _, c := range []struct {
			who    string
			work   time.Duration
			waited time.Duration
		}{{"a", 100 * time.Millisecond, 0}, {"b", costly, 0}, {"b", time.Minute, 0}, {"a", time.Minute, 0},
			{"b", 0, 0}, {"b", 0, 0}} {
			if w := took(c.who, c.work); w != c.waited {
				t.Errorf("%s waited %s, want %s", c.who, w, c.waited)
			}
		}
		began := time.Now()
		for range 3 { // 100 ms of work, 900 of rest
			took("c", 100*time.Millisecond)
		}
		if d := time.Since(began); d != 2100*time.Millisecond {
			t.Errorf("three in %s", d)
		}
		time.Sleep(time.Minute)
	})
}
