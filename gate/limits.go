package gate

import (
	"context"
	"fmt"
	"time"

	"slurmgate/fault"
)

// limiter bounds concurrent calls (AX-08), in total and per tool. A call that gets no slot
// waits a little and is then refused.
type limiter struct {
	all  chan struct{}            // nil: no limit
	tool map[string]chan struct{} // by tool id
}

const limiterWait = 5 * time.Second

func newLimiter(together int, r *Registry, p Policy) limiter {
	out := limiter{tool: map[string]chan struct{}{}}
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
func (l limiter) take(ctx context.Context, toolID string) (release func(), err error) {
	timeout := time.After(limiterWait)
	var slots []chan struct{}
	release = func() {
		for _, c := range slots {
			<-c
		}
	}
	for _, c := range []chan struct{}{l.tool[toolID], l.all} {
		if c == nil {
			continue
		}
		select {
		case c <- struct{}{}:
			slots = append(slots, c)
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		case <-timeout:
			release()
			return nil, fault.New(fault.Transport, "gate.Call", "too_many_calls",
				fmt.Sprintf("all %d concurrent calls that policy allows are in use", cap(c))).WithNext("call again in a few seconds")
		}
	}
	return release, nil
}
