package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

// rowOf formats a record of squeue about a job of ours; change replaces some of its fields.
func rowOf(id int, change ...string) string {
	f := []string{fmt.Sprint(id), "FAILED", "None", "0", "n1", "3:0", "100", "200", "300", "c",
		"main", "research", "1:00:00", "/", jobOf(id), "lab", "\n"}
	for i := 0; i < len(change); i += 2 {
		f[slices.Index(f, change[i])] = change[i+1]
	}
	return strings.Join(f, sep)
}

func jobOf(id int) string {
	return fmt.Sprintf("sg-run_0X8Z4D1X467KV94K4TXG0D9BX%d-a1-aabbccddee00", id)
}

// One unreadable record is one unknown job, and the records around it count. Where it may be any job's, the answer has
// an unread job without a name.
func TestUnreadRecords(t *testing.T) {
	good := run.Job{Cluster: "c", State: "FAILED", Class: run.ClassEnded, Node: "n1", ExitCode: ptr(3),
		Partition: "main", Account: "research", Limit: 3600, Submitted: at(100), Started: at(200),
		Ended: at(300)}
	half := rowOf(2)
	for name, c := range map[string]struct {
		text string
		why  string
		job  string // the name of the unread job; empty: none
	}{
		"another exit status":      {rowOf(2, "3:0", "3;0"), "no exit status", jobOf(2)},
		"too large an exit status": {rowOf(2, "3:0", "65536"), "no exit status", jobOf(2)},
		"no state":                 {rowOf(2, "FAILED", " "), "no state", jobOf(2)},
		"another time":             {rowOf(2, "100", "2026-11-21"), "no time", jobOf(2)},
		"another number":           {rowOf(2, "0", "many"), "invalid", jobOf(2)},
		"another id":               {rowOf(2, "2", "two"), "no job id", jobOf(2)},
		"a banner":                 {"Welcome to the cluster!\n", "no record", ""},
		"a banner of many lines":   {strings.Repeat("****\n\n", 100), "no record", ""},
		"a message":                {"slurm_load_jobs error: Unexpected message received\n", "no record", ""},
		"half a record":            {half[:15] + "\n", "no record", ""},
		"a record cut in its name": {half[:len(half)-20] + "\n", "more than one record", ""},
		"a record without name": {strings.TrimSuffix(rowOf(2, jobOf(2), ""), sep+"lab"+sep+"\n") + "\n" + rowOf(8, jobOf(8), "foreign"),
			"more than one record", ""},
		"without its line feed": {half[:15], "", ""},
		"too few fields":        {"2" + sep + "FAILED" + sep + jobOf(2) + sep + "lab" + sep + "\n", "3 fields instead of 15", ""},
		"one field more":        {rowOf(2, "n1", "n1"+sep+"x"), "more than one record", ""},
		"of another user":       {rowOf(2, "lab", "eve"), "more than one record", ""},
		"a very long record":    {rowOf(2, "n1", strings.Repeat("n", 2*maxRecord)), "longer than a record can be", ""},
		"a very long text":      {strings.Repeat("x\n", maxRecord), "longer than a record can be", ""},
		"not UTF-8":             {"\xff\xfe\x00" + sep + "\n", "no record", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c3 := good
			c3.ID, c3.Name = "3", jobOf(3)
			c1 := good
			c1.ID, c1.Name = "1", jobOf(1)
			// The record after one that breaks off may be lost with it; the next one is not.
			a := newAnswer("lab", queueColumns, 0)
			for part := range slices.Chunk([]byte(rowOf(1)+c.text+rowOf(9)+rowOf(3)), 1<<12) {
				a.Write(part)
			}
			jobs, err := a.whole()
			if err != nil || a.unread != 1 || a.why == "" || a.example == "" || !strings.Contains(a.why, c.why) {
				t.Fatalf("the answer has %d lines unread, %s: %s (%v); want one, for %q", a.unread, a.why, a.example, err, c.why)
			}
			if d := cmp.Diff(c1, jobs[0]); d != "" {
				t.Errorf("the first job differs (-want +got):\n%s", d)
			}
			if !slices.ContainsFunc(jobs, func(j run.Job) bool { return cmp.Equal(j, c3) }) {
				t.Errorf("the jobs are %s, want job 3, after the unread line, among them", jobsText(jobs...))
			}
			i := slices.IndexFunc(jobs, func(j run.Job) bool { return j.Class == run.ClassUnread })
			if i < 0 || jobs[i].Name != c.job || jobs[i].Why != a.why || c.job != "" && jobs[i].ID != "2" && c.why != "no job id" {
				t.Errorf("the jobs are %s, want an unread one with the name %q and the reason %q", jobsText(jobs...), c.job, a.why)
			}
		})
	}
}

