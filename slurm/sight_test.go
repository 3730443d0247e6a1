package slurm

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// A cluster may hide the jobs, records and accounts of other users behind clean, empty answers. A gateway that queries
// for all users checks what is hidden, and whether its level shows it.
//
// proves SITE-08
func TestSight(t *testing.T) {
	const plain = "ClusterName = c\n" + slurmdbdKept
	const labels = "MCSPlugin = mcs/group\nMCSParameters = ondemand,"
	for name, c := range map[string]struct {
		config, database, level string
		accounting              bool
		code                    string
	}{
		"nothing private":        {"PrivateData = none", "PrivateData = none", "None", true, ""},
		"other data":             {"PrivateData = accounts,events,nodes,usage,users", "PrivateData = accounts,usage", "None", true, ""},
		"jobs":                   {"PrivateData = accounts,jobs,users", "PrivateData = none", "None", true, JobsHidden},
		"jobs, to an operator":   {"PrivateData = jobs", "PrivateData = jobs,users", "Operator", true, ""},
		"jobs, to an admin":      {"PrivateData = jobs", "PrivateData = jobs,users", "Administrator", true, ""},
		"records":                {"PrivateData = none", "PrivateData = jobs", "None", true, RecordsHidden},
		"records, not used":      {"PrivateData = none", "PrivateData = jobs,users", "None", false, ""},
		"users":                  {"PrivateData = none", "PrivateData = usage,users", "None", true, UsersHidden},
		"labels":                 {"PrivateData = none\n" + labels + "privatedata", "", "None", true, JobsHidden},
		"labels, not private":    {"PrivateData = none\n" + labels + "select", "PrivateData = none", "None", true, ""},
		"labels, no plugin":      {"PrivateData = none\nMCSPlugin = (null)\nMCSParameters = privatedata", "PrivateData = none", "None", true, ""},
		"labels, to an operator": {"PrivateData = none\n" + labels + "privatedata", "PrivateData = none", "Operator", true, ""},
		"not shown":              {"", "", "None", true, "config_unreadable"},
		"not shown by slurmdbd":  {"PrivateData = none", "", "None", true, "config_unreadable"},
		"somebody else's level":  {"PrivateData = jobs", "PrivateData = none", "None\nlab2|Operator", true, JobsHidden},
		"another level":          {"PrivateData = jobs", "PrivateData = none", "NotOperator", true, JobsHidden},
	} {
		cli, r := fakeCLI(t)
		cli.cfg.AllUsers = true
		r.answer("scontrol show config", Output{Stdout: []byte(plain + c.config + "\n")})
		r.answer("sacctmgr show configuration",
			Output{Stdout: []byte("PrivateData = jobs,users\n\nSlurmDBD configuration:\nAuthType = x\n" + c.database + "\n")})
		r.answer("sacctmgr --noheader --parsable2 show user lab", Output{Stdout: []byte("lab|" + c.level + "\n")})
		err := cli.CheckSight(t.Context(), c.accounting)
		if err == nil && c.code != "" || err != nil && (fault.CodeOf(err) != c.code || !fault.Is(err, fault.Transport)) ||
			Hides(err) != strings.HasSuffix(c.code, "_hidden") {
			t.Errorf("CheckSight with %s gives %v, want the code %q", name, err, c.code)
		}
	}
	cli, r := fakeCLI(t)
	cli.cfg.AllUsers = true
	r.answer("scontrol show config", Output{Stdout: []byte("PrivateData = jobs\nAccountingStorageType = accounting_storage/none\n")})
	if err := cli.SeesAll(t.Context()); fault.CodeOf(err) != JobsHidden {
		t.Errorf("CheckSight without slurmdbd gives %v, want the jobs hidden", err)
	}
	r.answer("scontrol show config", Output{Stderr: "slurm_load_ctl_conf error: Unable to contact slurm controller\n", Exit: 1})
	if err := cli.SeesAll(t.Context()); !fault.Is(err, fault.Transport) || Hides(err) {
		t.Error(err)
	}
	if cli, r = fakeCLI(t); cli.CheckSight(t.Context(), true) != nil || len(r.calls) > 0 {
		t.Errorf("CheckSight for one user alone calls %v, want no call", r.calls)
	}
}

// A clean answer about records or accounts is refused when slurmdbd hides those of other users.
func TestHiddenAnswersAreNotBelieved(t *testing.T) {
	c, r := allUsers(t)
	r.answer("sacctmgr show configuration", Output{Stdout: []byte("SlurmDBD configuration:\nPrivateData = jobs,users\n")})
	r.answer("sacctmgr --noheader --parsable2 show user lab", Output{Stdout: []byte("lab|None\n")})
	r.answer("sacctmgr --noheader --parsable2 show user withassoc", Output{Stdout: []byte("lab|research|c|research||normal||\n")})
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	c.cfg.Cluster = ""
	jobs, err := c.Records(t.Context(), time.Now(), run.JobKey{Name: forgedName, User: "alice"})
	if fault.CodeOf(err) != RecordsHidden || jobs != nil {
		t.Errorf("Records gives %v %v, want no jobs and the code %s", jobs, err, RecordsHidden)
	}
	c.cfg.Cluster = "c"
	r.answer("scontrol show config", Output{Stdout: []byte("ClusterName = c\nPrivateData = none\n")})
	if _, err = c.AccountsOf(t.Context(), "alice"); fault.CodeOf(err) != UsersHidden || !strings.Contains(err.Error(), "adminlevel=Operator") {
		t.Error(err)
	}
}

