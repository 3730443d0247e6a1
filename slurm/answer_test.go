package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

func at(sec int64) *time.Time { t := time.Unix(sec, 0).UTC(); return &t }

func golden(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)
	return string(data)
}

const (
	recordedRun  = "run_0X8Z4D1X467KV94K4TXG0D9B"
	recordedName = "sg-" + recordedRun
)

// A job that is sought by its id is found under any name, and no other job is.
func TestParseQueueSought(t *testing.T) {
	text := golden(t, "squeue-24.11.txt")
	ours, err := parseAnswer(text, "lab", queueColumns)
	must(t, err)
	renamed := strings.Replace(text, "/shared/runs/"+recordedRun+"X3/a1"+sep+recordedName+"X3-a1-aabbccddee03", "/tmp"+sep+"foo", 1)
	for _, sought := range []bool{false, true} {
		a := newAnswer("lab", queueColumns, 0)
		if sought {
			a.sought = map[string]bool{"3": true}
		}
		if _, err := a.Write([]byte(renamed)); err != nil {
			t.Fatal(err)
		}
		jobs, err := a.whole()
		found := slices.ContainsFunc(jobs, func(j run.Job) bool {
			return j.ID == "3" && j.Name == "foo" && j.State == "FAILED" && j.Submitted != nil
		})
		if want := map[bool]int{true: len(ours), false: len(ours) - 1}[sought]; err != nil || found != sought || len(jobs) != want {
			t.Errorf("sought %v: %d jobs, %v, %v", sought, len(jobs), found, err)
		}
	}
}

