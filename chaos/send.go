package main

import (
	"context"
	"syscall"
	"time"
)

// Faults of a send while its sbatch runs.

// endSbatch kills the send's sbatch a while after it began.
func (t *trial) endSbatch(ctx context.Context) {
	defer t.end()
	if !t.sends(ctx) {
		return
	}
	time.Sleep(t.killSbatch)
	if t.carrier.rest() { // there is no sbatch: the connection between gateway and slurmctld ends
		t.s.rest.kill(t.sbatchSignal)
		t.s.rest.start(ctx)
		return
	}
	for _, pid := range processes("sbatch", t.ofSbatch()) {
		syscall.Kill(pid, t.sbatchSignal)
	}
}

// cutSend cuts all connections a while after sbatch began.
func (t *trial) cutSend(ctx context.Context) {
	defer t.end()
	if t.sends(ctx) {
		time.Sleep(t.far.cutSend)
		t.s.wires.cutNow()
	}
}

// sends waits until an sbatch of the run has begun. False: it was too quick to be seen, or there was none.
func (t *trial) sends(ctx context.Context) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(3 * time.Millisecond) {
		t.mu.Lock()
		late := !t.answered.IsZero() && time.Since(t.answered) > 2*time.Second // it was too quick to be seen
		t.mu.Unlock()
		if late {
			return false
		}
		if t.carrier.rest() && t.observed().posts > 0 || !t.carrier.rest() && len(processes("sbatch", t.ofSbatch())) > 0 {
			return true
		}
	}
	return false
}
