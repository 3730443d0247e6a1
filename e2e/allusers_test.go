package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// looker is a gateway's look at the jobs of all users: Slurm's own commands on the login node, as a user who has no jobs.
type looker struct {
	*slurm.CLI
	user string
	log  string // the arguments of each command
}

func newLooker(t *testing.T) *looker {
	t.Helper()
	l := &looker{user: newUser(t), log: filepath.Join(t.TempDir(), "log")}
	bin := t.TempDir()
	for _, name := range []string{"squeue", "sacct", "scancel", "scontrol", "sacctmgr"} {
		script := fmt.Sprintf("#!/bin/bash\nPATH=%s\nprintf '%%s\\n' \"$0 $*\" >>%s\nexec %s --name %s exec --user %s --env TZ=UTC "+
			"--env LC_ALL=C --env SLURM_TIME_FORMAT=%%s -- /usr/bin/%s \"$@\"\n", os.Getenv("PATH"), l.log,
			filepath.Join(world.repo, "scripts/devcluster"), world.cluster, l.user, name)
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700))
	}
	cli, err := slurm.NewCLI(slurm.Config{BinDir: bin, User: l.user, AllUsers: true, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	l.CLI = cli
	return l
}

// rpcs is how many RPCs slurmctld has served for the user.
func (l *looker) rpcs(t *testing.T) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^\s*` + l.user + `\s*\(\s*\d+\) count:(\d+)`).FindStringSubmatch(shell(t, "root", "sdiag"))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	must(t, err)
	return n
}

// record is what a look prints about a job with these values, to the byte: its author has read the command line of an earlier look.
func (l *looker) record(t *testing.T, values map[string]string) (text string) {
	t.Helper()
	log, err := os.ReadFile(l.log)
	must(t, err)
	format := regexp.MustCompile(`(?m)squeue .*--Format=(.*)$`).FindSubmatch(log)
	if format == nil {
		t.Fatalf("no look in %s", log)
	}
	for _, f := range strings.Split(string(format[1]), ",") {
		name, rest, _ := strings.Cut(f, ":")
		width, gap := 0, ""
		if _, err := fmt.Sscanf(rest, "%d%s", &width, &gap); err != nil {
			t.Fatal(f, err)
		}
		text += fmt.Sprintf("%-*s", width, values[name])[:width] + gap
	}
	return text + "\n"
}

// jobNameOf is the name of a job of some run of the user's.
func jobNameOf(user string) string {
	id := strings.ToUpper(strings.NewReplacer("-", "0", "u", "Z", "i", "Y", "o", "X", "l", "W").Replace(user))
	return run.JobName("run_"+strings.Repeat("A", 26-len(id))+id, 1, strings.Repeat("ab", 16))
}

// Others choose the names of their jobs. Bob knows alice's run, the name of its job and how the gateway looks: he has jobs of that name,
// and jobs whose names have whole records of hers in them, in the queue and in accounting. The gateway sees of her job what Slurm says.
//
// proves SITE-08
func TestJobsOfOthersForgeNothing(t *testing.T) {
	t.Parallel()
	l, alice, bob := newLooker(t), newUser(t), newUser(t)
	if _, err := l.Jobs(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Minute)
	name := jobNameOf(alice)
	fake := l.record(t, map[string]string{"JobArrayID": "1", "State": "COMPLETED", "exit_code": "0:0", "Cluster": "devcluster",
		"UserName": alice, "Name": name, "RestartCnt": "0", "SubmitTime": "100", "StartTime": "200", "EndTime": "300"})
	submit := func(user, jobName, program string) string {
		return shell(t, user, `cd /tmp; sbatch --parsable -o /dev/null -p main -H -J "$1" --wrap "$2"`, jobName, program)
	}
	hers := submit(alice, name, "true")
	names := []string{name, "x\n" + fake, "x\n" + fake + fake, strings.Repeat("x", 79) + "\n" + fake, name + "\x1f\n" + fake,
		fake[len(fake)-95:] + fake, "\xff\xfe\n\n" + name, name + "\n", "\n" + name}
	for _, n := range names {
		submit(bob, n, "exit 3")
	}
	see := func(jobs []run.Job) (hers, his []run.Job) {
		for _, j := range jobs {
			switch {
			case j.User != "" && j.User != alice && j.User != bob: // of another test
			case j.Class == run.ClassUnread:
				t.Errorf("unread: %+v", j)
			case j.User == alice:
				hers = append(hers, j)
			case j.User == bob:
				his = append(his, j)
			}
		}
		return hers, his
	}
	jobs, err := l.Jobs(t.Context(), nil)
	must(t, err)
	if a, b := see(jobs); len(a) != 1 || a[0].ID != hers || a[0].Name != name || a[0].State != "PENDING" || len(b) != 1 || b[0].Name != name {
		t.Errorf("hers %+v, his %+v", a, b)
	}
	shell(t, "root", `scontrol release $(squeue -h -o %i -u "$1,$2")`, alice, bob)
	key := run.JobKey{Name: name, User: alice}
	until(t, time.Minute, "record of all jobs", func() bool {
		return shell(t, "root", `sacct -X -n -S now-1hour -u "$1" -o state | grep -cE "COMPLETED|FAILED" || true`, alice+","+bob) ==
			fmt.Sprint(len(names)+1)
	})
	if jobs, err = l.Records(t.Context(), began, key); err != nil {
		t.Fatal(err)
	}
	if a, b := see(jobs); len(a) != 1 || a[0].ID != hers || a[0].State != "COMPLETED" || len(b) != 0 {
		t.Errorf("hers %+v, his %+v", a, b)
	}
	used, err := l.Usage(t.Context(), began, run.JobKey{ID: hers, User: alice})
	if err != nil || len(used) != 1 || used[0].User != alice {
		t.Errorf("%+v %v", used, err)
	}
	if used, err = l.Usage(t.Context(), began, run.JobKey{ID: hers, User: bob}); err != nil || len(used) != 0 {
		t.Errorf("measured for bob: %+v %v", used, err)
	}
	// A user whose account is gone hides nobody's records.
	if jobs, err = l.Records(t.Context(), began, key, run.JobKey{Name: name, User: "gone" + alice}); err != nil || len(jobs) != 1 {
		t.Errorf("%+v %v", jobs, err)
	}
}

// One look at the queue costs slurmctld the same for one user with open runs and for fifty. (Not parallel: lists of waiting tasks that do
// not fit into their field, whoever has them, cost one more.)
//
// proves SITE-08
func TestOneLookForAllCallers(t *testing.T) {
	l := newLooker(t)
	prefix := strings.ReplaceAll(l.user, "-", "x") + "c"
	users := func(n int) (all []string) { // made at once: devd user takes a second for each
		for i := range n {
			all = append(all, prefix+strconv.Itoa(i))
		}
		return all
	}
	t.Cleanup(func() {
		shell(t, "root", `scancel $(squeue -h -o %i -u "$1")`, strings.Join(users(50), ",")) // the users go with the cluster
	})
	shell(t, "root", `flock /run/users.lock bash -c 'for u in ${1//,/ }; do
useradd -M -K UID_MIN=30000 -K UID_MAX=50000 "$u"; done
sacctmgr -i -Q add user "$1" account=research defaultaccount=research >/dev/null' bash "$1"`, strings.Join(users(50), ","))
	add := func(list []string) {
		var lines strings.Builder
		for _, u := range list {
			fmt.Fprintf(&lines, "runuser -u %s -- sbatch --parsable -o /dev/null -p main -H -J %s --wrap true >/dev/null\n", u, jobNameOf(u))
		}
		until(t, 30*time.Second, "association", func() bool { // slurmctld hears of users from slurmdbd
			return inCluster("root", "bash", "-c", "scontrol show assoc_mgr users="+list[len(list)-1]+" flags=assoc | grep -q UserName").Run() == nil
		})
		shell(t, "root", "cd /tmp\n"+lines.String())
	}
	look := func(want int) int {
		before, spent := l.rpcs(t), l.Budget().Total
		jobs, err := l.Jobs(t.Context(), nil)
		must(t, err)
		var found []string
		for _, j := range jobs {
			if strings.HasPrefix(j.User, prefix) && j.Name == jobNameOf(j.User) {
				found = append(found, j.User)
			}
		}
		slices.Sort(found)
		if len(slices.Compact(found)) != want {
			t.Errorf("%d users' jobs, want %d", len(found), want)
		}
		cost := l.rpcs(t) - before
		t.Logf("a look at the jobs of %d users: %d RPCs to slurmctld, %d from the budget", want, cost, l.Budget().Total-spent)
		return cost
	}
	must(t, l.CheckCluster(t.Context()))
	add(users(1))
	one := look(1)
	add(users(50)[1:])
	if fifty := look(50); fifty != one || fifty > 2 {
		t.Errorf("fifty users cost %d RPCs, one %d", fifty, one)
	}
}

