package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slurmgate/slurm"
)

// Cases with mates: k runs that are equal in all that Slurm is sent of them wait behind a drain and then leave
// together, as one job array. Faults of the case hit the whole array. The other runs, its mates, end independently:
// some succeed, some fail with their program, some are cancelled, some have their task started again by Slurm.

// arrayPlaces are the side effects that only arrays pass, with a scenario that leads there.
var arrayPlaces = []struct{ name, in string }{
	{openTogether, "plain"}, {"Store.ApplyAll.run.intent", "plain"}, {"Store.ApplyAll.run.receipt", "plain"},
	{"Store.ApplyAll.run.unconfirmed", "sbatch_loses"},
	{"Store.ApplyAll.run.unconfirmed", "sbatch_fails"}, {"Store.ApplyAll.run.deferred", "sbatch_unreachable"},
	{"Store.ApplyAll.run.intent", "cancel_pending"}, {"Store.ApplyAll.run.receipt", "tool_fails"},
	{"Store.ApplyAll.run.pending", "cancel_pending"}, {"Store.ApplyAll.run.running", "plain"},
}

// parseSizes reads a list of numbers of runs.
func parseSizes(text string) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		k, err := strconv.Atoi(word)
		if err != nil || k < 1 || k > 100 {
			return nil, fmt.Errorf("%q is no number of runs from 1 to 100", word)
		}
		list = append(list, k)
	}
	return list, nil
}

// withMates gives cases mates: each number of runs to as many cases of each transport. Nothing else of a case
// changes, but every second one with mates has a seam of arrays instead.
func withMates(seed uint64, list []testCase, sizes []int, transports int) []testCase {
	next := 0
	for i := range list {
		c := &list[i]
		if c.carrier == caller { // runs of users are sent one by one
			continue
		}
		if c.k = sizes[c.n/transports%len(sizes)]; c.k == 1 {
			continue
		}
		c.takeover = false // a verb that is the gateway sends its own work, and ends
		r := newSource(seed+1, c.n)
		if len(c.flags) > 0 || c.block >= 0 {
			continue
		}
		if len(c.scenario.flags) == 0 && r.chance(30) {
			c.flags = []commandFault{{"squeue", "fold", r.between(4*time.Second, 8*time.Second)}}
		}
		if len(c.starts) == 0 || r.chance(50) {
			continue
		}
		at := arrayPlaces[next%len(arrayPlaces)]
		s := seam{name: at.name, fail: r.chance(25), most: 1}
		if !s.fail {
			s.name += []string{".before", ".after"}[next/len(arrayPlaces)%2]
			next++
		}
		c.scenario = scenarioNamed(at.in)
		c.starts = append([]start{s.start(r)}, c.starts[1:]...)
	}
	return list
}

// mateOf returns the case of the i-th mate, in addition to the faults of all of them.
func mateOf(c testCase, i int) testCase {
	sc := c.scenario
	c.flags, c.far, c.group, c.killSbatch = nil, far{}, nil, -1
	sc.flags, sc.fail, sc.foreign, sc.retry, sc.double, sc.suspend, sc.limit = nil, "", false, false, false, 0, 0
	if sc.cancel == "soon" || sc.cancel == "running" {
		sc.cancel, sc.work = "", max(sc.work, time.Second) // a program that works until it is stopped would never end
	}
	sc.end = append(sc.end[:len(sc.end):len(sc.end)], endOK, endCancelled)
	if sc.partition != "" || sc.qos != "" { // none of them ever starts
		c.scenario = sc
		return c
	}
	sc.exit, sc.work = 0, min(sc.work, 3*time.Second)
	sc.end = []string{endOK}
	switch i % 4 {
	case 1:
		sc.exit, sc.end = 7, []string{endTool}
	case 2:
		sc.cancel, sc.work, sc.end = "running", untilStopped, []string{endCancelled}
	case 3:
		sc.requeue, sc.work = true, 8*time.Second
	}
	c.scenario = sc
	return c
}

// addMates makes the mates of a case.
func (t *trial) addMates() error {
	for i := range max(0, t.k-1) {
		c := mateOf(*t.testCase, i)
		m := &trial{testCase: &c, s: t.s, log: t.log, token: fmt.Sprintf("%s-mate%d", t.token, i),
			observedBefore: t.observedBefore, isTwin: true,
			over: make(chan struct{})}
		var err error
		if m.file, err = m.identify(); err != nil {
			return err
		}
		t.mates = append(t.mates, m)
	}
	return nil
}

// others returns the runs that a case has besides its own.
func (t *trial) others() []*trial {
	if t.twin != nil {
		return []*trial{t.twin}
	}
	return t.mates
}

// openTogether is the place at which folders of several runs are made in one call, which happens only where nothing
// holds the runs back.
const openTogether = "Workspace.OpenTogether"