// A renamed job is found by its working folder, for any characters in name and folder, and other jobs of the user are
// not found. The answers are from a real squeue and sacct: a waiting job, a folded array, one of its tasks renamed
// separately, a job with the name of another one, and one that has ended.
func TestRenamedJobs(t *testing.T) {
	const runs = "/shared/runs/" + recordedRun
	tasks := func(state string) (list []string) {
		for n := range 10 {
			if n != 4 {
				list = append(list, fmt.Sprintf("50_%d %s site-array %sXC/a1/ctl", n, state, runs))
			}
		}
		return list
	}
	array, named := "56_0 PENDING sg-array-0123456789abcdef0123456f ", recordedName+"XA-a1-aabbccddeeaa"
	for name, c := range map[string]struct {
		cols []column
		text string
		want []string
	}{
		"squeue": {queueColumns, "squeue-renamed-24.11.txt", slices.Concat([]string{array}, tasks("PENDING"),
			[]string{"50_4 PENDING alone " + runs + "XC/a1/ctl", "57 CANCELLED ended " + runs + "XJ/a1",
				"49 PENDING foo, bar|x /shared/my runs/" + recordedRun + "XB/a1", "48 PENDING " + named + " ",
				"52 RUNNING " + named + " " + runs + "XE/a2"})},
		"sacct": {[]column{colID, colAccounted, colReason, colRestarts, colNode, colExit, colSubmit, colStart, colEnd, colCluster, colSLUID,
			colDir, colName}, "sacct-renamed-24.11.txt", slices.Concat([]string{"52 RUNNING " + named + " " + runs + "XE/a2",
			"57 CANCELLED ended " + runs + "XJ/a1", "50_4 PENDING alone " + runs + "XC/a1/ctl"}, tasks("PENDING"), []string{array})},
	} {
		jobs, err := parseAnswer(golden(t, c.text), "lab", c.cols)
		if err != nil {
			t.Fatalf("parseAnswer of %s gives %v, want no error", name, err)
		}
		var got []string
		for _, j := range jobs {
			if j.Class != run.ClassUnread && !(run.IsArrayName(j.Name) && *j.Task > 0) {
				got = append(got, strings.Join([]string{j.ID, j.State, j.Name, j.WorkDir}, " "))
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s shows (-want +got):\n%s", name, d)
		}
	}
}

// The answer is from a real squeue: ended, running, held, requeued and rejected jobs, arrays, and foreign jobs with odd
// names.
func TestParseQueue(t *testing.T) {
	jobs, err := parseAnswer(golden(t, "squeue-24.11.txt"), "lab", queueColumns)
	must(t, err)
	var names []string
	byName := map[string]run.Job{}
	for _, j := range jobs {
		if !strings.HasPrefix(j.Name, recordedName) || j.Class == run.ClassUnknown || j.Cluster != "devcluster" || j.Submitted == nil {
			t.Errorf("the recorded job is %s of %q submitted at %v, want one of devcluster with its name, class and time",
				jobsText(j), j.Cluster, j.Submitted)
		}
		key := strings.TrimPrefix(j.Name, recordedName)[:2]
		names = append(names, key+"="+j.State)
		byName[key] = j
	}
	slices.Sort(names)
	want := []string{"X0=COMPLETED", "X3=FAILED", "XA=FAILED", "XA=FAILED", "XA=FAILED", "XB=PENDING", "XB=PENDING", "XC=CANCELLED",
		"XF=FAILED", "XL=RUNNING",
		"XP=PENDING", "XR=PENDING", "XS=RUNNING", "XT=PENDING"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("the names and states in the queue differ (-want +got):\n%s", d)
	}
	for _, want := range []run.Job{
		{Cluster: "devcluster", ID: "3", Name: recordedName + "X3-a1-aabbccddee03", State: "FAILED", Why: "NonZeroExitCode",
			Class: run.ClassEnded, Node: "n1",
			ExitCode: ptr(3), Submitted: at(1795248044), Started: at(1795248046), Ended: at(1795248046)},
		{Cluster: "devcluster", ID: "10", Name: recordedName + "XC-a1-aabbccddeecc", State: "CANCELLED", Class: run.ClassEnded, Node: "n1",
			ExitCode: ptr(0), Signal: 15, Submitted: at(1795248044), Started: at(1795248046), Ended: at(1795248047)},
		{Cluster: "devcluster", ID: "9", Name: recordedName + "XR-a1-aabbccddeeff", State: "PENDING", Why: "BeginTime", Class: run.ClassPending,
			Restarts:  1,
			Submitted: at(1795248047)},
		{Cluster: "devcluster", ID: "5_9", Task: ptr(9), Name: recordedName + "XB-a1-aabbccddeebb", State: "PENDING", Why: "JobHeldUser",
			Class:     run.ClassPending,
			Submitted: at(1795248044)},
		{Cluster: "devcluster", ID: "12", Name: recordedName + "XS-a1-aabbccddeee1", State: "RUNNING", Class: run.ClassRunning, Node: "n1",
			Submitted: at(1795248044), Started: at(1795248046)},
		{Cluster: "devcluster", ID: "13", Name: recordedName + "XF-a1-aabbccddeef0", State: "FAILED", Why: "BadConstraints",
			Class:    run.ClassEnded,
			ExitCode: ptr(0), Signal: 1, Submitted: at(1795248044), Started: at(1795248044), Ended: at(1795248044)},
	} {
		want.Partition, want.Account, want.Limit = "main", "research", 86400
		if d := cmp.Diff(want, byName[strings.TrimPrefix(want.Name, recordedName)[:2]]); d != "" {
			t.Errorf("the job %s differs (-want +got):\n%s", want.ID, d)
		}
	}
}

func TestParseAccounting(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	r.answer("sacct --dup", Output{Stdout: []byte(golden(t, "sacct-24.11.txt"))})
	jobs, err := c.Records(t.Context(), time.Date(2026, 11, 21, 7, 0, 0, 0, time.FixedZone("", 3600)))
	must(t, err)
	if args := r.last(); !slices.Contains(args.Args, "--starttime=2026-11-21T06:00:00") || !slices.Contains(args.Env, "TZ=UTC") ||
		!slices.Contains(args.Env, "SLURM_TIME_FORMAT=%s") {
		t.Errorf("sacct was called with %q and the environment %q, want the start and all times in UTC", args.Args, args.Env)
	}
	states := map[string]int{}
	for _, j := range jobs {
		states[j.State]++
		if j.Class == run.ClassUnknown || !strings.HasPrefix(j.SLUID, "s") || j.Restarts < 0 || strings.Contains(j.Node, "assigned") {
			t.Errorf("the recorded job is %s with SLUID %q, %d restarts and node %q, want them all and no \"None assigned\"",
				jobsText(j), j.SLUID, j.Restarts, j.Node)
		}
	}
	// Held jobs are not in sacct's answer, and the requeued one is there with the start that was given up.
	if d := cmp.Diff(map[string]int{"COMPLETED": 1, "FAILED": 5, "REQUEUED": 1, "CANCELLED": 1, "PENDING": 1, "RUNNING": 2}, states); d != "" {
		t.Errorf("the numbers of records by state differ (-want +got):\n%s", d)
	}
}

// An older sacct knows neither Restarts nor SLUID.
func TestAccountingOfOlderSlurm(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte("JobID State Reason NodeList ExitCode Submit Start End Cluster JobName")})
	r.answer("sacct --dup", Output{Stdout: []byte(strings.ReplaceAll("7|CANCELLED by 1001|None|n1|0:15|100|200|300|c|sg-x|lab|\n", "|", sep))})
	jobs, err := c.Records(t.Context(), time.Now())
	want := []run.Job{{Cluster: "c", ID: "7", Name: "sg-x", State: "CANCELLED", Class: run.ClassEnded, Restarts: -1, Node: "n1",
		ExitCode: ptr(0), Signal: 15, By: "1001",
		Submitted: at(100), Started: at(200), Ended: at(300)}}
	if d := cmp.Diff(want, jobs); d != "" || err != nil {
		t.Errorf("Records of an older Slurm gives the error %v and this difference (-want +got):\n%s", err, d)
	}
	r.answer("sacct --dup", Output{Stdout: []byte(strings.ReplaceAll("7|CANCELLED|None|n1|0:0|100|200|300|c|sg-x|lab|\n", "|", sep))})
	if jobs, err := c.Records(t.Context(), time.Now()); err != nil || len(jobs) != 1 || !jobs[0].Closed {
		t.Error("Records of a job CANCELLED without a user gives", jobs, err, "want it Closed and By empty")
	}
	if n := r.count("sacct --helpformat"); n != 1 {
		t.Errorf("sacct was asked for its columns %d times", n)
	}
}

