package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"
)

// source is the randomness of one case: seed and number decide everything.
type source struct{ *rand.Rand }

func newSource(seed uint64, n int) source {
	return source{rand.New(rand.NewPCG(seed, uint64(n)))}
}

func (r source) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(r.Int64N(int64(high-low)))).Round(time.Millisecond)
}

func (r source) chance(percent int) bool { return r.IntN(100) < percent }

// testCase is one case, fully determined by the campaign's seed and its number.
type testCase struct {
	n            int
	scenario     scenario
	starts       []start
	flags        []commandFault // besides those of the scenario
	killSbatch   time.Duration  // after sbatch began; negative: not at all
	sbatchSignal syscall.Signal
	cancelAfter  time.Duration // for a scenario that cancels soon
	takeover     bool          // a verb that finds no gateway becomes it
	brute        bool          // the gateway's last life ends by SIGKILL
	may          []string      // ends besides those of the scenario
	block        int           // of the outage; -1: none
	outage       outage
	group        *group // set when it runs
	carrier      carrier
	far          far
	k            int // runs that leave together; 0 and 1: it is alone
	rename       renaming
	batch        *batchPlan
}

func (c testCase) String() string {
	parts := []string{c.scenario.name}
	if c.batch != nil {
		parts[0] = c.batch.String()
	}
	for i, s := range c.starts {
		parts = append(parts, fmt.Sprintf("life %d %s", i+1, s))
	}
	for _, f := range c.flags {
		parts = append(parts, fmt.Sprintf("%s %s for %s", f.program, f.line, f.lift))
	}
	if c.killSbatch >= 0 {
		parts = append(parts, fmt.Sprintf("sbatch gets %s after %s", c.sbatchSignal, c.killSbatch))
	}
	if c.scenario.cancel == "soon" {
		parts = append(parts, fmt.Sprintf("cancelled after %s", c.cancelAfter))
	}
	if c.block >= 0 {
		parts = append(parts, c.outage.String())
	}
	if c.takeover {
		parts = append(parts, "verbs may be the gateway")
	}
	if c.brute {
		parts = append(parts, "killed at the end")
	}
	if c.carrier != cli && c.carrier != "" {
		parts = append(parts, "over "+c.carrier.title())
	}
	if c.k > 1 {
		parts = append(parts, fmt.Sprintf("%d runs together", c.k))
	}
	if c.rename != "" {
		parts = append(parts, "jobs renamed "+string(c.rename))
	}
	if text := c.far.String(); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// Cases come in blocks of this many, the last few of them a group that goes through one outage.
const (
	blockSize = 30
	groupSize = 4
)

// cases draws the first n cases. More cases never change the earlier ones.
func cases(seed uint64, n int) []testCase {
	d := seamQueue{seed: seed}
	var out []testCase
	for i := range n {
		r := newSource(seed, i)
		c := testCase{n: i, killSbatch: -1, block: -1}
		switch in := i % blockSize; {
		case in >= blockSize-groupSize:
			c.block = i / blockSize
			c.outage = drawOutage(newSource(seed, -1-c.block))
			c.inOutage(r)
		case in%8 == 7 || d.round > 1 && in%8 == 3: // fewer while some seam has not had its turn
			c.ofProcesses(r)
		default:
			c.ofSeams(r, &d)
		}
		c.cancelAfter = r.between(0, 5*time.Second)
		c.brute = r.chance(50)
		c.takeover = len(c.starts) == 0 && r.chance(50)
		if len(c.starts) == 0 && c.block < 0 && r.chance(15) {
			c.starts = append(c.starts, start{after: r.between(0, 4*time.Second), term: r.chance(30), pause: r.pause()})
		}
		out = append(out, c)
	}
	return out
}

// again deals one more case to each seam, numbered from n on; with turn the scenario changes.
func again(seed uint64, n, turn int, missed []seam) []testCase {
	var out []testCase
	for i, s := range missed {
		r := newSource(seed, n+i)
		c := testCase{n: n + i, killSbatch: -1, block: -1, scenario: scenarioNamed(s.in[turn%len(s.in)]), cancelAfter: time.Second}
		s.most = 1
		c.starts = []start{s.start(r)}
		c.starts[0].fail = c.scenario.fail
		out = append(out, c)
	}
	return out
}

// pause draws the time until the gateway is started again: seldom so long that Slurm has forgotten the job by then.
func (r source) pause() time.Duration {
	if r.chance(15) {
		return r.between(5*time.Second, 12*time.Second)
	}
	return r.between(0, 1500*time.Millisecond)
}

// ofSeams makes one gateway after the other die at a named seam, or get an error after its effect.
func (c *testCase) ofSeams(r source, d *seamQueue) {
	first := d.take()
	in := slices.Clone(first.in)
	r.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	c.scenario = scenarioNamed(in[0])
	c.starts = []start{first.start(r)}
	for _, name := range in {
		if second, ok := d.also(name, first); ok {
			c.scenario = scenarioNamed(name)
			next := second.start(r)
			if first.fail && !second.fail { // a failed call ends no life
				next.fail, c.starts = c.starts[0].fail, nil
			}
			c.starts = append(c.starts, next)
			break
		}
	}
	for i := range c.starts {
		if c.starts[i].fail == "" {
			c.starts[i].fail = c.scenario.fail
		}
	}
}

func (s seam) start(r source) start {
	st := start{pause: r.pause()}
	name := s.name
	if n := s.nth(r); n > 1 {
		name += fmt.Sprintf("#%d", n)
	}
	if s.fail {
		st.fail = name
	} else {
		st.kill = name
	}
	return st
}

// ofProcesses: what Slurm's commands and the processes around them do.
func (c *testCase) ofProcesses(r source) {
	c.scenario = scenarioNamed([]string{"plain", "plain", "tool_fails", "double", "cancel_soon"}[r.IntN(5)])
	once := func(program, line string) { c.flags = append(c.flags, commandFault{program, line, 0}) }
	for_ := func(program, line string) {
		c.flags = append(c.flags, commandFault{program, line, r.between(2*time.Second, 8*time.Second)})
	}
	switch r.IntN(15) {
	case 0: // killed somewhere on its way
		c.killSbatch, c.sbatchSignal = r.between(0, 60*time.Millisecond), []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[r.IntN(2)]
	case 1: // surely before it submits
		c.killSbatch, c.sbatchSignal = r.between(0, 500*time.Millisecond), syscall.SIGKILL
		once("sbatch", "slow 1 1")
	case 2: // surely after
		c.killSbatch, c.sbatchSignal = r.between(300*time.Millisecond, 900*time.Millisecond), syscall.SIGKILL
		once("sbatch", "linger 1.5 1")
	case 3: // the gateway dies, sbatch continues
		once("sbatch", fmt.Sprintf("%s %d 1", []string{"slow", "linger"}[r.IntN(2)], 1+r.IntN(3)))
		c.starts = append(c.starts, start{after: r.between(400*time.Millisecond, 1500*time.Millisecond),
			pause: r.between(0, 500*time.Millisecond)})
	case 4:
		once("sbatch", fmt.Sprintf("lost %d 1", r.IntN(2)))
	case 5:
		once("sbatch", fmt.Sprintf("garbage %d 1", r.IntN(2)))
	case 6:
		once("sbatch", fmt.Sprintf("cut %d 1", r.IntN(2)))
	case 7:
		once("sbatch", "complain - 1")
	case 8:
		for_("squeue", []string{"hang", "lie", "nothing", "fail", "strange"}[r.IntN(5)])
		if r.chance(10) { // longer than the gateway waits for it
			c.flags[0].line = "stuck 300"
		}
	case 9:
		for_("squeue", fmt.Sprintf("half %d", r.IntN(100)))
	case 10:
		for_("sacct", []string{"hang", "lie", "nothing", "fail"}[r.IntN(4)])
		for_("squeue", []string{"lie", "nothing"}[r.IntN(2)])
	case 11:
		once("sbatch", fmt.Sprintf("lost %d 1", r.IntN(2)))
		for_("squeue", []string{"hang", "lie", "nothing", "fail", "half 50"}[r.IntN(5)])
		for_("sacct", []string{"hang", "lie", "nothing", "fail", "half 50"}[r.IntN(5)])
	case 12:
		c.scenario = scenarioNamed("cancel_soon")
		for_("scancel", []string{"hang", "fail"}[r.IntN(2)])
	case 13:
		c.scenario = scenarioNamed("suspended")
	case 14: // no longer than the gateway waits for it, now and then
		if c.scenario = scenarioNamed("hung"); r.chance(60) {
			c.scenario.flags = []commandFault{{"sbatch", "stuck 20 1", 20 * time.Second}}
		}
	}
}

// inOutage: the whole cluster has a fault, and perhaps the gateway dies on top of it.
func (c *testCase) inOutage(r source) {
	c.scenario = scenarioNamed([]string{"plain", "plain", "tool_fails", "cancel_soon"}[r.IntN(4)])
	if c.outage.when != "before" {
		c.scenario.work += r.between(0, 4*time.Second)
	}
	if r.chance(30) {
		c.starts = append(c.starts, start{after: r.between(500*time.Millisecond, 8*time.Second), pause: r.pause()})
	}
	c.may = []string{endAbsent, endLost, endBoot, endNode, endProlog}
	if c.outage.forgets {
		// A job forgotten while it runs may be killed, and one that gets the id of a forgotten one that still runs is cancelled, by
		// Slurm itself.
		c.may = append(c.may, endCancelled, endTool)
	}
}
