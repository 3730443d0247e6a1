package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asideGate returns a gate with a read-only tool and files in dir; written reports which records the journal has.
func asideGate(t testing.TB, j *stuck, dir string, log io.Writer) *Gate {
	t.Helper()
	look := tool("test.look", func(context.Context, Call) (any, error) { return map[string]any{"text": "<a & b>"}, nil })
	look.SideEffect = Read
	r := value(NewRegistry(look))(t)
	return New(Config{Registry: r, Journal: j, Log: slog.New(slog.NewTextHandler(log, nil)), Spill: Spill{dir,
		func(_ context.Context, r Record) (bool, error) {
			j.mu.Lock()
			defer j.mu.Unlock()
			return slices.ContainsFunc(j.calls, func(c Record) bool { return bytes.Equal(c.Event, r.Event) }), nil
		}}})
}

func waitingBytes(t testing.TB, dir string) (total int64) {
	t.Helper()
	for _, name := range []string{"looks-1.waiting", "looks-2.waiting", "refused.waiting"} {
		st := value(os.Stat(filepath.Join(dir, name)))(t)
		total += st.Size()
	}
	return total
}

// copied returns a folder with what a process killed now would leave.
func copied(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// What a process leaves is recorded by the next one, once, whatever part of it the journal has already: read-only
// calls with their answers, and refused calls with their number. A torn line is ignored. While the journal takes
// records, next to nothing is left behind.
//
// proves HTC-08
func TestLeftByAKilledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := &stuck{full: true}
		g := asideGate(t, j, dir, io.Discard)
		var ids []string
		for range 3 * maxBatch {
			res := call(g, "test.look", `{"n":1}`)
			ids = append(ids, res.ToolCallID)
		}
		for range allowance + 30 {
			wantError(t, call(g, "no.such", `{}`), "validation", "tool_not_found")
		}
		for range 5 {
			g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, anonymous())
		}
		left := copied(t, dir)
		f := value(os.OpenFile(filepath.Join(left, "looks-1.waiting"), os.O_APPEND|os.O_WRONLY, 0))(t)
		if _, err := f.WriteString(`{"Chain":"looks","Tool`); err != nil {
			t.Fatal(err)
		}
		f.Close()

		next := &stuck{}
		check := func() {
			t.Helper()
			recorded, counted := map[string]int{}, int64(0)
			for _, r := range next.calls {
				if err := CheckEvent(r.Event); err != nil {
					t.Errorf("%s: %v", r.Event, err)
				}
				if r.Chain == Refused {
					counted += max(1, r.Count)
					continue
				}
				recorded[r.ToolCallID]++
				if len(r.Payloads) != 2 || string(r.Payloads[1].JSON) != `{"text":"<a & b>"}` {
					t.Errorf("%s", r.Payloads)
				}
			}
			for _, id := range ids {
				if recorded[id] != 1 {
					t.Error(id, "has", recorded[id], "records")
				}
			}
			if counted != allowance+30+5 {
				t.Error(counted, "refused calls are counted")
			}
		}
		again := copied(t, left)
		g2 := asideGate(t, next, left, io.Discard)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := waitingBytes(t, left); n != 0 {
			t.Error(n, "bytes are still there")
		}
		check()
		g2.Close()
		for range 2 { // what the journal has is not written again, by a process killed before it could empty the files, and by a reload
			g3 := asideGate(t, next, again, io.Discard)
			time.Sleep(time.Second)
			g3.Close()
			check()
		}
		j.mu.Lock()
		j.full = false
		j.mu.Unlock()
		g.Close()
		if n := waitingBytes(t, dir); n != 0 {
			t.Error(n, "bytes after a clean stop")
		}
	})
}

