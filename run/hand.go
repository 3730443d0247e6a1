package run

// handed is what a submit knows of the run it has just stored, for the worker that takes it up: the row as it was written and the canonical
// params, which it would read back otherwise. It is no more than a copy: a row that has changed meanwhile refuses the first write.
type handed struct {
	view   View
	params []byte
}

// handedAtOnce bounds the copies in memory; runs beyond that are read.
const handedAtOnce = 256

func (e *Engine) hand(v View, canonical []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.handed) < handedAtOnce {
		e.handed[v.Run.ID] = handed{v, canonical}
	}
}

// taken returns and removes what was handed over for the run.
func (e *Engine) taken(id string) (handed, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h, ok := e.handed[id]
	delete(e.handed, id)
	return h, ok
}
