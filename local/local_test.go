package local

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// world holds folders of runs and of records, with job scripts of a few lines; the processes are real.
type world struct {
	t     *testing.T
	runs  string
	dir   string
	ended chan string
}

func newWorld(t *testing.T) *world {
	return &world{t: t, runs: t.TempDir(), dir: filepath.Join(t.TempDir(), "local"), ended: make(chan string, 10)}
}

func (w *world) backend(places int) *Backend {
	w.t.Helper()
	b, err := New(Config{Dir: w.dir, Places: places, Ended: func(id string) { w.ended <- id }, Log: slog.New(slog.DiscardHandler)})
	must(w.t, err)
	return b
}

// spec returns the job of the i-th run.
func (w *world) spec(i int) run.JobSpec {
	id, token := fmt.Sprintf("run_%026d", i), strings.Repeat(fmt.Sprint(i), 32)
	return run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token), RunDir: filepath.Join(w.runs, id),
		Spec: plan.Spec{Resources: plan.Resources{CPUs: 1, MemMB: 64, TimeLimitSeconds: 60}}}
}

// job creates a run with the given script.
func (w *world) job(i int, script string) run.JobSpec {
	w.t.Helper()
	j := w.spec(i)
	ctl := filepath.Join(j.RunDir, "a1", "ctl")
	if err := errors.Join(os.MkdirAll(ctl, 0o700), os.WriteFile(filepath.Join(ctl, run.ScriptFile), []byte("#!/bin/bash\n"+script+"\n"),
		0o600)); err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *world) waitEnded(id string) {
	w.t.Helper()
	select {
	case got := <-w.ended:
		if got != id {
			w.t.Fatalf("%s ended, not %s", got, id)
		}
	case <-time.After(2 * time.Minute):
		w.t.Fatal(id, "does not end")
	}
}

func (w *world) jobs(b *Backend) []run.Job {
	w.t.Helper()
	jobs, err := b.Jobs(w.t.Context(), nil)
	must(w.t, err)
	return jobs
}

// empty waits until no lock is held: a child of an ended script may hold it a moment longer.
func (w *world) empty(b *Backend) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); len(w.jobs(b)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("processes are left")
		}
	}
}

func (w *world) file(j run.JobSpec, name string) string {
	data, err := os.ReadFile(filepath.Join(j.RunDir, "a1", "ctl", name))
	must(w.t, err)
	return string(data)
}

// A send starts its script once, with a clean environment and limits, and the receipt remains.
func TestSend(t *testing.T) {
	t.Setenv("SECRET", "x")
	w := newWorld(t)
	b := w.backend(2)
	j := w.job(1, `{ env | sort; ulimit -c; ulimit -d; ulimit -t; nice; pwd; } >ctl/seen; echo hello`)
	if res, held := b.Receipt(t.Context(), j, 1); held || res.Outcome != run.SendNotRun {
		t.Errorf("Receipt before a send = %s, held %t, want %s, not held", res.Outcome, held, run.SendNotRun)
	}
	res := b.Send(t.Context(), j, 1)
	if res.Outcome != run.SendAccepted || res.Cluster != Cluster || res.JobID == "" {
		t.Fatalf("Send = %s, job %q of cluster %q, want %s with a job of %q",
			res.Outcome, res.JobID, res.Cluster, run.SendAccepted, Cluster)
	}
	w.waitEnded(j.RunID)
	want := fmt.Sprintf("LC_ALL=C\nPATH=/usr/bin:/bin\nPWD=%[1]s\nSHLVL=0\nSLURMD_NODENAME=%[2]s\nSLURM_JOB_ID=%[3]s\n"+
		"SLURM_RESTART_COUNT=0\n_=/usr/bin/env\n0\n%[4]d\n120\n%[5]d\n%[1]s\n",
		filepath.Join(j.RunDir, "a1"), hostname(t), res.JobID, (64+dataFloor)<<10, min(19, niceness(t)+10))
	if got := strings.ReplaceAll(w.file(j, "seen"), "SHLVL=1", "SHLVL=0"); got != want {
		t.Errorf("the script saw\n%s\nwant\n%s", got, want)
	}
	if got := w.file(j, run.JobLogFile); got != "hello\n" {
		t.Errorf("the job's log is %q, want hello", got)
	}
	for _, again := range []run.SendResult{b.Send(t.Context(), j, 1), w.backend(2).Send(t.Context(), j, 1)} {
		if again.Outcome != run.SendAccepted || again.JobID != res.JobID {
			t.Errorf("a second Send = %s, job %q, want %s, job %q", again.Outcome, again.JobID, run.SendAccepted, res.JobID)
		}
	}
	if got, held := w.backend(2).Receipt(t.Context(), j, 1); held || got.JobID != res.JobID {
		t.Errorf("Receipt of a new backend = job %q, held %t, want job %q, not held", got.JobID, held, res.JobID)
	}
	if w.empty(b); len(w.ended) > 0 {
		t.Error("the script ran again")
	}
}

func niceness(t *testing.T) int {
	p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	must(t, err)
	return 20 - p // as the system call returns it
}

func hostname(t *testing.T) string {
	h, err := os.Hostname()
	must(t, err)
	return h
}

