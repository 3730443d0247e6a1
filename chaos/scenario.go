package main

import "time"

// commandFault makes one of Slurm's commands misbehave: see wrapper.sh. CLAIM in its line is replaced by the path of
// the first attempt's claim.
type commandFault struct {
	program string
	line    string
	lift    time.Duration // after the submission began; 0: it limits itself by the number of calls
}

// scenario describes a submission and its faults, except the gateway's deaths. The same seams are passed in every run
// of a scenario, so a seam is reached by naming a scenario that leads there.
type scenario struct {
	name      string
	flags     []commandFault
	cancel    string // when the run is cancelled: "", "pending", "running", "soon" (at a random moment)
	partition string // main when empty; nothing in partition big ever starts
	qos       string
	work      time.Duration
	exit      int
	foreign   bool          // the attempt's folder is there already, with a token this ledger does not know
	retry     bool          // once it has ended
	requeue   bool          // once it runs
	suspend   time.Duration // for so long, once it runs
	limit     int           // seconds of the program; 0: enough
	fail      string        // a place that fails in the first life, which the scenario needs
	double    bool          // two callers submit the same plan at once
	end       []string
}

// How a run may end: its state, with the reason where the state alone is not enough.
const (
	endOK        = "succeeded"
	endTool      = "failed:tool_failed"
	endRejected  = "failed:rejected"
	endCancelled = "cancelled"
	endAbsent    = "failed:absent"
	endLost      = "failed:lost"
	endBoot      = "failed:boot_fail"
	endNode      = "failed:node_fail"
	endProlog    = "failed:prolog_failed"
)

var scenarios = []scenario{
	{name: "plain", work: 1500 * time.Millisecond, end: []string{endOK}},
	{name: "tool_fails", work: 500 * time.Millisecond, exit: 7, end: []string{endTool}},
	{name: "double", work: 200 * time.Millisecond, double: true, end: []string{endOK}},
	{name: "cancel_soon", work: 2 * time.Second, cancel: "soon", end: []string{endCancelled, endOK}},
	{name: "cancel_running", work: untilStopped, cancel: "running", end: []string{endCancelled}},
	{name: "cancel_pending", partition: "big", cancel: "pending", end: []string{endCancelled}},
	{name: "rejected", qos: "nosuch", end: []string{endRejected}}, // a refusal that slurmrestd names as sbatch does
	{name: "sbatch_fails", flags: []commandFault{{"sbatch", "nothing - 1", 0}}, end: []string{endOK}},
	{name: "sbatch_unreachable", flags: []commandFault{{"sbatch", "unreachable - 1", 0}}, end: []string{endOK}},
	{name: "sbatch_loses", work: 1500 * time.Millisecond, flags: []commandFault{{"sbatch", "lost 1 1", 0}}, end: []string{endOK}},
	{name: "sbatch_twice", work: time.Second, flags: []commandFault{{"sbatch", "two - 1", 0}}, end: []string{endOK}},
	{name: "sbatch_twice_loses", work: 3 * time.Second, flags: []commandFault{{"sbatch", "twolost - 1", 0}}, end: []string{endOK}},
	{name: "hidden", work: 8 * time.Second, flags: []commandFault{{"sbatch", "lost 1 1", 0}, {"squeue", "hide CLAIM", 7 * time.Second},
		{"sacct", "hide CLAIM", 7 * time.Second}}, end: []string{endOK}},
	{name: "vanishes", work: 8 * time.Second, flags: []commandFault{{"squeue", "nothing", 7 * time.Second},
		{"sacct", "nothing", 7 * time.Second}}, end: []string{endOK}},
	{name: "completing", work: 3 * time.Second, flags: []commandFault{{"squeue", "completing", 4 * time.Second}}, end: []string{endOK}},
	{name: "suspended", work: 2 * time.Second, limit: 6, suspend: 8 * time.Second, end: []string{endOK}},
	{name: "hung", flags: []commandFault{{"sbatch", "stuck 150 1", 150 * time.Second}}, end: []string{endOK}},
	{name: outlives, work: 75 * time.Second, end: []string{endOK}},
	{name: "retry", exit: 7, retry: true, end: []string{endTool}},
	{name: "staging_waits", fail: "Workspace.StageInputs", end: []string{endOK}},
	{name: "foreign", foreign: true, end: []string{endCancelled}},
}

// untilStopped is the work of a program that ends only when it is stopped: a cancel never comes too late for it.
const untilStopped = -time.Millisecond

func scenarioNamed(name string) scenario {
	for _, s := range scenarios {
		if s.name == name {
			return s
		}
	}
	panic("no scenario " + name)
}
