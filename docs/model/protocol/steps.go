package protocol

import (
	"fmt"
	"slices"
)

// step is one thing that can happen. Faults are not needed for a run to end.
type step struct {
	name  string
	fault bool
	to    state
	bad   string // what it violates
}

// world enumerates the steps.
type world struct {
	layers Layers
	free   bool // faults cost nothing: those that have a budget may happen any number of times
	out    []step
	from   state
}

func (w *world) add(name string, change func(s *state) (bad string)) { w.push(name, false, change) }

// fault adds a step that costs one of the faults that are left.
func (w *world) fault(left func(*state) *uint8, name string, change func(s *state)) {
	if *left(&w.from) == 0 || w.from.Left.All == 0 {
		return
	}
	w.push(name, true, func(s *state) string {
		if !w.free {
			*left(s)--
			s.Left.All--
		}
		change(s)
		return ""
	})
}

func (w *world) push(name string, fault bool, change func(s *state) string) {
	s := w.from
	bad := change(&s)
	if s.Led.Phase == done { // the gateway forgets where it was
		s.PC, s.K, s.Said = idle, 0, false
	}
	s.forget()
	w.out = append(w.out, step{name, fault, s, bad})
}

// steps returns everything that can happen next.
func (w *world) steps(s state) []step {
	w.from, w.out = s, w.out[:0]
	w.gateway()
	w.network()
	for j := range s.Jobs {
		w.job(j)
	}
	w.faults()
	return w.out
}

func ok(f func(s *state)) func(*state) string { return func(s *state) string { f(s); return "" } }

const sbatchStarts = "the gateway starts sbatch"

func (w *world) gateway() {
	s := &w.from
	a := s.at()
	switch s.PC {
	case toSend:
		if w.layers.Once && s.mine(s.K) {
			w.add("the files of this send are there, so sbatch is not started again", ok(func(s *state) { s.PC = waiting }))
			return
		}
		w.add(sbatchStarts, func(s *state) (bad string) {
			mine := request{State: onItsWay, Attempt: s.Led.Attempt, Token: s.Led.Token[s.at()]}
			for _, r := range s.Req {
				if r.Attempt == mine.Attempt && (r.State == onItsWay || r.State == accepted) && !s.Restored {
					bad = fmt.Sprintf("a second sbatch for attempt %d starts while the first may have been accepted", mine.Attempt)
				}
			}
			s.Req[s.K], s.PC = mine, waiting
			return bad
		})
		return
	case waiting:
		w.answer("the answer arrives", s.K)
		if s.Req[s.K].State == vanished {
			w.add("no answer arrives", ok(func(s *state) { s.Led.Phase, s.PC = unconfirmed, idle }))
		}
		return
	case toLink:
		w.add("the gateway links its claim", ok(func(s *state) {
			if s.Said = s.Claim[a].By == nobody; s.Said {
				s.Claim[a] = claim{By: void}
			}
			s.PC = toRead
			if w.layers.Synced {
				s.PC = toSync
			}
		}))
		return
	case toSync:
		w.add("the gateway syncs the folder", ok(func(s *state) {
			s.Claim[a].Durable = s.Claim[a].By != nobody
			s.PC = toRead
		}))
		return
	case toRead:
		w.add("the gateway reads the claim", func(s *state) string { return w.decide(s, a) })
		return
	}
	w.idle(a)
}

// answer handles slurmctld's answer to send k, received at once or read later in sbatch's files.
func (w *world) answer(how string, k uint8) {
	switch w.from.Req[k].State {
	case accepted:
		w.add(how+": accepted", ok(func(s *state) { s.Led.Phase, s.PC = inJob, idle }))
	case notNow:
		w.add(how+": not now", ok(func(s *state) { s.deferSend(k) }))
	case refused:
		w.add(how+": never", func(s *state) (bad string) {
			bad = w.endNever(s, s.at())
			s.Led.Phase = done
			return bad
		})
	}
}

// receipt handles the answer that the last send of this attempt left in its files, if there is one.
func (w *world) receipt() {
	s := &w.from
	if k := s.Led.Sends - 1; s.Led.Sends > 0 && s.mine(k) {
		w.answer("the receipt of an earlier send is read", k)
	}
}

