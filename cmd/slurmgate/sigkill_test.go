package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
)

// crowd calls a gateway without a pause until it has ended.
type crowd struct {
	mu      sync.Mutex
	looks   []string // ids of the answered ones
	refused int64    // answered
	asked   int64    // refused calls that were begun
	want    int      // answers of each kind
	enough  chan struct{}
}

// await returns a channel that is closed when n more calls of each kind have been answered.
func (c *crowd) await(n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.want, c.enough = min(len(c.looks), int(c.refused))+n, make(chan struct{})
	return c.enough
}

func (c *crowd) call(ctx context.Context, t *testing.T, socket string, refused bool) {
	client, err := httpapi.Dial(ctx, socket)
	if err != nil {
		return
	}
	tool := "run.list"
	if refused {
		tool = "no.such"
	}
	for ctx.Err() == nil {
		req := gate.NewRequest(tool, app.BuiltinVersion, json.RawMessage(`{}`))
		c.mu.Lock()
		if refused {
			c.asked++
		}
		c.mu.Unlock()
		res, err := client.Call(ctx, req)
		if err != nil {
			return
		}
		c.mu.Lock()
		switch {
		case refused && res.Error != nil:
			c.refused++
		case !refused && res.OK:
			c.looks = append(c.looks, req.ToolCallID)
		default:
			t.Errorf("a call of %s was answered with %v", tool, res.Error)
		}
		if c.enough != nil && min(len(c.looks), int(c.refused)) >= c.want {
			close(c.enough)
			c.enough = nil
		}
		c.mu.Unlock()
	}
}

// A gateway that is killed while many callers read, and others are refused, loses no record: the next one has one of
// each read that was answered, and counts each refused call that was answered. The test kills the program itself, as
// often as the loop says, and a gateway that is reloaded records nothing twice.
//
// proves HTC-08
// slow: kills programs under load
func TestKilledUnderLoad(t *testing.T) {
	s, conf := workerSite(t, "http://127.0.0.1:1")
	c := crowd{}
	for round := range 3 {
		p := serveProgram(t, s, conf)
		ctx, stop := context.WithCancel(t.Context())
		enough := c.await(60 + 37*round)
		var callers sync.WaitGroup
		for i := range 6 {
			callers.Go(func() { c.call(ctx, t, s.Gateway.Socket, i >= 4) })
		}
		select {
		case <-enough:
		case <-time.After(time.Minute):
			t.Fatalf("the gateway answers too few calls in a minute: %d reads, %d refused ones", len(c.looks), c.refused)
		}
		must(t, p.cmd.Process.Signal(syscall.SIGKILL))
		p.cmd.Wait()
		stop()
		callers.Wait()
	}
	p := serveProgram(t, s, conf)
	must(t, p.cmd.Process.Signal(syscall.SIGHUP))
	wantWaiting(t, s.Gateway.StateDir)
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("serve after SIGTERM: %v\n%s", err, p.cmd.Stderr)
	}

	l := value(ledger.Open(t.Context(), filepath.Join(s.Gateway.StateDir, "ledger.db"), ledger.Options{}))(t)
	defer l.Close()
	recorded, counted := map[string]int{}, int64(0)
	for f := (ledger.CallFilter{Limit: 500}); ; {
		page := value(l.Calls(t.Context(), f))(t)
		for _, e := range page.Calls {
			var event struct {
				ID string `json:"tool_call_id"`
			}
			must(t, json.Unmarshal(e.Event, &event))
			if must(t, gate.CheckEvent(e.Event)); e.Chain == gate.Looks {
				recorded[event.ID]++
			} else if e.Chain == gate.Refused {
				counted += e.Count
			}
		}
		if f.Cursor = page.Cursor; f.Cursor == "" {
			break
		}
	}
	lost, twice := 0, 0
	for _, id := range c.looks {
		if recorded[id] == 0 {
			lost++
		}
	}
	for _, n := range recorded {
		twice += n - 1
	}
	if lost > 0 || twice > 0 || counted < c.refused || counted > c.asked {
		t.Errorf("of %d reads %d have no record, %d were recorded twice; %d refused calls of %d answered, %d begun, are counted", len(c.looks),
			lost, twice, counted, c.refused, c.asked)
	}
	if _, err := l.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("%d reads and %d refused calls answered by gateways that were killed; %d counted", len(c.looks), c.refused, counted)
}

// wantWaiting waits until the files of records that the ledger does not have are empty, and checks that they are their owner's alone.
func wantWaiting(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"looks-1.waiting", "looks-2.waiting", "refused.waiting"} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			st := value(os.Stat(filepath.Join(dir, name)))(t)
			if st.Mode() != 0o600 {
				t.Fatal(name, st.Mode())
			}
			if st.Size() == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s still has %d bytes", name, st.Size())
			}
		}
	}
}