// What the journal cannot take before the gateway stops is left to the next one. The counts of refused calls that
// have a record are cleared.
func TestAsideAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var log bytes.Buffer
		g := asideGate(t, &stuck{full: true}, dir, &log)
		call(g, "test.look", `{"n":1}`)
		for range 7 {
			g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, anonymous())
		}
		g.Close()
		if !strings.Contains(log.String(), "the next gateway writes it") || strings.Contains(log.String(), "is not recorded:") {
			t.Error(log.String())
		}
		next := &stuck{}
		asideGate(t, next, dir, io.Discard).Close()
		counted := int64(0)
		for _, r := range next.calls {
			counted += max(1, r.Count)
		}
		if counted != 8 || waitingBytes(t, dir) != 0 {
			t.Errorf("%d calls are recorded, %d bytes left", counted, waitingBytes(t, dir))
		}
	})
}

// While calls never pause, the files stay small: the second takes over, and the first is emptied when its records are in the journal.
func TestAsideStaysSmall(t *testing.T) {
	dir := t.TempDir()
	a, _ := openSpill(Spill{Dir: dir}, slog.New(slog.DiscardHandler))
	defer a.close()
	record := Record{Chain: Looks, ToolCallID: "x", Event: []byte(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1<<16)))}
	var queue []*spillFile
	most := int64(0)
	for range 400 {
		if queue = append(queue, a.put(record)); len(queue) > 8 { // there are always some that the journal does not have
			a.written(queue[0])
			queue = queue[1:]
		}
		most = max(most, a.files[0].size+a.files[1].size)
	}
	if most > 4*asideMost {
		t.Error(most, "bytes")
	}
}

// Where nothing can be stored, calls are answered and recorded, and the failure is logged once.
func TestAsideThatCannotBeWritten(t *testing.T) {
	for dir, spoil := range map[string]func(*Gate){
		filepath.Join(t.TempDir(), "none"): func(*Gate) {},
		t.TempDir(): func(g *Gate) { // every write fails
			g.journal.spill.files[0].f.Close()
			g.refusals.counts.f.Close()
		},
	} {
		var log bytes.Buffer
		j := &stuck{}
		g := asideGate(t, j, dir, &log)
		spoil(g)
		for range 5 {
			if res := call(g, "test.look", `{"n":1}`); !res.OK {
				t.Errorf("the call ended with %+v, want success", res.Error)
			}
			g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, anonymous())
		}
		g.Close()
		counted := int64(0)
		for _, r := range j.calls {
			counted += max(1, r.Count)
		}
		if counted != 10 || strings.Count(log.String(), "cannot be kept") != 1 {
			t.Errorf("%d calls, log %s", counted, log.String())
		}
	}
}

// An impossible slot is read as empty.
func FuzzSlot(f *testing.F) {
	f.Add(make([]byte, countSlot))
	f.Fuzz(func(t *testing.T, slot []byte) {
		if len(slot) < countHead {
			return
		}
		if r, ok := readSlot(append(slot, make([]byte, countSlot)...)[:countSlot]); ok && (r.Count < 1 || len(r.Event) == 0) {
			t.Errorf("readSlot(%x) gave %d calls and an event of %d bytes, want at least 1 of each", slot, r.Count, len(r.Event))
		}
	})
}

// A line of the file is the record, and its documents keep their bytes.
func TestAsideLine(t *testing.T) {
	doc := json.RawMessage(`{"a":"<&>\u007f"}`)
	for _, r := range []Record{
		{Chain: Looks, Principal: "user:<lab>", ToolCallID: "x", OK: true, At: time.Unix(5, 0).UTC(), Event: doc, Runs: []string{"run_X"}},
		{Chain: Refused, ToolCallID: "y", Count: 7, Event: doc, Payloads: []Payload{{"args", doc, "aa"}, {"result", doc, "bb"}},
			Provenance: &Provenance{RunID: "run_Y", Identity: doc}},
	} {
		line := value(r.line())(t)
		var back Record
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if diff := cmp.Diff(r, back); diff != "" || bytes.Count(line, []byte("\n")) != 1 {
			t.Errorf("%s\n%s", line, diff)
		}
	}
}
