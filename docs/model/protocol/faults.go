package protocol

import "slices"

// faults adds what may go wrong, as often as the bound allows. A cancel of the run is not a fault, but no run needs one
// to end.
func (w *world) faults() {
	s := &w.from
	if s.Led.Phase == unknown && s.Led.Row == toSubmit {
		w.push("the batch is cancelled before the run of the row is made", true, ok(func(s *state) { s.Led.Row, s.Stopped = withdrawn, true }))
	}
	if s.Led.Phase == waits {
		w.push("the run or its batch is cancelled while the run waits", true, ok(func(s *state) { s.Led.Phase, s.Stopped = done, true }))
	}
	if s.Led.Phase != done && !s.Led.Cancel && s.Led.Phase > waits && s.Led.Phase != ahead {
		if s.Stopped && !w.layers.Mark {
			w.push("the gateway comes to the row of the batch that was cancelled", true, ok(func(s *state) { s.Led.Cancel = true }))
		} else {
			w.push("the run or its batch is cancelled", true, ok(func(s *state) { s.Led.Cancel, s.Stopped = w.layers.Mark, true }))
		}
	}
	if s.PC != idle {
		w.fault(func(s *state) *uint8 { return &s.Left.Crashes }, "the gateway dies", func(s *state) { s.PC, s.K, s.Said = idle, 0, false })
	}
	cut := func(s *state) *uint8 { return &s.Left.Cuts }
	if s.PC == waiting {
		w.fault(cut, "the connection is cut", func(s *state) { s.Led.Phase, s.PC = unconfirmed, idle })
	}
	for k := range s.Req {
		if s.Req[k].State == onItsWay {
			w.fault(cut, "the request is lost", func(s *state) { s.Req[k].State = vanished })
		}
	}
	for j, it := range s.Jobs {
		if it.PC != absent && it.PC != over {
			w.trouble(j, it)
		}
	}
	if s.PC == toRead || s.PC == toSync {
		w.fault(func(s *state) *uint8 { return &s.Left.Lies }, "the answer of link was wrong", func(s *state) { s.Said = !s.Said })
	}
	if slices.ContainsFunc(s.Claim[:], func(c claim) bool { return c.By != nobody && !c.Durable }) {
		w.fault(func(s *state) *uint8 { return &s.Left.Losses }, "the disk loses what was not synced", func(s *state) {
			for a := range s.Claim {
				if !s.Claim[a].Durable {
					s.Claim[a] = claim{}
				}
			}
		})
	}
	if s.Left.Restores == 0 || s.Left.All == 0 {
		return
	}
	if !s.Saved && s.Led.Phase != done {
		w.push("the ledger is backed up", true, ok(func(s *state) { s.Bak, s.Saved = s.Led, true }))
	}
	if s.Saved && s.Bak != s.Led {
		w.fault(func(s *state) *uint8 { return &s.Left.Restores }, "the ledger is restored", func(s *state) {
			s.Led, s.Bak, s.Saved, s.Restored = s.Bak, ledger{}, false, true
			s.PC, s.K, s.Said, s.RowRead, s.Seen = idle, 0, false, false, false
		})
	}
}

// trouble adds what may happen to a job.
func (w *world) trouble(j int, it job) {
	again := func(s *state) *uint8 { return &s.Left.Restarts }
	if it.Known {
		w.fault(func(s *state) *uint8 { return &s.Left.Forgets }, "slurmctld forgets the job", func(s *state) {
			s.Jobs[j].Known = false
			if it.PC == pending { // a forgotten job that has not started never will
				s.Jobs[j].over()
			}
		})
	}
	if it.Known && !it.Renamed { // before the answer to the send arrives, or later
		w.fault(func(s *state) *uint8 { return &s.Left.Renames }, "the site renames the job", func(s *state) { s.Jobs[j].Renamed = true })
	}
	if it.Known && it.PC > pending {
		w.fault(again, "the node fails", func(s *state) { s.Jobs[j].over() })
		if it.Restart == 0 {
			w.fault(again, "the job is requeued", func(s *state) { s.Jobs[j].PC, s.Jobs[j].Restart, s.Jobs[j].Said = pending, 1, false })
		}
	}
	if it.PC == reading {
		w.fault(func(s *state) *uint8 { return &s.Left.Lies }, "the answer of ln was wrong", func(s *state) { s.Jobs[j].Said = !s.Jobs[j].Said })
	}
}
