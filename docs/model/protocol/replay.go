package protocol

import (
	"fmt"
	"strings"
	"time"
)

// Record holds what one attempt of a real run left: the events of the ledger from the attempt's opening to its end, the
// files of its folder, its program's own record, and the jobs that Slurm's accounting has under its name.
type Record struct {
	N          int // of the attempt
	Events     []Event
	Foreign    bool        // its folder has the token of another submission
	Sends      []time.Time // when the files of each send were there
	Executions []time.Time
	Void       bool // the gateway has the claim
	Holder     bool // a job has it
	Restart    int  // the start of the job that has it
	Exit       bool // there is an exit file
	Jobs       int
}

// Event is an event of the ledger.
type Event struct {
	At     time.Time
	Type   string // the first is run.created, whatever opened the attempt
	Ending string // of the attempt, when the event ends it
	Unsent bool   // of run.deferred: no sbatch was started
	Ahead  bool   // of run.blocked: the folder has another token
}

func (e Event) String() string { return strings.TrimSpace(e.Type + " " + e.Ending) }

// clockStep is the most by which the time of a file may be older than the clock that the ledger reads.
const clockStep = 20 * time.Millisecond

// recorded is a state with the number of its sends so far.
type recorded struct {
	state
	sent int
}

// replayer follows all states that the record allows so far.
type replayer struct {
	Record
	world
	now map[recorded]bool
}

// Replay holds the record of an attempt against the model. It keeps all states of the model that the record allows so far; when none is
// left, the error names the first thing that does not fit. What the record does not show may have happened at any time. Of the faults,
// those of the campaign are free: the gateway dies, connections are cut, jobs are started again, submitted twice, renamed or hidden.
func Replay(r Record) error {
	first := state{Left: Bound{All: 1, Crashes: 1, Cuts: 1, Restarts: 1, Hidden: 1, Twins: 1, Renames: 1}}
	if r.Foreign {
		first.Folder[0] = 2
	}
	p := &replayer{Record: r, world: world{layers: All(), free: true}, now: map[recorded]bool{{state: first}: true}}
	for i, e := range r.Events {
		p.wander()
		for k, at := range r.Sends {
			if at.Add(clockStep).Before(e.At) && !p.keep(func(s recorded) bool { return s.sent > k }) {
				return fmt.Errorf("attempt %d: the files of send %d are older than %s (event %d), and no intent allowed it", r.N, k+1, e, i+1)
			}
		}
		for _, at := range r.Executions {
			if at.Before(e.At) && !p.keep(func(s recorded) bool { return s.Runs[0] > 0 }) {
				return fmt.Errorf("attempt %d: it was executed before %s (event %d), and the model does not allow that", r.N, e, i+1)
			}
		}
		if !p.take(e) {
			return fmt.Errorf("attempt %d: %s (event %d) cannot follow from what came before", r.N, e, i+1)
		}
	}
	p.wander()
	for _, last := range []struct {
		what string
		is   func(s recorded) bool
	}{
		{fmt.Sprintf("it has the files of %d sends", len(r.Sends)), func(s recorded) bool { return s.sent >= len(r.Sends) }},
		{fmt.Sprintf("accounting has %d jobs of it", r.Jobs), func(s recorded) bool { return s.count() >= r.Jobs }},
		{"its claim cannot have this holder", func(s recorded) bool {
			return (s.Claim[0].By == void) == r.Void && (s.Claim[0].By > void) == r.Holder
		}},
		{fmt.Sprintf("it was executed %d times", len(r.Executions)), func(s recorded) bool { return int(s.Runs[0]) >= len(r.Executions) }},
		{"it has an exit file", func(s recorded) bool { return s.Exit[0] == r.Exit }},
	} {
		if !p.keep(last.is) {
			return fmt.Errorf("attempt %d: %s, and the model does not allow that", r.N, last.what)
		}
	}
	return nil
}

// count returns the number of jobs there have been.
func (s recorded) count() (n int) {
	for _, j := range s.Jobs {
		if j.PC != absent {
			n++
		}
	}
	return n
}