// One squeue asks for all users, without filters, which slurmctld ignores or which fail for a deleted account.
func TestJobsOfAllUsers(t *testing.T) {
	c, r := allUsers(t)
	r.answer("squeue", Output{Stdout: []byte(line("1", "RUNNING", "alice", jobOf(1)) + line("2", "RUNNING", "bob", "other") +
		line("3", "RUNNING", "bob", "renamed"))})
	jobs, err := c.Jobs(t.Context(), map[string]bool{"3": true})
	if err != nil || len(jobs) != 2 || jobs[0].User != "alice" || jobs[1].Name != "renamed" {
		t.Errorf("Jobs gives %s, %v, want alice's job and the renamed one", jobsText(jobs...), err)
	}
	args := strings.Join(r.last().Args, " ")
	if strings.Contains(args, "--user") || strings.Contains(args, "--array") || !strings.Contains(args, "--states=all") {
		t.Errorf("squeue was called with %s, want --states=all and neither --user nor --array", args)
	}
	r.answer("scancel --version", Output{Stdout: []byte("slurm 24.11.5\n")})
	if err := c.Cancel(t.Context(), "1", jobOf(1), ""); err != nil || !slices.Contains(r.last().Args, "--user=lab") {
		t.Errorf("a user who sees all jobs must cancel only its own: scancel %v gives %v", r.last().Args, err)
	}
}

// Waiting tasks of an array share one record, whose list is asked for again where it does not fit: for these arrays
// alone, and without text that a user can write. If Slurm then does not show the list, the tasks are unknown; an ended
// record without a list hides none.
func TestTasksOfAllUsers(t *testing.T) {
	const name, other = "sg-array-0123456789abcdef01234567", "sg-array-0123456789abcdef01234568"
	long := "0-3,5,7,9,11,13,15,17,19,21"
	for _, tt := range []struct{ name, squeue, lists, want string }{
		{"short", line("7_[0-1,3]", "PENDING", "alice", name) + line("7_2", "RUNNING", "alice", name), "",
			"7_0 PENDING|7_1 PENDING|7_3 PENDING|7_2 RUNNING"},
		{"long", line("7_["+long+"]", "PENDING", "alice", name) + line("1", "RUNNING", "bob", jobOf(1)), "7_[" + long + "]" + sep + "\n",
			"1 RUNNING|7_0 PENDING|7_1 PENDING|7_2 PENDING|7_3 PENDING|7_5 PENDING|7_7 PENDING|7_9 PENDING|7_11 PENDING|7_13 PENDING|7_15 PENDING|" +
				"7_17 PENDING|7_19 PENDING|7_21 PENDING"},
		{"long, of two", line("7_["+long+"]", "PENDING", "alice", name) + line("8_["+long+"]", "PENDING", "bob", other), "8_[0-1]" + sep + "\n",
			"7 unread|8_0 PENDING|8_1 PENDING"},
		{"long, and gone", line("7_["+long+"]", "CANCELLED", "alice", name), "", "7 CANCELLED"},
		{"cancelled one by one", line("7", "CANCELLED", "alice", name), "", "7 CANCELLED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, r := allUsers(t)
			r.answer("squeue --local --all --noheader --states=all --Format=", Output{Stdout: []byte(tt.squeue)})
			r.answer("squeue --local --all --noheader --states=all --jobs=", Output{Stdout: []byte(tt.lists)})
			jobs, err := c.Jobs(t.Context(), nil)
			must(t, err)
			var got []string
			for _, j := range jobs {
				if strings.Contains(j.ID, "_") != (j.Task != nil) || j.Name == name && j.User != "alice" {
					t.Errorf("the task is %s, want an id of a task and its owner", jobsText(j))
				}
				got = append(got, j.ID+" "+cmp.Or(j.State, string(j.Class)))
			}
			if all := strings.Join(got, "|"); all != tt.want {
				t.Errorf("the tasks are %q, want %q", all, tt.want)
			}
			if asked := strings.Contains(strings.Join(r.last().Args, " "), "--jobs="); asked != strings.HasPrefix(tt.name, "long") {
				t.Errorf("asked: %v", r.last().Args)
			}
		})
	}
}