// An answer that breaks off is an error. One that breaks off after a line feed, which may be part of a name, has an
// unread record.
func TestHalfAnswers(t *testing.T) {
	full := golden(t, "squeue-24.11.txt")
	ends := map[int]bool{0: true} // a cut between records looks like a shorter queue; see the two queries of rule 8
	for i := range full {
		if strings.HasSuffix(full[:i], sep+"lab"+sep+"\n") {
			ends[i] = true
		}
	}
	for cut := range full {
		jobs, err := parseAnswer(full[:cut], "lab", queueColumns)
		absence := err == nil && !slices.ContainsFunc(jobs, func(j run.Job) bool { return j.Class == run.ClassUnread && j.Name == "" })
		if absence != ends[cut] || (err == nil) != (cut == 0 || full[cut-1] == '\n') {
			t.Fatalf("cut at %d: %d jobs, %v", cut, len(jobs), err)
		}
	}
	for name, out := range map[string]Output{
		"exit status":          {Stdout: []byte(full), Exit: 1},
		"error on stderr only": {Stdout: []byte(full), Stderr: "slurm_load_jobs error: Socket timed out on send/recv operation\n"},
		"a failed call":        {Stdout: []byte(full), Stderr: "squeue: error: Unable to load the partitions\n"},
		"a cut record":         {Stdout: []byte(full + "x")},
		"text":                 {Stdout: []byte("slurm is down for maintenance\n")},
	} {
		c, r := fakeCLI(t)
		r.answer("squeue", out)
		if jobs, err := c.Jobs(t.Context(), nil); !fault.Is(err, fault.Transport) || jobs != nil {
			t.Errorf("%s: %d jobs, %v", name, len(jobs), err)
		}
	}
	c, r := fakeCLI(t)
	r.answer("squeue", Output{})
	if jobs, err := c.Jobs(t.Context(), nil); err != nil || jobs == nil || len(jobs) != 0 {
		t.Errorf("an empty queue: %v %v", jobs, err)
	}
	r.fail = errors.New("killed")
	if _, err := c.Jobs(t.Context(), nil); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}