// At most as many scripts run as there are places; every gateway sees what runs; a cancel ends the whole session, and
// only with the right id and name.
func TestPlacesAndCancel(t *testing.T) {
	w := newWorld(t)
	b := w.backend(2)
	var ids []string
	for i := 1; i <= 2; i++ {
		res := b.Send(t.Context(), w.job(i, "trap 'echo stopped >ctl/said; kill $!; exit 1' TERM; touch ctl/up; sleep 60 & wait"), 1)
		if res.Outcome != run.SendAccepted {
			t.Fatalf("Send = %s (%s), want %s", res.Outcome, res.Text, run.SendAccepted)
		}
		ids = append(ids, res.JobID)
	}
	third := w.job(3, "true")
	if res := b.Send(t.Context(), third, 1); res.Outcome != run.SendDeferred || res.Code != "local_places" || !strings.Contains(res.Text,
		"allows 2") {
		t.Errorf("Send beyond the places = %s, code %q, text %q, want %s, local_places, allows 2",
			res.Outcome, res.Code, res.Text, run.SendDeferred)
	}
	if res, _ := b.Receipt(t.Context(), third, 1); res.Outcome != run.SendNotRun {
		t.Errorf("Receipt of a deferred send = %s, want %s", res.Outcome, run.SendNotRun)
	}
	other := w.backend(2) // the next gateway
	jobs := w.jobs(other)
	if len(jobs) != 2 || jobs[0].Class != run.ClassRunning || jobs[0].Cluster != Cluster || jobs[0].Started == nil {
		t.Fatalf("Jobs gives %d jobs: %v, want two running ones with their start", len(jobs), jobs)
	}
	first := w.spec(1)
	for _, wrong := range [][2]string{{ids[0], "another"}, {ids[1], first.JobName}, {"1", first.JobName}} {
		if err := other.Cancel(t.Context(), wrong[0], wrong[1], ""); err != nil || len(w.jobs(other)) != 2 {
			t.Errorf("Cancel(%q) gives %v, want no error and both jobs running", wrong, err)
		}
	}
	for i := range ids {
		j := w.spec(i + 1)
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(j.RunDir, "a1/ctl/up")); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the script of %s did not start within 2 minutes", j.RunID)
			}
		}
		must(t, other.Cancel(t.Context(), ids[i], j.JobName, ""))
		w.waitEnded(j.RunID)
		if got := w.file(j, "said"); got != "stopped\n" {
			t.Errorf("the cancelled script wrote %q, want stopped", got)
		}
	}
	w.empty(b)
	if err := b.Cancel(t.Context(), ids[0], first.JobName, ""); err != nil {
		t.Errorf("Cancel of an ended job = %v, want no error", err)
	}
	if res := b.Send(t.Context(), third, 2); res.Outcome != run.SendAccepted {
		t.Errorf("Send with a free place = %s (%s), want %s", res.Outcome, res.Text, run.SendAccepted)
	}
	w.waitEnded(third.RunID)
}

// A send that cannot start leaves no record; a gateway that died between record and process leaves at most doubt, never
// a second start.
func TestNotStarted(t *testing.T) {
	w := newWorld(t)
	b := w.backend(1)
	j := w.job(1, "true")
	must(t, os.RemoveAll(j.RunDir))
	if res := b.Send(t.Context(), j, 1); res.Outcome != run.SendNotRun {
		t.Errorf("Send without the run's folder = %s, want %s", res.Outcome, run.SendNotRun)
	}
	if res, _ := b.Receipt(t.Context(), j, 1); res.Outcome != run.SendNotRun {
		t.Errorf("Receipt after a failed start = %s, want %s", res.Outcome, run.SendNotRun)
	}
	for content, want := range map[string]run.SendOutcome{"": run.SendDoubt, "{": run.SendDoubt, `{"job_id":"7"}`: run.SendAccepted} {
		j := w.job(2, "touch ctl/ran")
		must(t, os.WriteFile(b.file(j, 1), []byte(content), 0o600))
		if res := b.Send(t.Context(), j, 1); res.Outcome != want {
			t.Errorf("Send with the record %q = %s, want %s", content, res.Outcome, want)
		}
		if _, err := os.Stat(filepath.Join(j.RunDir, "a1/ctl/ran")); err == nil {
			t.Errorf("with the record %q the script was started again", content)
		}
	}
	if _, err := New(Config{Dir: filepath.Join(w.dir, "sg-nothing", "x"), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Error(err)
	}
	old := record{RunID: "r", JobID: "1", StartedAt: time.Now().Add(-48 * time.Hour)}
	f, err := os.Create(filepath.Join(w.dir, "sg-old.1"))
	must(t, err)
	must(t, errors.Join(write(f, old), f.Close()))
	w.backend(1)
	if _, err := os.Stat(f.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Error("New did not remove an old record")
	}
}

// A process that is left after its script has ended holds the lock; a cancel ends it.
func TestCancelOfWhatIsLeft(t *testing.T) {
	w := newWorld(t)
	b := w.backend(1)
	j := w.job(1, `timeout 60 sleep 60 & kill -KILL $$`) // timeout has a separate process group
	res := b.Send(t.Context(), j, 1)
	w.waitEnded(j.RunID)
	if n := len(w.jobs(b)); n != 1 {
		t.Fatalf("%d jobs are shown while a process is left", n)
	}
	if err := b.Cancel(t.Context(), res.JobID, j.JobName, ""); err != nil {
		t.Error(err)
	}
	w.empty(b)
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
