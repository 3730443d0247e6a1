package protocol

import "slices"

// Result is the outcome of a check. Path lists the steps to the problem, the shortest.
type Result struct {
	States, Steps int
	Problem       string
	Path          []string
}

// Check visits every state within the bound, breadth first.
func Check(l Layers, b Bound) Result {
	first := state{Left: b, Led: ledger{Row: toSubmit}}
	seen := map[state]uint32{first: 0}
	list := []state{first}
	type origin struct {
		from uint32
		name string
	}
	from := []origin{{}}
	var back [][]uint32 // who gets here without a fault
	back = append(back, nil)
	w := world{layers: l}
	r := Result{}
	path := func(i uint32) (names []string) {
		for ; i != 0; i = from[i].from {
			names = append(names, from[i].name)
		}
		slices.Reverse(names)
		return names
	}
	bounded := map[uint32]bool{}
	for i := uint32(0); int(i) < len(list); i++ {
		can := false
		for _, step := range w.steps(list[i]) {
			r.Steps++
			can = can || !step.fault
			if step.bad != "" {
				return Result{len(list), r.Steps, step.bad, append(path(i), step.name)}
			}
			to, ok := seen[step.to]
			if !ok {
				to = uint32(len(list))
				seen[step.to] = to
				list, from, back = append(list, step.to), append(from, origin{i, step.name}), append(back, nil)
			}
			if !step.fault {
				back[to] = append(back[to], i)
			}
		}
		// The model has a number of sends and jobs; a run that needs more would continue in reality.
		if s := list[i]; !can && (s.Led.Sends == sends || s.spent()) {
			bounded[i] = true
		}
	}
	r.States = len(list)
	// Backwards from what has ended.
	ends := make([]bool, len(list))
	var queue []uint32
	for i, s := range list {
		if s.ended() || bounded[uint32(i)] {
			ends[i] = true
			queue = append(queue, uint32(i))
		}
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range back[i] {
			if !ends[p] {
				ends[p] = true
				queue = append(queue, p)
			}
		}
	}
	if i := slices.Index(ends, false); i >= 0 {
		r.Problem, r.Path = "the run can never end", path(uint32(i))
	}
	return r
}

// spent reports whether a send waits for a job that the model has no room for.
func (s state) spent() bool {
	free := false
	for _, j := range s.Jobs {
		free = free || j.PC == absent
	}
	return !free
}
