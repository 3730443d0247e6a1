package protocol

// inputs adds the steps of a run that waits for inputs.
func (w *world) inputs() {
	if !w.from.Led.Content {
		w.add("a run with the inputs that this one waits for is asked for", ok(func(s *state) { s.Led.Content = true }))
	}
	if w.from.RowRead {
		w.start()
		return
	}
	w.add("an input will never be there", ok(func(s *state) { s.Led.Phase, s.Led.Content = done, false }))
	w.add("the gateway reads that the inputs are there", ok(func(s *state) { s.RowRead, s.Seen = true, s.Led.Content }))
}

// start makes the run of what waited, or finds that it is there: the one that waited is another name of it from then on.
func (w *world) start() {
	w.add("the run of what waited is made or found", func(s *state) (bad string) {
		seen := s.Seen
		s.RowRead, s.Seen = false, false
		if w.layers.Wait && s.Led.Phase != waits {
			return ""
		}
		if w.layers.Alias {
			seen = s.Led.Content
		}
		switch {
		case s.Stopped:
			bad = "a run that waited is started after its cancel was acknowledged"
		case s.Led.Content && !seen:
			bad = "one content has two runs"
		}
		s.created()
		return bad
	})
}
