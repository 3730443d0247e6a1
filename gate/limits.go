package gate

import (
	"context"
	"fmt"
	"time"

	"slurmgate/fault"
)

// places limits concurrent calls (AX-08), in total and per tool. A call that gets no slot
// waits a little and is then refused.
type places struct {
	all  chan struct{}            // nil: no limit
	tool map[string]chan struct{} // by tool id
}

const placeWait = 5 * time.Second

func newPlaces(together int, r *Registry, p Policy) places {
	out := places{tool: map[string]chan struct{}{}}
	if together > 0 {
		out.all = make(chan struct{}, together)
	}
	if p == nil {
		return out
	}
	for _, t := range r.List() {
		if n := p.Rules(t.Name()).Together; n > 0 {
			out.tool[t.ID] = make(chan struct{}, n)
		}
	}
	return out
}

// take acquires a slot; the caller releases it. The tool's own slot comes first, so that calls waiting for one tool take
// no slot from the others.
func (p places) take(ctx context.Context, toolID string) (back func(), err error) {
	timer := time.NewTimer(placeWait)
	defer timer.Stop()
	var held []chan struct{}
	back = func() {
		for _, c := range held {
			<-c
		}
	}
	for _, c := range []chan struct{}{p.tool[toolID], p.all} {
		if c == nil {
			continue
		}
		select {
		case c <- struct{}{}:
			held = append(held, c)
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-timer.C:
			err = fault.New(fault.Transport, "gate.Call", "too_many_calls", fmt.Sprintf("all %d concurrent calls that policy allows are in use",
				cap(c))).WithNext("call again in a few seconds")
		}
		back()
		return nil, err
	}
	return back, nil
}