// drained reports whether the runs of a case wait for each other behind a drain; else they meet on their way.
func (t *trial) drained() bool {
	return len(t.mates) > 0 && (len(t.starts) == 0 || !strings.HasPrefix(t.starts[0].kill+t.starts[0].fail, openTogether))
}

// assemble submits all runs of a case while the gateway sends nothing, or in parallel.
func (t *trial) assemble(ctx context.Context, file string) {
	if len(t.mates) == 0 {
		return
	}
	t.begin()
	defer t.end()
	if t.drained() {
		t.insist(ctx, "drain", "--queue", "--reason", "company")
	}
	var asking sync.WaitGroup
	for _, m := range t.mates {
		asking.Go(func() { m.submit(ctx, m.file) })
	}
	asking.Go(func() { t.submit(ctx, file) })
	asking.Wait()
}

// depart lets them go.
func (t *trial) depart(ctx context.Context) {
	if t.drained() {
		t.insist(ctx, "resume")
	}
}

// insist calls a verb until it is answered.
func (t *trial) insist(ctx context.Context, args ...string) { t.insistOn(ctx, nil, args...) }

// insistOn calls a verb until it is answered, and decodes the answer.
func (t *trial) insistOn(ctx context.Context, out any, args ...string) {
	for ctx.Err() == nil && !t.overdue() {
		if !t.awaitGateway(ctx) {
			continue
		}
		err := t.call(ctx, out, args...)
		if err == nil {
			return
		}
		if !t.retryable(err) {
			t.find("stuck", "%s was refused: %v", args[0], err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// startAgain makes Slurm start the run's job once more, as an admin does.
func (t *trial) startAgain(ctx context.Context, job string) {
	const script = `scontrol update jobid="$1" requeue=1 && scontrol requeue "$1" || exit 0
for i in {1..100}; do
  [[ $(squeue -h -j "$1" -o %r) == BeginTime ]] && scontrol update jobid="$1" starttime=now && break
  sleep 0.1
done; exit 0`
	t.begin()
	defer t.end()
	r, err := t.s.run(ctx, "root", nil, "bash", "-c", script, "bash", job)
	fmt.Fprintf(t.log, "=== %s requeue of %s: %s%s%v\n", time.Now().Format("15:04:05.000"), job, r.stdout, r.stderr, err)
}

// suspend makes Slurm suspend the run's job for longer than its program may run, and resume it.
func (t *trial) suspend(ctx context.Context, job string) {
	t.begin()
	defer t.end()
	r, err := t.s.run(ctx, "root", nil, "scontrol", "suspend", job)
	fmt.Fprintf(t.log, "=== %s suspend of %s: %s%s%v\n", time.Now().Format("15:04:05.000"), job, r.stdout, r.stderr, err)
	if err != nil || r.exit != 0 {
		return // its job has ended, or slurmctld does not answer
	}
	t.paused++
	sleep(ctx, t.scenario.suspend)
	for ctx.Err() == nil {
		if r, err := t.s.run(ctx, "root", nil, "scontrol", "resume", job); err == nil && (r.exit == 0 ||
			!strings.Contains(r.stderr, "Unable to contact") && !strings.Contains(r.stderr, "timed out")) {
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// ofSbatch returns a text that the command line of an sbatch of the case contains.
func (t *trial) ofSbatch() string {
	if len(t.mates) > 0 {
		return t.s.runs() + "/"
	}
	return "sg-" + t.runID + "-a1-"
}

// tasksIn counts the jobs of sacct's output that are, or contain, the task.
func tasksIn(ids []string, task int) (n int) {
	for _, id := range ids {
		_, list, ok := strings.Cut(id, "_")
		tasks, read := slurm.TasksOf(strings.Trim(list, "[]"))
		for _, one := range tasks {
			if ok && read && one == task {
				n++
			}
		}
	}
	return n
}

// arrayCounter counts, over all cases, the runs with mates and their endings.
type arrayCounter struct {
	runs, tasks, again int // tasks: those that an array had at last
	arrays             map[string]bool
	ends               map[string]int
}

func (c *arrayCounter) add(t *trial) {
	if t.k < 2 {
		return
	}
	if c.arrays == nil {
		c.arrays, c.ends = map[string]bool{}, map[string]int{}
	}
	c.runs++
	c.ends[t.ended]++
	if t.again {
		c.again++
	}
	if t.array != "" {
		c.tasks++
		c.arrays[t.array] = true
	}
}

func (c *arrayCounter) String() string {
	if c.runs == 0 {
		return ""
	}
	text := fmt.Sprintf("arrays: %d runs with company, %d of them tasks of %d arrays, %d started again by Slurm;", c.runs, c.tasks,
		len(c.arrays), c.again)
	for _, end := range slices.Sorted(maps.Keys(c.ends)) {
		text += fmt.Sprintf(" %s %d", end, c.ends[end])
	}
	return text
}
