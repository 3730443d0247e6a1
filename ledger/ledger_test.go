package ledger

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func openAt(t testing.TB, path string) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), path, Options{Now: func() time.Time { return t0 }, NewID: func() string { return "gw-1" }})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func fresh(t testing.TB) *Ledger { return openAt(t, filepath.Join(t.TempDir(), "ledger.db")) }

// rawDB opens the file past the package: what an admin with sqlite3, or a disk, could do to it.
func rawDB(t testing.TB, l *Ledger) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+l.Path()+"?_foreign_keys=on&_busy_timeout=15000")
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantFault(t testing.TB, err error, kind fault.Kind, code string) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Errorf("got %q %q (%v), want %q %q", fault.KindOf(err), fault.CodeOf(err), err, kind, code)
	}
}

const project = "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY"

// newRun returns the i-th run in phase staging.
func newRun(i int) run.New {
	params, policy := json.RawMessage(fmt.Sprintf(`{"i":%d}`, i)), json.RawMessage(`{"version":1}`)
	id := plan.Identity{ToolName: "t_x", ContractVersion: "v1", PolicyHash: plan.Hash(policy), ParamsHash: plan.Hash(params)}
	r := run.Run{ID: id.RunID(), ToolID: "t.x", ToolName: "t_x", ToolVersion: "1.0.0", ContractVersion: "v1", PolicyHash: id.PolicyHash,
		ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(),
		ProjectID: project, Actor: "human", State: run.Queued, Phase: run.Staging, AttemptN: 1, Warnings: []string{"w"},
		ResultJSON: json.RawMessage(`{}`)}
	token := fmt.Sprintf("%032x", i+1)
	return run.New{Run: r, Submission: run.Submission{Token: token, JobName: run.JobName(r.ID, 1, fmt.Sprintf("%012x", i+1)), CreatedAt: t0},
		Params: params, Policy: policy,
		Event: run.Event{Type: "run.created", Data: map[string]any{"i": i}}}
}

func insert(t testing.TB, l *Ledger, i int) run.View {
	t.Helper()
	v, created, err := l.Insert(t.Context(), newRun(i))
	if err != nil || !created {
		t.Fatal(created, err)
	}
	return v
}

// apply changes a run's values in one transition.
func apply(t testing.TB, l *Ledger, v run.View, change func(*run.Write)) run.View {
	t.Helper()
	w := run.Write{Run: v.Run, Event: run.Event{Type: "run.test", Data: map[string]any{}}}
	change(&w)
	v, err := l.Apply(t.Context(), w)
	must(t, err)
	return v
}

func finish(t testing.TB, l *Ledger, v run.View) run.View {
	return apply(t, l, v, func(w *run.Write) {
		zero := 0
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode = run.Succeeded, run.Done, &t0, &zero
		a := v.Attempt
		a.Ending = run.EndedOK
		w.Attempts = []run.Attempt{a}
	})
}

func TestOpenAndReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "a b?c#d%3f", "ledger.db")
	l := openAt(t, path)
	v := insert(t, l, 1)
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1",
		"user_version": fmt.Sprint(l.schema), "busy_timeout": "15000"} {
		var got string
		must(t, l.w.QueryRow("PRAGMA "+pragma).Scan(&got))
		if got != want {
			t.Errorf("%s = %s, want %s", pragma, got, want)
		}
	}
	if _, err := l.r.Exec("DELETE FROM sends"); err == nil {
		t.Error("a reader can write")
	}
	must(t, l.Integrity(t.Context()))
	must(t, l.Close())
	st, err := os.Stat(filepath.Dir(path))
	must(t, err)
	if st.Mode().Perm() != 0o700 {
		t.Error(st.Mode())
	}
	again, err := Open(t.Context(), path, Options{NewID: func() string { return "gw-2" }})
	must(t, err)
	defer again.Close()
	if again.ID() != "gw-1" {
		t.Error("the gateway's id changed:", again.ID())
	}
	got, err := again.View(t.Context(), v.Run.ID)
	must(t, err)
	if d := cmp.Diff(v, got); d != "" {
		t.Error(d)
	}
}

