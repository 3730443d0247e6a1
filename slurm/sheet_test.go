package slurm

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

const forgedName = "sg-run_0X8Z4D1X467KV94K4TXG0D9BXA-a1-aabbccddeea1" // alice's in the recorded answers; bob has a job with that name too

// line formats a record as squeue prints it.
func line(id, state, user, name string) string {
	return lineOf(id, state, user, "/", name)
}

// lineOf is line with a working folder.
func lineOf(id, state, user, workDir, name string) string {
	values := []string{id, state, "0", "n1", "0:0", "100", "200", "300", "c", "main", "1:00", user, "None", "research", workDir, name}
	var b strings.Builder
	for i, f := range testLayout.fields {
		b.WriteString(fmt.Sprintf("%-*s", f.width, values[i])[:f.width] + sep)
	}
	return b.String() + "\n"
}

// testRunsDir is where the runs of all users are in these tests.
const testRunsDir = "/shared/scratch/{user}/runs"

var testLayout = (&CLI{cfg: Config{RunsDirOfAll: testRunsDir}}).queueLayout()

func readSheet(text string, chunk int) (*sheet, []run.Job, error) {
	s := newSheet(testLayout, 0)
	for part := range slices.Chunk([]byte(text), chunk) {
		s.Write(part)
	}
	jobs, err := s.whole()
	return s, jobs, err
}

func keyOf(j run.Job) string { return j.ID + " " + j.User + " " + j.State + " " + j.Name }

// The answer is from a real squeue while bob had jobs with the name of alice's, with whole forged records of hers after
// line feeds in their names and folders, with names that are cut within such a record, and arrays, and while jobs and
// an array of alice had been renamed. Only Slurm's own fields are read.
func TestSheetOfQueue(t *testing.T) {
	size := testLayout.size()
	for _, chunk := range []int{1, 7, size - 1, size, size + 1, 1 << 20} {
		s, jobs, err := readSheet(golden(t, "squeue-all-24.11.txt"), chunk)
		if err != nil || s.read != 23 || s.lost {
			t.Fatalf("%d records, lost %v: %v", s.read, s.lost, err)
		}
		var got []string
		for _, j := range jobs {
			got = append(got, keyOf(j))
		}
		x := func(c string) string { return strings.Replace(forgedName, "XA-", "X"+c+"-", 1) }
		want := []string{"19_0 alice PENDING theirs", "19_1 alice PENDING theirs", "19_2 alice PENDING theirs", "19_3 alice PENDING theirs",
			"19_4 alice PENDING theirs", "19_5 alice PENDING theirs", "19_6 alice PENDING theirs", "19_7 alice PENDING theirs",
			"19_8 alice PENDING theirs", "19_9 alice PENDING theirs", "16 bob PENDING " + x("B"), "15_1 bob PENDING " + forgedName,
			"15_2 bob PENDING " + forgedName, "15_3 bob PENDING " + forgedName, "14 bob PENDING " + forgedName, "21 bob FAILED " + forgedName,
			"22 alice FAILED " + x("B"), "18 alice PENDING theirs-" + strings.Repeat("z", nameWidth-7), "17 alice PENDING theirs",
			"13 bob PENDING bobs", "10_1 bob PENDING " + forgedName, "10_2 bob PENDING " + forgedName, "10_3 bob PENDING " + forgedName,
			"3 bob PENDING " + forgedName, "2 alice PENDING " + forgedName, "23 alice RUNNING " + x("C")}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("the jobs of the sheet differ (-want +got):\n%s", d)
		}
		dir := "/shared/scratch/alice/runs/run_0X8Z4D1X467KV94K4TXG0D9BXF/a1/ctl"
		if j := jobs[2]; *j.Task != 2 || j.Class != run.ClassPending || j.WorkDir != dir {
			t.Errorf("the third job is %s in %s, want task 2 pending in %s", jobsText(j), j.WorkDir, dir)
		}
		last := run.Job{ID: "22", User: "alice", Name: x("B"), Cluster: "devcluster", Partition: "main", Account: "research", Limit: 86400,
			State: "FAILED", Why: "NonZeroExitCode",
			Class: run.ClassEnded, Node: "n1", ExitCode: ptr(3), Submitted: at(1795853859), Started: at(1795853859), Ended: at(1795853859)}
		if d := cmp.Diff(last, jobs[16]); d != "" {
			t.Errorf("the ended job 22 differs (-want +got):\n%s", d)
		}
	}
}