// Unusual records are read: a raw wait status as 22.05 prints it, unknown states and texts, a status of a running job.
func TestUnusualRecords(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want func(*run.Job)
	}{
		"status 3:0":     {rowOf(2, "3:0", "768"), func(*run.Job) {}},
		"signal 9":       {rowOf(2, "3:0", "9"), func(j *run.Job) { j.ExitCode, j.Signal = ptr(0), 9 }},
		"with core file": {rowOf(2, "3:0", "139"), func(j *run.Job) { j.ExitCode, j.Signal = ptr(0), 11 }},
		"of a running job": {rowOf(2, "FAILED", "RUNNING", "3:0", "4294967294"), func(j *run.Job) {
			j.State, j.Class, j.ExitCode, j.Ended = "RUNNING", run.ClassRunning, nil, nil
		}},
		"a new state": {rowOf(2, "FAILED", "HALF_DONE"), func(j *run.Job) {
			j.State, j.Class, j.ExitCode, j.Ended = "HALF_DONE", run.ClassUnknown, nil, nil
		}},
		"not UTF-8": {rowOf(2, "None", "a\xffb"), func(j *run.Job) { j.Why = "a\uFFFDb" }},
		"a long reason": {rowOf(2, "None", strings.Repeat("r", 4*maxWord)), func(j *run.Job) {
			j.Why = strings.Repeat("r", maxWord-len("…")) + "…"
		}},
	} {
		want := run.Job{ID: "2", Name: jobOf(2), Cluster: "c", State: "FAILED", Class: run.ClassEnded, Node: "n1", ExitCode: ptr(3),
			Partition: "main", Account: "research", Limit: 3600,
			Submitted: at(100), Started: at(200), Ended: at(300)}
		c.want(&want)
		jobs, err := parseAnswer(c.text, "lab", queueColumns)
		if d := cmp.Diff([]run.Job{want}, jobs); d != "" || err != nil {
			t.Errorf("the record with %s gives the error %v and this difference (-want +got):\n%s", name, err, d)
		}
	}
}

// The unreadable records of both programs are reported, and foreign records are not examined.
func TestUnreadIsReported(t *testing.T) {
	c, r := fakeCLI(t)
	var reports []string
	c.cfg.Unread = func(program string, records int, why, example string) {
		reports = append(reports, fmt.Sprintf("%s %d %s %s", program, records, why, example))
	}
	r.answer("squeue", Output{Stdout: []byte(rowOf(1) + rowOf(2, "3:0", "x") + rowOf(3, "3:0", "y") + rowOf(4, jobOf(4), "foreign", "3:0",
		"z"))})
	if jobs, err := c.Jobs(t.Context(), nil); err != nil || len(jobs) != 3 {
		t.Errorf("Jobs gives %s, %v, want three jobs", jobsText(jobs...), err)
	}
	r.answer("sacct --helpformat", Output{Stdout: []byte("JobID State NodeList ExitCode Submit Start End Cluster JobName")})
	row := "7|FAILED|n1|0:15|100|200|300|c|sg-x|lab|\n"
	r.answer("sacct --dup", Output{Stdout: []byte(strings.ReplaceAll("Hello\n"+row, "|", sep))})
	if jobs, err := c.Records(t.Context(), time.Now()); err != nil || len(jobs) != 2 || jobs[1].Class != run.ClassUnread {
		t.Errorf("Records gives %s, %v, want two records, the second unread", jobsText(jobs...), err)
	}
	r.answer("sacct --dup", Output{Stdout: []byte("1|1|7|00:00||1\nHello\n")})
	if used, err := c.Usage(t.Context(), time.Now()); err != nil || len(used) != 1 {
		t.Errorf("Usage gives %d jobs, %v, want one", len(used), err)
	}
	want := []string{"squeue 2 no exit status 2|FAILED|None|0|n1|x|100|200|300|c|main|research|1:00:00|/|" +
		strings.TrimSuffix(jobOf(2), "abbccddee00") + "…", `sacct 1 no record Hello\n`,
		`sacct 1 1 fields instead of 6 Hello\n`}
	if d := cmp.Diff(want, reports); d != "" {
		t.Errorf("the reports of unread records differ (-want +got):\n%s", d)
	}
}
