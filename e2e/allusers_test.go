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

// looker reads the jobs of all users with Slurm's own commands on the login node, as a user who has no jobs.
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
		// Programs of Slurm are started with a bare environment.
		script := fmt.Sprintf("#!/bin/bash\nPATH=%s\nexport SLURMGATE_DEVCLUSTER_DIR=%s\nprintf '%%s\\n' \"$0 $*\" >>%s\n"+
			"exec %s --name %s exec --user %s --env TZ=UTC --env LC_ALL=C --env SLURM_TIME_FORMAT=%%s -- /usr/bin/%s \"$@\"\n",
			os.Getenv("PATH"), os.Getenv("SLURMGATE_DEVCLUSTER_DIR"), l.log,
			filepath.Join(world.repo, "scripts/devcluster"), world.cluster, l.user, name)
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700))
	}
	cli, err := slurm.NewCLI(slurm.Config{BinDir: bin, User: l.user, AllUsers: true, Cluster: "devcluster", RPCPerMinute: 1e6})
	must(t, err)
	l.CLI = cli
	return l
}

// rpcs counts the RPCs that slurmctld has served for the user. slurmctld counts one after its answer, so this reads until nothing is added.
func (l *looker) rpcs(t *testing.T) int {
	t.Helper()
	for n := l.readRPCs(t); ; {
		before := n
		if n = l.readRPCs(t); n == before {
			return n
		}
	}
}

func (l *looker) readRPCs(t *testing.T) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^\s*` + l.user + `\s*\(\s*\d+\) count:(\d+)`).FindStringSubmatch(shell(t, "root", "sdiag"))
	if found == nil {
		return 0
	}
	n := value(strconv.Atoi(found[1]))(t)
	return n
}

// record builds the bytes that the read command prints for a job with these values: an attacker has read the command
// line of an earlier call.
func (l *looker) record(t *testing.T, values map[string]string) (text string) {
	t.Helper()
	log := value(os.ReadFile(l.log))(t)
	format := regexp.MustCompile(`(?m)squeue .*--Format=(.*)$`).FindSubmatch(log)
	if format == nil {
		t.Fatalf("no read of the queue in %s", log)
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

// jobNameOf returns a job name for a run of the user.
func jobNameOf(user string) string {
	id := strings.ToUpper(strings.NewReplacer("-", "0", "u", "Z", "i", "Y", "o", "X", "l", "W").Replace(user))
	return run.JobName("run_"+strings.Repeat("A", 26-len(id))+id, 1, strings.Repeat("ab", 16))
}

// longestName is the longest job name in bytes that sbatch accepts (Slurm's _validate_job_desc).
const longestName = 1024

// Users choose the names of their jobs. Bob knows alice's run, the name of its job and the gateway's commands. He
// submits jobs with that name, and jobs whose names contain whole records of hers, in the queue and in accounting. The
// gateway still reads of her job what Slurm reports.
//
// proves SITE-08
// short: a site's own Slurm
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
		submit(bob, n[:min(len(n), longestName)], "exit 3")
	}
	see := func(jobs []run.Job) (hers, his []run.Job) {
		for _, j := range jobs {
			switch {
			case j.User != "" && j.User != alice && j.User != bob: // of another test
			case j.Class == run.ClassUnread:
				t.Errorf("the read of all jobs cannot parse %+v, want every record read", j)
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
		t.Errorf("in the queue are %+v of alice and %+v of bob, want one waiting job of each, hers with the id %s",
			a, b, hers)
	}
	shell(t, "root", `scontrol release $(squeue -h -o %i -u "$1,$2")`, alice, bob)
	key := run.JobKey{Name: name, User: alice}
	until(t, "record of all jobs", func() bool {
		return shell(t, "root", `sacct -X -n -S now-1hour -u "$1" -o state | grep -cE "COMPLETED|FAILED" || true`, alice+","+bob) ==
			fmt.Sprint(len(names)+1)
	})
	if jobs, err = l.Records(t.Context(), began, key); err != nil {
		t.Fatal(err)
	}
	if a, b := see(jobs); len(a) != 1 || a[0].ID != hers || a[0].State != "COMPLETED" || len(b) != 0 {
		t.Errorf("in accounting are %+v of alice and %+v of bob, want her completed job %s alone", a, b, hers)
	}
	used, err := l.Usage(t.Context(), began, run.JobKey{ID: hers, User: alice})
	if err != nil || len(used) != 1 || used[0].User != alice {
		t.Errorf("the usage of alice's job is %+v (%v), want one of hers", used, err)
	}
	if used, err = l.Usage(t.Context(), began, run.JobKey{ID: hers, User: bob}); err != nil || len(used) != 0 {
		t.Errorf("the usage of alice's job, requested as bob's, is %+v (%v), want nothing", used, err)
	}
	// A user whose account was deleted hides no other user's records.
	if jobs, err = l.Records(t.Context(), began, key, run.JobKey{Name: name, User: "gone" + alice}); err != nil || len(jobs) != 1 {
		t.Errorf("with a deleted user among the keys the records are %+v (%v), want alice's alone", jobs, err)
	}
}

// One read of the queue costs slurmctld the same for one user with open runs and for fifty. (Not parallel: lists of
// waiting tasks too long for their field, of any user, cost one more.)
//
// proves SITE-08
// short: calls to Slurm do not grow
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
		until(t, "association", func() bool { // slurmctld learns of users from slurmdbd
			return inCluster("root", "bash", "-c", "scontrol show assoc_mgr users="+list[len(list)-1]+" flags=assoc | grep -q UserName").Run() == nil
		})
		shell(t, "root", "cd /tmp\n"+lines.String())
	}
	look := func(want int) int {
		before, spent := l.rpcs(t), l.Budget().Total
		jobs := value(l.Jobs(t.Context(), nil))(t)
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
		t.Logf("a read of the jobs of %d users: %d RPCs to slurmctld, %d from the budget", want, cost, l.Budget().Total-spent)
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
		until(t, "new configuration", func() bool {
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
		jobs := value(l.Jobs(t.Context(), nil))(t) // whatever is hidden, the answer is clean
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
		t.Errorf("serve on a cluster that hides jobs fails with %v, want a problem at slurm.run_as", f)
	}
	if r := s.cli("config", "check", "--json"); !strings.Contains(string(r.stdout), "PrivateData in slurm.conf has jobs") {
		t.Errorf("config check: %s", r.stdout)
	}
	level(`add coordinator names="$1" accounts=research`)
	until(t, "coordinator in slurmctld", sees)
	check("to a coordinator", slurm.JobsHidden, true)
	level(`modify user "$1" set adminlevel=Operator`)
	until(t, "level in slurmctld", sees)
	check("to an operator", "", true)
}