// keep drops the states that differ from the record. It returns false if none is left.
func (p *replayer) keep(is func(recorded) bool) bool {
	for s := range p.now {
		if !is(s) {
			delete(p.now, s)
		}
	}
	return len(p.now) > 0
}

// wander adds all states that can be reached without an event.
func (p *replayer) wander() {
	var queue []recorded
	for s := range p.now {
		queue = append(queue, s)
	}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, to := range p.next(s) {
			if to.Led == s.Led && !p.now[to] {
				p.now[to] = true
				queue = append(queue, to)
			}
		}
	}
}

// next returns the steps from a state that break no promise and contradict nothing that the attempt left: a claim is
// permanent.
func (p *replayer) next(s recorded) (list []recorded) {
	for _, step := range p.steps(s.state) {
		to := recorded{step.to, s.sent}
		if step.name == sbatchStarts {
			to.sent++
		}
		by := to.Claim[0].By
		if step.bad != "" || by == void && !p.Void || by > void && (!p.Holder || int(by-firstStart)%2 != min(p.Restart, 1)) ||
			to.Exit[0] && !p.Exit || to.count() > max(p.Jobs, to.sent) || to.Folder[1] != 0 {
			continue
		}
		list = append(list, to)
	}
	return list
}

// take follows an event: the ledger changes by it, or the event is one that the model has no state for.
func (p *replayer) take(e Event) bool {
	was := p.now
	p.now = map[recorded]bool{}
	for s := range was {
		if p.stays(e, s.Led) {
			p.now[s] = true
		}
		for _, to := range p.next(s) {
			if to.Led != s.Led && p.moves(e, s.state, to.Led) {
				p.now[to] = true
			}
		}
	}
	return len(p.now) > 0
}

// stays reports whether the event leaves the model's ledger as it is. The model has one phase for a job that is pending, running or
// being collected, and an answer of Slurm's may be about a job that has ended since.
func (p *replayer) stays(e Event, l ledger) bool {
	switch e.Type {
	case "run.created", "run.intent", "run.receipt", "run.unconfirmed", "run.succeeded", "run.failed", "run.cancelled", "run.new_attempt":
		return false
	case "run.retry":
		return l.Ended[0] != open
	case "run.blocked":
		return !e.Ahead
	case "run.deferred":
		return e.Unsent && (l.Phase == staging || l.Phase == deferred)
	case "run.pending", "run.running", "run.completing", "run.collecting", "run.adopted", "run.missed":
		return l.Phase == inJob || l.Phase == unconfirmed
	case "run.cancel_asked":
		return l.Phase == ahead
	}
	return true
}

// moves reports whether the event can be this change of the ledger.
func (p *replayer) moves(e Event, s state, to ledger) bool {
	from := s.Led
	switch e.Type {
	case "run.created":
		return from.Phase == unknown && to.Phase == staging
	case "run.intent":
		return to.Phase == submitting
	case "run.receipt", "run.pending", "run.running", "run.completing", "run.adopted":
		return from.Phase != inJob && to.Phase == inJob
	case "run.deferred":
		return to.Phase == deferred && !e.Unsent
	case "run.unconfirmed":
		return from.Phase == submitting && to.Phase == unconfirmed
	case "run.blocked":
		return e.Ahead && to.Phase == ahead
	case "run.cancel_asked":
		return to.Cancel && !from.Cancel && to.Ended == from.Ended
	case "run.succeeded", "run.failed", "run.cancelled", "run.new_attempt":
		return from.Ended[0] == open && p.ends(e, s, to.Ended[0])
	}
	return false
}

// ends reports whether an attempt that the ledger ends so can have ended like that in the model.
func (p *replayer) ends(e Event, from state, how ending) bool {
	switch e.Ending {
	case "absent", "boot_fail", "prolog_failed":
		return how == never && from.PC == toRead
	case "rejected": // by its answer alone, or in a site's own words, once the gateway has the claim
		return how == never
	case "ok", "tool_failed":
		return how == executed
	}
	return how == executed || how == maybe || how == never && !p.Holder && from.Led.Phase != ahead
}