func TestAccountingDisabled(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	r.answer("sacct --dup", Output{Stderr: "Slurm accounting storage is disabled\n", Exit: 1})
	if _, err := c.Records(t.Context(), time.Now()); !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != run.AccountingDisabled {
		t.Error(err)
	}
	r.answer("sacct --dup", Output{Stderr: "sacct: error: Problem talking to the database: Connection refused\n", Exit: 1})
	if _, err := c.Records(t.Context(), time.Now()); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}

func TestProbe(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("sbatch --version", Output{Stdout: []byte("slurm-wlm 24.11.5\n")})
	r.answer("scontrol ping", Output{Stdout: []byte("Slurmctld(primary) at login is UP\n")})
	r.answer("scontrol show", Output{Stdout: []byte(golden(t, "config-24.11.txt"))})
	p, err := c.Probe(t.Context())
	v := p.Config.Value
	said := fmt.Sprint(v.Name(), v.Database(), v.Enforces(), v.Seconds("MinJobAge"), v.Seconds("MessageTimeout"), v.Seconds("KillWait"),
		v.Seconds("ClusterName"), v.Values["SlurmctldParameters"])
	if want := "devclustertrue true 5m0s 10s 10s 0s(null)"; said != want {
		t.Errorf("the configuration is %s, want %s", said, want)
	}
	want := Probe{Version: "slurm-wlm 24.11.5", Release: [2]int{24, 11}, ExportNIL: true, ControllerText: "Slurmctld(primary) at login is UP",
		Config: p.Config}
	if d := cmp.Diff(want, p); d != "" || err != nil {
		t.Errorf("Probe gives the error %v and this difference (-want +got):\n%s", err, d)
	}
	for v, want := range map[string][2]int{"slurm 22.05.8": {22, 5}, "slurm-wlm 26.05.5": {26, 5}, "slurm 20.11.9-1": {20, 11}} {
		if got, err := release(v); err != nil || got != want {
			t.Errorf("release(%q) = %v, %v, want %v", v, got, err, want)
		}
	}
	r.answer("scontrol show", Output{Stderr: "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n", Exit: 1})
	r.answer("scontrol ping", Output{Stdout: []byte("Slurmctld(primary) at login is DOWN\n"), Exit: 1})
	if p, err := c.Probe(t.Context()); err == nil || !strings.Contains(p.ControllerText, "DOWN") || p.Version == "" {
		t.Errorf("with the controller down Probe gives version %q, text %q, %v; want both and an error", p.Version, p.ControllerText, err)
	}
}

// A banner before or after the version changes nothing.
func FuzzRelease(f *testing.F) {
	f.Add("slurm-wlm 24.11.5\n")
	f.Add("Welcome 1.2\nslurm 22.05.8\nbye\n")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := release(text); err == nil && (r[0] < 0 || r[0] > 9999 || r[1] < 0 || r[1] > 9999) {
			t.Errorf("release(%q) = %v, want numbers from 0 to 9999", text, r)
		}
		if r, err := release(strings.ReplaceAll(text, "slurm", "") + "\nslurm 22.05.8\n" + text); err != nil || r != [2]int{22, 5} {
			t.Errorf("release of a text with the line slurm 22.05.8 gives %v %v, want 22 and 5", r, err)
		}
	})
}