// decide changes the state by the holder of the claim that the gateway tried to take, and returns the broken promise;
// empty: none.
func (w *world) decide(s *state, a int) string {
	by := s.Claim[a].By
	if !w.layers.Read || !w.layers.File {
		by = void
		if !s.Said {
			by = firstStart
		}
	}
	switch {
	case by == nobody: // it was lost meanwhile
		s.PC = toLink
	case by == void:
		return w.endNever(s, a)
	case s.Jobs[(by-firstStart)/2].Token != s.Led.Token[a]: // of an attempt that this ledger does not know
		s.end(maybe)
	default:
		s.Led.Phase, s.PC = inJob, idle
	}
	return ""
}

func (w *world) endNever(s *state, a int) (bad string) {
	if s.Runs[a] > 0 {
		bad = fmt.Sprintf("attempt %d was executed, and the ledger ends it as never executed", a+1)
	}
	s.end(never)
	return bad
}

// idle adds the gateway's steps between two pieces of work.
func (w *world) idle(a int) {
	s := &w.from
	switch s.Led.Phase {
	case unknown:
		w.unknown()
	case waits:
		w.inputs()
	case done:
		if s.RowRead {
			w.start()
		}
	case staging, deferred:
		if s.Led.Cancel { // an attempt that cannot be staged any more ends in the same way
			w.add("the cancel takes effect before a send", func(s *state) string {
				if w.layers.Cancel && s.Folder[a] != 0 {
					s.PC = toLink
					return ""
				}
				return w.endNever(s, a)
			})
			return
		}
		if s.Folder[a] == 0 {
			w.add("the folder of the attempt is made", ok(func(s *state) { s.Folder[a] = s.Led.Token[a] }))
			return
		}
		if s.Folder[a] != s.Led.Token[a] {
			w.add("the folder has another token", ok(func(s *state) { s.Led.Phase = ahead }))
			return
		}
		if s.Led.Sends < sends {
			w.add("the intent is recorded", func(s *state) (bad string) {
				if s.Stopped {
					bad = "the run is sent after its cancel was acknowledged"
				}
				s.K, s.PC = s.Led.Sends, toSend
				for s.K < sends-1 && s.Req[s.K].State != unsent && !(w.layers.Once && s.mine(s.K)) {
					s.K++ // a restored ledger counts its sends from the start
				}
				if w.layers.Intent {
					s.Led.Sends, s.Led.Phase = s.K+1, submitting
				}
				return bad
			})
		}
	case submitting:
		w.receipt()
		w.add("a send of an earlier life has no receipt", ok(func(s *state) { s.Led.Phase = unconfirmed }))
	case unconfirmed:
		w.receipt()
		w.look(a)
	case inJob:
		w.look(a)
	case ahead:
		w.add("a person cancels the blocked run", ok(func(s *state) { s.Led.Cancel = true; s.end(maybe) }))
	}
}

// unknown adds the ways to a run: by itself, or as the row of a batch, which the gateway reads some time before it
// makes the run.
func (w *world) unknown() {
	row := func(made func(*state)) func(*state) string {
		return func(s *state) (bad string) {
			s.RowRead = false
			if w.layers.Row && s.Led.Row == withdrawn {
				return ""
			}
			if s.Stopped {
				bad = "the run of a row is made after the cancel of its batch was acknowledged"
			}
			s.Led.Row = submitted
			made(s)
			return bad
		}
	}
	switch s := &w.from; {
	case s.Led.Row == noRow:
		w.add("the run is asked for", ok((*state).created))
	case s.RowRead:
		w.add("the run of the row is made", row((*state).created))
		w.add("the run of the row is made and waits for inputs", row(func(s *state) { s.Led.Phase = waits }))
	case s.Led.Row == toSubmit:
		w.add("the gateway reads the row", ok(func(s *state) { s.RowRead = true }))
	}
}