// The same for sacct: only the wanted records are returned, by name and user.
func TestSheetOfAccounting(t *testing.T) {
	c, r := allUsers(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	r.answer("sacct --user", Output{Stdout: []byte(golden(t, "sacct-all-24.11.txt"))})
	failed := strings.Replace(forgedName, "XA-", "XB-", 1)
	jobs, err := c.Records(t.Context(), time.Unix(0, 0), run.JobKey{Name: forgedName, User: "alice"}, run.JobKey{Name: failed, User: "alice"})
	if err != nil || len(jobs) != 1 || keyOf(jobs[0]) != "78 alice FAILED "+failed || jobs[0].ExitCode == nil || *jobs[0].ExitCode != 3 ||
		!strings.HasPrefix(jobs[0].SLUID, "s") {
		t.Errorf("Records of alice gives %s, %v, want her job that failed", jobsText(jobs...), err)
	}
	if jobs, err = c.Records(t.Context(), time.Unix(0, 0), run.JobKey{Name: forgedName, User: "bob"}); err != nil || len(jobs) != 5 ||
		keyOf(jobs[1]) != "77 bob FAILED "+forgedName {
		t.Errorf("Records of bob gives %s, %v, want five jobs", jobsText(jobs...), err)
	}
}

// No text that users choose can begin a record: at every offset but that of a real record, some byte differs from the
// required one, and no user can write that byte.
func TestSheetShape(t *testing.T) {
	c, r := allUsers(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	names, cols, err := c.accountingColumns(t.Context())
	must(t, err)
	for width := 0; width < 1100; width += 97 {
		c.cfg.RunsDirOfAll = strings.Repeat("x", width)
		checkShape(t, c.queueLayout())
		checkShape(t, c.accountingLayout(names, cols))
	}
}

func checkShape(t *testing.T, l layout) {
	t.Helper()
	size := l.size()
	// may reports whether the byte at a position of a real record can have that value.
	may := func(at int, b byte) bool {
		at %= size
		if at == size-1 {
			return b == '\n'
		}
		for _, f := range l.fields {
			if at < f.width {
				return f.text || b != '\n' && (b != sep[0])
			}
			if at -= f.width + 1; at < 0 {
				return b == l.gap
			}
		}
		return false
	}
	for shift := 1; shift < size; shift++ {
		possible := may(shift+size-1, '\n')
		at := 0
		for _, f := range l.fields {
			for i := at; i < at+f.width && !f.text; i++ {
				possible = possible && (shift+i)%size != size-1 // this byte is always a line feed
			}
			if at += f.width + 1; !may(shift+at-1, l.gap) {
				possible = false
			}
		}
		if possible {
			t.Errorf("gap %q: a record of %d bytes can begin %d bytes late", l.gap, size, shift)
		}
	}
}

// Stray text destroys only the records that it interrupts, and makes every job that is not shown unknown.
func TestSheetWithStrayText(t *testing.T) {
	a, b := line("1", "RUNNING", "alice", jobOf(1)), line("2", "RUNNING", "alice", jobOf(2))
	evil := line("9", "RUNNING", "bob", "x\n"+strings.Repeat("9"+sep, 39))
	for name, c := range map[string]struct {
		text string
		jobs int
		err  bool
	}{
		"none":                 {a + evil + b, 2, false},
		"before":               {"Welcome\nto the cluster\n" + a + evil + b, 2, false},
		"before, a line feed":  {"\n" + a + evil + b, 2, false},
		"between":              {a + evil + "slurm_load_jobs error: Unexpected message\n" + evil + b, 2, false},
		"within":               {a + evil + a[:100] + "oops\n" + evil + b, 2, false},
		"before a record":      {"oops" + a + evil + b, 1, false},
		"longer than a record": {a + strings.Repeat("x", 3000) + "\n" + b, 2, false},
		"after":                {a + evil + b + "bye\n", 2, false},
		"half a record":        {a + b[:200], 0, true},
		"half a name":          {a + evil[:len(evil)-30], 0, true},
		"only text":            {"slurm is down for maintenance\n", 0, true},
		"a long text":          {strings.Repeat("x", 5000), 0, true},
		"nothing":              {"", 0, false},
	} {
		for _, chunk := range []int{1, 100, 1 << 20} {
			s, jobs, err := readSheet(c.text, chunk)
			if (err != nil) != c.err || err == nil && s.lost != (name != "none" && name != "nothing") {
				t.Errorf("%s: lost %v, %v", name, s.lost, err)
			}
			shown := slices.DeleteFunc(jobs, func(j run.Job) bool { return j.Name == "" && j.User == "" && j.Class == run.ClassUnread })
			if err == nil && (len(shown) != c.jobs || len(jobs) != c.jobs && !s.lost || slices.ContainsFunc(shown, func(j run.Job) bool {
				return j.User != "alice"
			})) {
				t.Errorf("the sheet with %s gives %s, want %d jobs of alice", name, jobsText(jobs...), c.jobs)
			}
		}
	}
}

// Users and names that may have been cut match no job.
func TestSheetCuts(t *testing.T) {
	long := "alice" + strings.Repeat("x", 100)
	_, jobs, err := readSheet(line("1", "RUNNING", long, jobOf(1))+line("2", "RUNNING", "", jobOf(2))+
		line("3", "RUNNING", "alice", "sg-run_"+strings.Repeat("A", 100))+line("4", "RUNNING", "alice@lab.example", jobOf(4)), 1000)
	if err != nil || len(jobs) != 1 || jobs[0].User != "alice@lab.example" {
		t.Errorf("the sheet with a long and a foreign line gives %s, %v, want the job of alice@lab.example", jobsText(jobs...), err)
	}
}

// A record that cannot be read concerns its owner only: it makes no other user's job unread.
func TestSheetUnread(t *testing.T) {
	s, jobs, err := readSheet(line("1", "RUNNING", "alice", jobOf(1))+line("x", "RUNNING", "bob", jobOf(1)), 1000)
	if err != nil || len(jobs) != 2 || s.unread != 1 || s.lost {
		t.Fatalf("the sheet with a line without id gives %s, %v, want two jobs, one unread", jobsText(jobs...), err)
	}
	if d := cmp.Diff(run.Job{Name: jobOf(1), User: "bob", Class: run.ClassUnread, Why: "no job id"}, jobs[1]); d != "" {
		t.Errorf("the job without id differs (-want +got):\n%s", d)
	}
}

// A user with too many jobs makes only that user's jobs unknown, and the excess is not stored. 100,000 jobs of other
// users cost no memory.
//
// no race: each of its millions of steps is like the one before
func TestSheetFloods(t *testing.T) {
	foreign := []byte(strings.Repeat(line("7", "PENDING", "bob", "analysis"), 1000))
	own := []byte(strings.Repeat(line("7", "PENDING", "bob", jobOf(7)), 1000))
	s := newSheet(testLayout, 0)
	s.Write([]byte(line("1", "RUNNING", "alice", jobOf(1))))
	before := allocated()
	for range 100 {
		s.Write(foreign)
	}
	if more := allocated() - before; more > 1<<20 {
		t.Errorf("100,000 foreign jobs cost %d bytes", more)
	}
	for range maxUserJobs/1000 + 20 {
		s.Write(own)
	}
	s.Write([]byte(line("2", "RUNNING", "alice", jobOf(2))))
	jobs, err := s.whole()
	if err != nil || len(jobs) != maxUserJobs+3 || s.lost {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	if last := jobs[len(jobs)-1]; last.User != "bob" || last.Name != "" || last.Class != run.ClassUnread {
		t.Errorf("the last job is %s, want bob's without a name, unread", jobsText(last))
	}
	s = newSheet(testLayout, 0)
	s.wanted = map[run.JobKey]int{{Name: jobOf(7), User: "bob"}: 0, {Name: jobOf(1), User: "alice"}: 0}
	for range 3 {
		s.Write(own)
	}
	s.Write([]byte(line("1", "RUNNING", "alice", jobOf(1)) + line("1", "RUNNING", "bob", jobOf(1))))
	if jobs, err = s.whole(); err != nil || len(jobs) != maxJobRecords+2 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	if flood := jobs[maxJobRecords]; flood.User != "bob" || flood.Name != jobOf(7) || flood.Class != run.ClassUnread {
		t.Errorf("the job after maxJobRecords is %s, want bob's, unread", jobsText(flood))
	}
}

// allocated returns the number of bytes allocated since the start of the process.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// For any job names of bob, and for any chunks of the answer, alice's jobs are those that Slurm shows, and nothing is
// hidden.
func FuzzSheetForgery(f *testing.F) {
	rec := line("1", "COMPLETED", "alice", forgedName)
	f.Add("x\n"+rec+rec, uint16(435))
	f.Add(strings.Repeat(" ", 79)+sep+"\n"+rec, uint16(1))
	f.Add(rec[len(rec)-90:]+rec, uint16(17))
	f.Add("a\xff\x00\n\n"+sep, uint16(80))
	f.Fuzz(func(t *testing.T, name string, chunk uint16) {
		first, last := line("1", "RUNNING", "alice", jobOf(1)), line("3", "PENDING", "alice", jobOf(3))
		text := first
		for i := range 8 {
			text += line("2", "RUNNING", "bob", name[min(len(name), i*60):])
		}
		s, jobs, err := readSheet(text+last, int(chunk)+1)
		if err != nil || s.lost || s.read != 10 {
			t.Fatalf("%d read, lost %v, %v", s.read, s.lost, err)
		}
		hers := slices.DeleteFunc(jobs, func(j run.Job) bool { return j.User == "bob" })
		if len(hers) != 2 || keyOf(hers[0]) != "1 alice RUNNING "+jobOf(1) || keyOf(hers[1]) != "3 alice PENDING "+jobOf(3) {
			t.Errorf("the jobs of alice are %s, want 1 running and 3 pending", jobsText(hers...))
		}
	})
}

// For any text: no panic, and every job has a user and comes from text in the shape of a record.
func FuzzSheet(f *testing.F) {
	f.Add([]byte(line("1", "COMPLETED", "alice", forgedName)), uint16(3))
	f.Add([]byte("x\n"+line("1", "COMPLETED", "alice", forgedName)+"y"), uint16(100))
	f.Fuzz(func(t *testing.T, text []byte, chunk uint16) {
		_, jobs, err := readSheet(string(text), int(chunk)+1)
		_, again, err2 := readSheet(string(text), 1<<20)
		if (err == nil) != (err2 == nil) || !cmp.Equal(jobs, again) {
			t.Errorf("the same answer in other chunks gives %v, want %v", err, err2)
		}
		for _, j := range jobs {
			if (j.Name == "") != (j.User == "") || !bytes.Contains(text, []byte(j.Name)) {
				t.Errorf("the sheet gives the job %s, want user and name, from the text", jobsText(j))
			}
		}
	})
}