func TestStates(t *testing.T) {
	for _, s := range strings.Fields(`PENDING RUNNING SUSPENDED COMPLETING COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY REVOKED
		CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED RESV_DEL_HOLD LAUNCH_FAILED RECONFIG_FAIL EXPEDITING POWER_UP_NODE`) {
		if state, class := stateOf(s); state != s || class == run.ClassUnknown {
			t.Errorf("stateOf(%q) = %s, %s, want the same state and a known class", s, state, class)
		}
	}
	for in, want := range map[string]struct {
		state string
		class run.Class
	}{
		"CANCELLED by 1001": {"CANCELLED", run.ClassEnded}, "COMPLETED+": {"COMPLETED", run.ClassEnded}, "NEW_STATE": {"NEW_STATE",
			run.ClassUnknown}, "running": {"running", run.ClassUnknown},
	} {
		if state, class := stateOf(in); state != want.state || class != want.class {
			t.Errorf("stateOf(%q) = %s, %s, want %s, %s", in, state, class, want.state, want.class)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, name := range []string{"squeue-24.11.txt", "sacct-24.11.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		must(f, err)
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := parseAnswer(text, "lab", queueColumns)
		if err != nil && jobs != nil {
			t.Error("parseAnswer returned both jobs and an error")
		}
		for _, j := range jobs {
			unread := j.Class == run.ClassUnread && j.Why != "" && j.State == ""
			if !unread && (!strings.HasPrefix(j.Name, NamePrefix) || !jobID.MatchString(j.ID) || j.State == "" || j.Class == "") ||
				!utf8.ValidString(j.State+j.Why+j.Node+j.Cluster) {
				t.Errorf("parseAnswer gives the job %s, want a whole record or one that is unread", jobsText(j))
			}
		}
	})
}

// fakeRunner answers commands from a list, by the beginning of "program arguments".
type fakeRunner struct {
	answers map[string]Output
	calls   []Command
	fail    error
	when    func(Command) error // called first; nil: no failure
}

func (r *fakeRunner) answer(begin string, out Output) { r.answers[begin] = out }

func (r *fakeRunner) last() Command { return r.calls[len(r.calls)-1] }

func (r *fakeRunner) count(begin string) (n int) {
	for _, c := range r.calls {
		if strings.HasPrefix(filepath.Base(c.Path)+" "+strings.Join(c.Args, " "), begin) {
			n++
		}
	}
	return n
}

func (r *fakeRunner) Run(_ context.Context, c Command) (Output, error) {
	r.calls = append(r.calls, c)
	if r.when != nil {
		if err := r.when(c); err != nil {
			return Output{}, err
		}
	}
	for begin, out := range r.answers {
		if strings.HasPrefix(filepath.Base(c.Path)+" "+strings.Join(c.Args, " "), begin) {
			if c.Sink != nil { // in parts, as from a pipe
				for part := range slices.Chunk(out.Stdout, 7) {
					if _, err := c.Sink.Write(part); err != nil {
						return Output{}, err
					}
				}
				out.Stdout = nil
			}
			return out, r.fail
		}
	}
	return Output{}, r.fail
}

func fakeCLI(t *testing.T) (*CLI, *fakeRunner) {
	t.Helper()
	c, err := NewCLI(Config{BinDir: "/usr/bin", LocksDir: t.TempDir(), User: "lab", Script: runtimePath, RPCPerMinute: 1e6})
	must(t, err)
	r := &fakeRunner{answers: map[string]Output{}}
	c.runner = r
	return c, r
}

// parseAnswer parses a whole answer.
func parseAnswer(text, user string, cols []column) ([]run.Job, error) {
	a := newAnswer(user, cols, 0)
	a.Write([]byte(text))
	return a.whole()
}

const slurmdbdKept = "AccountingStorageType = accounting_storage/slurmdbd\n"

// allUsers is fakeCLI for the jobs of all users, on a cluster that shows them.
func allUsers(t *testing.T) (*CLI, *fakeRunner) {
	c, r := fakeCLI(t)
	c.cfg.AllUsers, c.cfg.RunsDirOfAll = true, testRunsDir
	r.answer("scontrol show config", Output{Stdout: []byte(slurmdbdKept + "PrivateData             = none\n")})
	r.answer("sacctmgr show configuration", Output{Stdout: []byte("PrivateData = jobs\n\nSlurmDBD configuration:\nPrivateData = none\n")})
	return c, r
}