// look adds a full answer of Slurm's, and its consequences.
func (w *world) look(a int) {
	s := &w.from
	seen, runs := false, false
	for _, j := range s.Jobs {
		live := j.PC == pending || j.PC == linking || j.PC == reading || j.PC == executing
		if !j.Known || !live || int(j.Attempt) != a+1 || j.Token != s.Led.Token[a] {
			continue
		}
		seen, runs = seen || !j.Renamed || w.layers.Folder, runs || j.PC == executing
	}
	by := s.Claim[a].By
	switch {
	case s.Exit[a]:
		w.add("the exit file is read", ok(func(s *state) { s.end(executed) }))
	case seen && s.Led.Phase == unconfirmed:
		w.hidden(by)
		w.add("Slurm shows the job", ok(func(s *state) { s.Led.Phase = inJob }))
	case seen && s.Led.Cancel && by == nobody:
		w.add("the cancel takes the claim", ok(func(s *state) { s.PC = toLink }))
	case seen:
		w.hidden(by) // else it waits
	case by == nobody:
		w.add("Slurm shows no job: the gateway takes the claim", ok(func(s *state) { s.PC = toLink }))
	case by == void:
		w.add("the claim is the gateway's", ok(func(s *state) { s.PC = toLink }))
	default:
		w.add("the job has the claim, left no exit file, and is gone: lost", func(s *state) (bad string) {
			if s.end(maybe); runs {
				bad = fmt.Sprintf("attempt %d is given up as lost while it is executed and Slurm shows its job", a+1)
			}
			return bad
		})
	}
}

// hidden adds an answer of Slurm's that looks complete and does not show the job.
func (w *world) hidden(by holder) {
	w.fault(func(s *state) *uint8 { return &s.Left.Hidden }, "Slurm's answer hides the job", func(s *state) {
		if by <= void {
			s.PC = toLink
			return
		}
		s.end(maybe)
	})
}

// network adds what happens to sends on their way, and to their answers.
func (w *world) network() {
	for k := range w.from.Req {
		switch w.from.Req[k].State {
		case onItsWay:
			w.accept(k)
			w.add("slurmctld refuses the job for now", ok(func(s *state) { s.Req[k].State = notNow }))
			w.add("slurmctld refuses the job for good", ok(func(s *state) { s.Req[k].State = refused }))
		case accepted:
			w.accept(k)
		}
	}
}

// accept makes the job of send k, or with a fault a second one.
func (w *world) accept(k int) {
	j := slices.IndexFunc(w.from.Jobs[:], func(j job) bool { return j.PC == absent })
	if j < 0 {
		return
	}
	made := func(s *state) {
		s.Jobs[j] = job{PC: pending, Attempt: s.Req[k].Attempt, Token: s.Req[k].Token, Known: true}
		s.Req[k].State = accepted
	}
	if w.from.Req[k].State == onItsWay {
		w.add("slurmctld accepts the job", ok(made))
		return
	}
	w.fault(func(s *state) *uint8 { return &s.Left.Twins }, "slurmctld accepts the job a second time", made)
}

// job adds the steps of the job script.
func (w *world) job(j int) {
	it := w.from.Jobs[j]
	a, me := int(it.Attempt)-1, start(j, it.Restart)
	switch it.PC {
	case pending:
		w.add("the job starts", ok(func(s *state) { s.Jobs[j].PC = linking }))
		w.add("scancel ends the pending job", ok(func(s *state) { s.Jobs[j].over() }))
	case linking:
		w.add("the job links its claim", ok(func(s *state) {
			if s.Jobs[j].Said = s.Claim[a].By == nobody; s.Jobs[j].Said {
				s.Claim[a] = claim{By: me}
			}
			s.Jobs[j].PC = reading
		}))
	case reading:
		w.add("the job reads the claim", func(s *state) string {
			mine := s.Claim[a].By == me
			if !w.layers.Read || !w.layers.File {
				mine = it.Said
			}
			if !mine {
				s.Jobs[j].over()
				return ""
			}
			s.Claim[a].Durable = s.Claim[a].Durable || w.layers.Own
			s.Jobs[j].PC = executing
			s.Runs[a]++
			switch {
			case s.Runs[a] > 1:
				return fmt.Sprintf("attempt %d is executed twice", a+1)
			case s.Led.Ended[a] == never && s.Led.Token[a] == it.Token:
				return fmt.Sprintf("attempt %d is executed after the ledger ended it as never executed", a+1)
			}
			return ""
		})
	case executing:
		w.add("the program ends and its exit file is written", ok(func(s *state) { s.Exit[a] = true; s.Jobs[j].over() }))
	}
}