// Only the gateway's user can read a ledger, whatever the umask of the process and the permissions of its folder;
// opening an older one removes the permissions of others.
func TestOpenIsPrivate(t *testing.T) {
	old := unix.Umask(0) // of the whole process; a file another test makes meanwhile may be wider, which none minds
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "ledger.db")
	modes := func() (out []string) {
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			st, err := os.Stat(name)
			must(t, err)
			out = append(out, fmt.Sprintf("%o", st.Mode().Perm()))
		}
		return out
	}
	l := openAt(t, path)
	insert(t, l, 1)
	want := []string{"600", "600", "600"}
	if d := cmp.Diff(want, modes()); d != "" {
		t.Error(d)
	}
	must(t, l.Close())
	must(t, os.Chmod(path, 0o644))
	l = openAt(t, path)
	insert(t, l, 2)
	if d := cmp.Diff(want, modes()); d != "" {
		t.Error(d)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	l := openAt(t, filepath.Join(dir, "newer.db"))
	_, err := rawDB(t, l).Exec("PRAGMA user_version = 99")
	must(t, err)
	must(t, l.Close())
	must(t, os.WriteFile(filepath.Join(dir, "text.db"), []byte(strings.Repeat("not a database\n", 100)), 0o600))
	nfs := func(string) (string, bool, error) { return "nfs", true, nil }
	for _, c := range []struct {
		file string
		o    Options
		kind fault.Kind
		code string
	}{
		{"newer.db", Options{}, fault.Validation, "ledger_newer"},
		{"text.db", Options{}, fault.Internal, "ledger_broken"},
		{"nfs.db", Options{Filesystem: nfs, NewID: func() string { return "x" }}, fault.Validation, "ledger_on_network_filesystem"},
	} {
		_, err := Open(t.Context(), filepath.Join(dir, c.file), c.o)
		wantFault(t, err, c.kind, c.code)
	}
	if _, err := os.Stat(filepath.Join(dir, "nfs.db")); err == nil {
		t.Error("a ledger was made on a network filesystem")
	}
}

// The lock names its holder, and the kernel releases it when the holder is killed.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.lock")
	if os.Getenv("SLURMGATE_TEST_LOCK") != "" {
		if _, err := TakeLock(os.Getenv("SLURMGATE_TEST_LOCK")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLock$")
	cmd.Env = append(os.Environ(), "SLURMGATE_TEST_LOCK="+path)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line)
	}
	_, err = TakeLock(path)
	wantFault(t, err, fault.Conflict, "gateway_running")
	if want := fmt.Sprintf("pid %d on ", cmd.Process.Pid); !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not name %s", err, want)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	lock, err := TakeLock(path)
	must(t, err)
	_, err = TakeLock(path)
	wantFault(t, err, fault.Conflict, "gateway_running")
	if !strings.Contains(err.Error(), fmt.Sprintf("pid %d ", os.Getpid())) {
		t.Error(err)
	}
	must(t, lock.Release())
	lock, err = TakeLock(path)
	must(t, err)
	must(t, lock.Release())
}