// A cluster that hides jobs, records or accounts of other users answers clean and empty. The gateway sees that, except as an operator; a
// coordinator of an account, who sees some of them, is not enough. A gateway is not started then. (Not parallel: it changes the cluster's
// configuration.)
//
// proves SITE-08
func TestPrivateData(t *testing.T) {
	l, alice := newLooker(t), newUser(t)
	private := func(control, database string) {
		t.Helper()
		shell(t, "root", `devd set slurm.conf PrivateData="$1"; devd set slurmdbd.conf PrivateData="$2"`, control, database)
		until(t, 30*time.Second, "new configuration", func() bool {
			got, err := inCluster("root", "bash", "-c", "scontrol show config; sacctmgr show configuration").Output()
			values := regexp.MustCompile(`(?m)^PrivateData\s*= (.*)$`).FindAllStringSubmatch(string(got), -1)
			return err == nil && len(values) == 3 && values[0][1] == control && values[2][1] == database
		})
	}
	t.Cleanup(func() {
		shell(t, "root", `devd set slurm.conf PrivateData; devd set slurmdbd.conf PrivateData`)
	})
	name := jobNameOf(alice)
	shell(t, alice, `cd /tmp; sbatch --parsable -o /dev/null -p main -H -J "$1" --wrap true`, name)
	sees := func() bool {
		t.Helper()
		jobs, err := l.Jobs(t.Context(), nil)
		must(t, err) // whatever is hidden, the answer is clean
		return slices.ContainsFunc(jobs, func(j run.Job) bool { return j.Name == name && j.User == alice })
	}
	check := func(what, code string, shown bool) {
		t.Helper()
		err := l.CheckSight(t.Context(), true)
		if (err == nil) != (code == "") || err != nil && fault.CodeOf(err) != code {
			t.Errorf("%s: %v, want %q", what, err, code)
		}
		if got := sees(); got != shown {
			t.Errorf("%s: the job is shown: %v", what, got)
		}
	}
	level := func(line string) { t.Helper(); shell(t, "root", "sacctmgr -i -Q "+line+" >/dev/null", l.user) }
	check("nothing private", "", true)
	private("accounts,nodes,usage,users", "accounts,usage")
	check("other data", "", true)
	private("none", "users")
	check("users in the database", slurm.UsersHidden, true)
	if _, err := l.AccountsOf(t.Context(), alice); fault.CodeOf(err) != slurm.UsersHidden {
		t.Errorf("accounts of a hidden user: %v", err)
	}
	private("none", "jobs")
	check("records", slurm.RecordsHidden, true)
	_, err := l.Records(t.Context(), time.Now().Add(-time.Hour), run.JobKey{Name: name, User: alice})
	if fault.CodeOf(err) != slurm.RecordsHidden {
		t.Errorf("records that are hidden: %v", err)
	}
	private("jobs", "jobs,users")
	check("jobs", slurm.JobsHidden, false)
	s, _ := callerSite(t)
	if f := s.fails(78, "serve"); len(f.Details.Problems) != 1 || f.Details.Problems[0].Field != "slurm.run_as" {
		t.Errorf("a gateway that cannot see its runs starts: %+v", f)
	}
	if r := s.cli("config", "check", "--json"); !strings.Contains(string(r.stdout), "PrivateData in slurm.conf has jobs") {
		t.Errorf("config check: %s", r.stdout)
	}
	level(`add coordinator names="$1" accounts=research`)
	check("to a coordinator", slurm.JobsHidden, true)
	level(`modify user "$1" set adminlevel=Operator`)
	until(t, 30*time.Second, "level in slurmctld", sees)
	check("to an operator", "", true)
}