// Accounting is asked about the jobs by name and by user; users without an account any more do not hide the jobs of
// others.
func TestRecordsOfAllUsers(t *testing.T) {
	c, r := allUsers(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	r.answer("sacct --user", Output{Stderr: "sacct: error: Invalid user id: carol\n", Exit: 1})
	r.answer("sacct --allusers", Output{Stdout: []byte(golden(t, "sacct-all-24.11.txt"))})
	of := []run.JobKey{{Name: forgedName, User: "bob"}, {Name: jobOf(1), User: "carol"}, {Name: jobOf(2), User: "bob"},
		{Name: "a,b", User: "x,y"}}
	jobs, err := c.Records(t.Context(), time.Unix(0, 0), of...)
	if err != nil || len(jobs) != 5 || jobs[0].User != "bob" || of[0].User != "bob" {
		t.Errorf("Records gives %s, %v, want five jobs, bob's first", jobsText(jobs...), err)
	}
	var asked []string
	for _, call := range r.calls {
		if strings.HasSuffix(call.Path, "sacct") && len(call.Args) > 2 {
			asked = append(asked, call.Args[0])
			if !slices.Contains(call.Args, "--name="+jobOf(1)+","+jobOf(2)+","+forgedName) {
				t.Errorf("sacct was called with %q, want the names of the three jobs", call.Args)
			}
		}
	}
	if !slices.Equal(asked, []string{"--user=bob,carol", "--allusers"}) {
		t.Errorf("sacct was called for %q, want --user=bob,carol and --allusers", asked)
	}
	r.calls = nil
	if _, err := c.Records(t.Context(), time.Unix(0, 0)); err != nil || !slices.Contains(r.calls[0].Args, "--name="+noJob) {
		t.Errorf("Records of no jobs calls %v and gives %v", r.calls, err)
	}
	r.calls = nil
	r.answer("sacct --user", Output{})
	_, err = c.Records(t.Context(), time.Unix(0, 0), run.JobKey{Name: forgedName})
	if err != nil || !slices.Contains(r.calls[0].Args, "--user=lab") {
		t.Errorf("runs of the gateway's own user: %v %v", r.calls, err)
	}
	many := make([]run.JobKey, 2*keysAtOnce+1)
	for i := range many {
		many[i] = run.JobKey{Name: jobOf(i), User: "bob"}
	}
	r.calls = nil
	r.answer("sacct --user", Output{})
	if _, err := c.Records(t.Context(), time.Unix(0, 0), many...); err != nil || r.count("sacct --user") != 3 {
		t.Errorf("Records of many jobs calls sacct %d times and gives %v, want 3 calls and no error",
			r.count("sacct --user"), err)
	}
}

// Where a user has created very many jobs under the name of one run, only that run waits.
func TestTooManyRecords(t *testing.T) {
	c, r := allUsers(t)
	r.answer("sacct --helpformat", Output{Stdout: []byte(golden(t, "sacct-helpformat-24.11.txt"))})
	r.answer("sacct --user", Output{})
	r.when = func(cmd Command) error {
		if strings.Contains(strings.Join(cmd.Args, " "), jobOf(3)) {
			return errLimit
		}
		return nil
	}
	var of []run.JobKey
	for i := range 9 {
		of = append(of, run.JobKey{Name: jobOf(i), User: "alice"})
	}
	jobs, err := c.Records(t.Context(), time.Unix(0, 0), of...)
	if err != nil || len(jobs) != 1 || jobs[0].Name != jobOf(3) || jobs[0].User != "alice" || jobs[0].Class != run.ClassUnread {
		t.Errorf("Records with too many jobs gives %s, %v, want alice's job, unread", jobsText(jobs...), err)
	}
}

// Usage covers only the runs' own jobs: an id that now belongs to another user's job, or that was never the run's, has
// none.
func TestUsageOfAllUsers(t *testing.T) {
	c, r := allUsers(t)
	r.answer("sacct --allusers", Output{Stdout: []byte(
		"7|100|5|00:01||1|alice\n7.batch|100|5|00:01|2K|1|\n8|100|5|00:01||1|bob\n9|100|5|00:01||1|\n")})
	list, err := c.Usage(t.Context(), time.Unix(0, 0), run.JobKey{ID: "7", User: "alice"}, run.JobKey{ID: "8", User: "alice"},
		run.JobKey{ID: "9", User: "alice"}, run.JobKey{ID: "1;2", User: "alice"})
	if err != nil || len(list) != 1 || list[0].JobID != "7" || list[0].User != "alice" || list[0].MaxRSSBytes != 2048 {
		t.Errorf("Usage of alice gives %d jobs, %v, want job 7 alone with 2048 bytes", len(list), err)
	}
	if args := r.last().Args; !slices.Contains(args, "--jobs=7,8,9") {
		t.Errorf("sacct was called with %q, want --jobs=7,8,9", args)
	}
	r.when = func(cmd Command) error {
		if slices.ContainsFunc(cmd.Args, func(a string) bool { return strings.HasPrefix(a, "--jobs=") && strings.Contains(a, "8") }) {
			return errLimit
		}
		return nil
	}
	if list, err = c.Usage(t.Context(), time.Unix(0, 0), run.JobKey{ID: "7", User: "alice"}, run.JobKey{ID: "8", User: "bob"}); err != nil ||
		len(list) != 1 {
		t.Errorf("Usage of two users gives %d jobs, %v, want one", len(list), err)
	}
	r.calls = nil
	if list, err = c.Usage(t.Context(), time.Unix(0, 0)); err != nil || list != nil || len(r.calls) > 0 {
		t.Errorf("Usage of no jobs gives %v %v after %d calls, want nothing and no call", list, err, len(r.calls))
	}
}