// Ten thousand concurrent callers with one identity make one run, and all get it. proves ABI-18, ARC-04, CARD-04
func TestInsertOnce(t *testing.T) {
	l := fresh(t)
	var created, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range 10_000 {
		wg.Go(func() {
			n := newRun(7)
			n.Submission.Token = fmt.Sprintf("%032x", 1000+i) // each caller brings its own
			n.Submission.JobName = fmt.Sprint("sg-", i)
			v, made, err := l.Insert(context.Background(), n)
			if err != nil || v.Run.ID != n.Run.ID || v.Submission.Token == "" {
				failed.Add(1)
			}
			if made {
				created.Add(1)
			}
		})
	}
	wg.Wait()
	if created.Load() != 1 || failed.Load() != 0 {
		t.Errorf("%d created, %d failed", created.Load(), failed.Load())
	}
	for table, want := range map[string]int{"runs": 1, "attempts": 1, "submissions": 1, "param_sets": 1, "policies": 1, "events": 1} {
		var n int
		must(t, l.r.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
		if n != want {
			t.Errorf("%d rows in %s", n, table)
		}
	}
}

func TestApplyIsCompareAndSwap(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	next := apply(t, l, v, func(w *run.Write) { w.Run.Phase = run.Submitting })
	if next.Run.Rev != v.Run.Rev+1 {
		t.Error(next.Run.Rev)
	}
	sub := v.Submission
	sub.JobID = "99"
	_, err := l.Apply(t.Context(), run.Write{Run: v.Run, Submission: &sub, Send: &run.Send{Token: sub.Token, K: 1, StartedAt: t0,
		Outcome: run.SendAccepted},
		Artifacts: []run.Artifact{artifact(1)}, Event: run.Event{Type: "run.test"}})
	wantFault(t, err, fault.Conflict, "stale_run")
	got, err := l.View(t.Context(), v.Run.ID)
	must(t, err)
	if d := cmp.Diff(next, got); d != "" {
		t.Error("a stale write left something:", d)
	}
	if _, err := l.Artifact(t.Context(), artifact(1).ID); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	_, err = l.Apply(t.Context(), run.Write{Run: run.Run{ID: "run_none", Rev: 1}, Event: run.Event{Type: "x"}})
	wantFault(t, err, fault.Conflict, "stale_run")
	_, err = l.View(t.Context(), "run_none")
	wantFault(t, err, fault.NotFound, "run_not_found")
	must(t, l.Integrity(t.Context()))
}

// Two gateways that got past the lock still cannot both make one transition.
func TestTwoLedgersOneFile(t *testing.T) {
	a := fresh(t)
	b := openAt(t, a.Path())
	v := insert(t, a, 1)
	if _, created, err := b.Insert(t.Context(), newRun(1)); created || err != nil {
		t.Error("inserted twice", err)
	}
	var won atomic.Int64
	var wg sync.WaitGroup
	for _, l := range []*Ledger{a, b} {
		for range 2 {
			wg.Go(func() {
				for range 60 {
					v, err := l.View(context.Background(), v.Run.ID)
					if err != nil {
						t.Error(err)
						return
					}
					v.Run.Detail += "x"
					_, err = l.Apply(context.Background(), run.Write{Run: v.Run, Event: run.Event{Type: "run.test"}})
					if err == nil {
						won.Add(1)
					} else if fault.CodeOf(err) != "stale_run" {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	got, err := b.View(t.Context(), v.Run.ID)
	must(t, err)
	if int64(len(got.Run.Detail)) != won.Load() || got.Run.Rev != 1+won.Load() {
		t.Errorf("%d transitions won, %d seen, revision %d", won.Load(), len(got.Run.Detail), got.Run.Rev)
	}
	must(t, a.Integrity(t.Context()))
}

func TestViewRoundTrip(t *testing.T) {
	l := fresh(t)
	n := newRun(3)
	in, out := artifact(1), artifact(2)
	_, _, err := l.AddArtifact(t.Context(), in)
	must(t, err)
	n.Inputs = []run.Link{{Role: "bam", ArtifactID: in.ID, Relpath: "in/x"}}
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	at, code, task := t0.Add(time.Minute), 3, 4
	v.Run.CancelAt, v.Run.CancelReason, v.Run.Reason, v.Run.Detail, v.Run.ExitCode, v.Run.Warnings = &at, "why", "r", "d", &code, nil
	v.Run.State, v.Run.Phase = run.Running, run.Collecting
	v.Run.ScriptArtifactID, v.Run.LogArtifactID = out.ID, out.ID
	v.Attempt = run.Attempt{RunID: v.Run.ID, N: 1, Token: v.Attempt.Token, ArrayTask: &task, CreatedAt: v.Attempt.CreatedAt,
		SlurmState: "RUNNING", SlurmWhy: "None", SlurmExit: "0:53", Node: "n1", ObservedAt: &at, StartedAt: &at,
		EndedAt: &at, MissedAt: &at, Ending: run.EndedOK, ExitCode: &code, Usage: json.RawMessage(`{"a":1}`)}
	v.Submission.JobID, v.Submission.Cluster, v.Submission.SubmittedAt, v.Submission.SLUID, v.Submission.ScriptSHA = "7", "c", &at, "s", "sha"
	w := run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt}, Submission: &v.Submission, Artifacts: []run.Artifact{out},
		Outputs: []run.Link{{Role: "report", ArtifactID: out.ID, Relpath: "out/x"}},
		Send:    &run.Send{Token: v.Attempt.Token, K: 1, StartedAt: at, EndedAt: &at, Outcome: run.SendAccepted, ExitCode: &code, Text: "7"},
		Event:   run.Event{Type: "run.test", Data: map[string]any{"x": 1}}}
	got, err := l.Apply(t.Context(), w)
	must(t, err)
	v.Run.Rev, v.Run.Warnings, v.Run.UpdatedAt, v.Sends = 2, []string{}, t0, 1
	if d := cmp.Diff(v, got); d != "" {
		t.Error(d)
	}
	sends, err := l.Sends(t.Context(), v.Attempt.Token)
	must(t, err)
	if d := cmp.Diff([]run.Send{*w.Send}, sends); d != "" {
		t.Error(d)
	}
	ins, err := l.Inputs(t.Context(), v.Run.ID)
	must(t, err)
	outs, err := l.Outputs(t.Context(), v.Run.ID)
	must(t, err)
	if len(ins) != 1 || len(outs) != 1 || ins[0].Artifact.SHA256 != in.SHA256 || outs[0].Relpath != "out/x" || outs[0].ArtifactID != out.ID {
		t.Error(ins, outs)
	}
	events, err := l.Events(t.Context(), v.Run.ID)
	must(t, err)
	seq, err := l.Seq(t.Context(), v.Run.ID)
	must(t, err)
	if len(events) != 2 || events[1].Type != "run.test" || string(events[1].Data) != `{"x":1}` || seq != events[1].Seq {
		t.Error(events, seq)
	}
	ended, err := l.Ended(t.Context(), v.Submission.JobName)
	if err != nil || !ended {
		t.Error(ended, err)
	}
	_, err = l.Ended(t.Context(), "sg-other")
	wantFault(t, err, fault.NotFound, "job_not_found")
}

// A caller that cancels either stopped the change or finds it complete.
func TestCancelledCaller(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := l.Apply(ctx, run.Write{Run: v.Run, Event: run.Event{Type: "x"}}); !fault.Is(err, fault.Canceled) {
		t.Error(err)
	}
	if got, err := l.View(t.Context(), v.Run.ID); err != nil || got.Run.Rev != 1 {
		t.Error(got.Run.Rev, err)
	}
}

// A write with its starting point returns what a read would.
func TestWriteFrom(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	at := t0.Add(1234567 * time.Nanosecond).In(time.FixedZone("x", 3600))
	code := 3
	for i, change := range []func(*run.Write){
		func(w *run.Write) {
			w.Run.Phase, w.Run.Warnings = run.Submitting, nil
			w.Send = &run.Send{Token: v.Attempt.Token, K: 1, StartedAt: at}
		},
		func(w *run.Write) {
			sub := v.Submission
			sub.JobID, sub.SubmittedAt, sub.CreatedAt = "7", &at, at
			w.Run.Phase, w.Submission = run.Pending, &sub
			w.Send = &run.Send{Token: v.Attempt.Token, K: 1, StartedAt: at, EndedAt: &at, Outcome: run.SendAccepted}
		},
		func(w *run.Write) { w.Run.CancelAt, w.Run.CancelReason = &at, "why" },
		func(w *run.Write) {
			a := v.Attempt
			a.ObservedAt, a.StartedAt, a.MissedAt, a.CreatedAt, a.SlurmState = &at, &at, &at, at, "RUNNING"
			w.Run.State, w.Run.Phase, w.Attempts = run.Running, run.InJob, []run.Attempt{a}
		},
		func(w *run.Write) {
			a := v.Attempt
			a.Ending, a.EndedAt, a.ExitCode = run.EndedLost, &at, &code
			w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode, w.Attempts = run.Failed, run.Done, &at, &code, []run.Attempt{a}
		},
		func(w *run.Write) { // another attempt is read
			sub := run.Submission{Token: strings.Repeat("e", 32), JobName: "sg-another", CreatedAt: at}
			w.Run.State, w.Run.Phase, w.Run.AttemptN, w.Run.FinishedAt, w.Run.ExitCode = run.Queued, run.Staging, 2, nil, nil
			w.Submission, w.Attempts = &sub, []run.Attempt{{RunID: v.Run.ID, N: 2, Token: sub.Token, CreatedAt: at}}
		},
	} {
		from := v
		w := run.Write{Run: v.Run, From: &from, Event: run.Event{Type: "run.test", Data: map[string]any{"i": i}}}
		change(&w)
		got, err := l.Apply(t.Context(), w)
		must(t, err)
		want, err := l.View(t.Context(), v.Run.ID)
		must(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(i, d)
		}
		v = got
	}
	must(t, l.Integrity(t.Context()))
}

// The hash is of canonical JSON, however it is put together.
func TestEventHash(t *testing.T) {
	for _, words := range [][2]string{{"run.intent", "run_0X8Z4D1X467KV94K4TXG0D9BXT"}, {"", ""}, {"a\"b\\c\n", "é\u2028<&>\x01"}} {
		data := []byte(`{"a":[1,"x"],"b":null}`)
		body, err := plan.Marshal(map[string]any{"seq": 7, "at": 1_790_000_000_123_456, "type": words[0], "run_id": words[1],
			"data": json.RawMessage(data)})
		must(t, err)
		got := eventHash(genesis, 7, 1_790_000_000_123_456, words[0], words[1], data)
		if sum := sha256.Sum256(append([]byte(genesis), body...)); got != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("%q: another hash than that of %s", words, body)
		}
	}
}
