package main

import (
	"math/rand/v2"
	"slices"
)

// seam is a place where a gateway is killed, or with fail set, a call that has its effect and then fails.
type seam struct {
	name  string
	fail  bool
	order int      // on a run's way
	most  int      // it is passed so many times in each of its scenarios, at least
	in    []string // scenarios that lead there
}

func (s seam) nth(r source) int { return 1 + r.IntN(max(1, s.most)) }

// places are the side effects of the lifecycle, about in the order a run passes them. The campaign reports an error
// when a gateway passes one that is not here; -list shows which scenario passes which.
var places = []struct {
	name string
	most int
	in   []string
}{
	{"Images.Verify", 2, all},
	{"Store.Insert", 1, all},
	{"Workspace.StageInputs", 1, all},
	{"Store.Apply.run.waits", 1, []string{"staging_waits"}},
	{"Workspace.OpenAttempt", 1, all},
	{"Store.Apply.run.blocked", 1, []string{"foreign"}},
	{"Store.Apply.run.intent", 1, sent},
	{"Submitter.Send", 1, sent},
	{"Store.Apply.run.deferred", 1, []string{"sbatch_unreachable"}},
	{"Store.Apply.run.receipt", 1, []string{"plain", "tool_fails", "double", "cancel_running", "sbatch_twice", "vanishes"}},
	{"Store.Apply.run.unconfirmed", 1, []string{"sbatch_fails", "sbatch_loses", "hidden"}},
	{"Queue.Jobs", 2, []string{"plain", "cancel_running", "sbatch_fails", "sbatch_loses", "vanishes", "completing"}},
	{"Store.Apply.run.pending", 1, []string{"cancel_pending"}},
	{"Store.Apply.run.running", 1, []string{"cancel_running", "plain"}},
	{"Accounting.Records", 1, []string{"sbatch_fails", "hidden", "vanishes"}},
	{"Submitter.Receipt", 1, []string{"sbatch_fails", "hidden"}},
	{"Store.Apply.run.cancel_asked", 1, []string{"cancel_pending", "cancel_running", "foreign"}},
	{"Workspace.TakeClaim", 1, []string{"sbatch_fails", "hidden", "cancel_pending"}},
	{"Store.Apply.run.adopted", 1, []string{"hidden"}},
	{"Store.Apply.run.missed", 1, []string{"hidden", "vanishes"}},
	{"Store.Apply.run.new_attempt", 1, []string{"sbatch_fails"}},
	{"Canceller.Cancel", 1, []string{"cancel_pending", "cancel_running"}},
	{"Store.Apply.run.completing", 1, []string{"completing"}},
	{"Store.Apply.run.collecting", 1, executed},
	{"Workspace.ReadControl.exit", 1, executed},
	{"Workspace.ReadControl.claim", 1, []string{"sbatch_twice_loses"}},
	{"Workspace.ReadControl.manifest", 1, []string{"plain", "sbatch_loses", "double"}},
	{"Workspace.OpenOutput", 1, []string{"plain", "sbatch_loses", "double"}},
	{"Objects.Put", 1, executed},
	{"Workspace.ReadControl.stdout", 1, executed},
	{"Workspace.ReadControl.stderr", 1, executed},
	{"Workspace.ReadControl.job.log", 1, executed},
	{"Store.Apply.run.succeeded", 1, []string{"plain", "sbatch_loses", "sbatch_fails", "double", "vanishes"}},
	{"Store.Apply.run.failed", 1, []string{"tool_fails", "rejected"}},
	{"Store.Apply.run.cancelled", 1, []string{"cancel_pending", "cancel_running", "foreign"}},
	{"Store.Apply.run.retry", 1, []string{"retry"}},
}

// Scenarios that have a stretch of the way in common.
var (
	all      = []string{"plain", "tool_fails", "double", "cancel_pending", "rejected", "sbatch_loses"}
	sent     = []string{"plain", "tool_fails", "double", "cancel_pending", "rejected", "sbatch_loses", "sbatch_fails"}
	executed = []string{"plain", "tool_fails", "double", "sbatch_loses", "vanishes"}
)

// seams returns the seams of all places: before and after for deaths, or the calls that fail.
func seams(fail bool) []seam {
	var out []seam
	for i, p := range places {
		if fail {
			out = append(out, seam{p.name, true, 2 * i, p.most, p.in})
			continue
		}
		out = append(out, seam{p.name + ".before", false, 2 * i, p.most, p.in}, seam{p.name + ".after", false, 2*i + 1, p.most, p.in})
	}
	return out
}

// seamQueue deals the seams, shuffled: first every death once, then every failing call, then all of them again and again.
type seamQueue struct {
	seed  uint64
	round int
	left  []seam
}

func (d *seamQueue) fill() {
	if len(d.left) > 0 {
		return
	}
	switch d.round {
	case 0:
		d.left = seams(false)
	case 1:
		d.left = seams(true)
	default:
		d.left = append(seams(false), seams(true)...)
	}
	r := rand.New(rand.NewPCG(d.seed, ^uint64(d.round)))
	r.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	d.round++
}

func (d *seamQueue) take() seam {
	d.fill()
	s := d.left[0]
	d.left = d.left[1:]
	return s
}

// also deals a second seam for a case: one that the scenario passes after the first.
func (d *seamQueue) also(scenario string, first seam) (seam, bool) {
	for i, s := range d.left {
		if s.order > first.order && s.name != first.name && slices.Contains(s.in, scenario) {
			d.left = slices.Delete(d.left, i, i+1)
			return s, true
		}
	}
	return seam{}, false
}
