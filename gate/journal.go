package gate

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
)

// The journal writes records in the background, many at a time. A call that may have changed something waits until
// its record is on the disk; a read-only call is answered at once, and its record follows within [linger]. Until then
// it is in a file next to the ledger ([spill]), which survives a SIGKILL; a machine that fails can lose the records
// of the read-only calls of that time, and no others. A record that cannot be written is tried again, also for a few
// seconds when the gateway stops; while there is no room for records, calls are refused. A record the ledger refuses
// is dropped, and its call is answered as not recorded.

const (
	linger      = 50 * time.Millisecond
	maxQueued   = 4096            // records waiting
	maxBatch    = 64              // records in one transaction: a concurrent submit waits for them
	journalWait = 2 * time.Second // for room
	retryPause  = time.Second
	lastTries   = 3 // for the records behind when the gateway stops
)

type journal struct {
	store Journal
	spill *spill
	log   *slog.Logger
	room  chan struct{} // a token for each record that waits, up to maxQueued
	in    chan queued
	done  chan struct{} // closed when the writer has ended

	mu     sync.RWMutex
	closed bool
}

type queued struct {
	record Record
	inRoom bool       // it has a token
	in     *spillFile // it is kept there too; nil: nowhere
	done   chan error // gets the outcome; nil: the caller does not wait
}

// newJournal begins with what an earlier process left.
func newJournal(store Journal, a *spill, left []queued, log *slog.Logger) *journal {
	j := &journal{store: store, spill: a, log: log, room: make(chan struct{}, maxQueued), in: make(chan queued, 2*maxQueued),
		done: make(chan struct{})}
	go j.write(left)
	return j
}

// admit waits for room before the call is carried out: while the ledger takes no records, no calls are made. It
// reserves nothing for the call, which may take long; its record is added even to a full queue. So there are never
// more records than maxQueued plus the concurrent calls.
func (j *journal) admit(ctx context.Context) error {
	if j.hasRoom() {
		return nil
	}
	select {
	case j.room <- struct{}{}:
		<-j.room
		return nil
	case <-time.After(journalWait):
	case <-ctx.Done():
	}
	return fault.New(fault.Transport, "journal_full", "calls are refused because they cannot be recorded").
		WithNext("check the gateway's log and whether the disk of gateway.state_dir is full")
}

func (j *journal) hasRoom() bool { return len(j.room) < cap(j.room) }

// keep passes a record to the writer; with wait it returns when the record is durable, or could not be made so.
func (j *journal) keep(r Record, wait bool) error {
	k := queued{record: r}
	if wait {
		k.done = make(chan error, 1)
	}
	j.mu.RLock()
	if j.closed {
		j.mu.RUnlock()
		<-j.done // the records before this one come first
		return j.store.Record(context.Background(), []Record{r})
	}
	select {
	case j.room <- struct{}{}:
		k.inRoom = true
	default: // the room was taken after the call was admitted
	}
	if !wait {
		k.in = j.spill.put(r)
	}
	j.in <- k
	j.mu.RUnlock()
	if !wait {
		return nil
	}
	return <-k.done
}

// close writes the waiting records and ends the writer. A later record is written at once, by its own call.
func (j *journal) close() {
	j.mu.Lock()
	if !j.closed {
		j.closed = true
		close(j.in)
	}
	j.mu.Unlock()
	<-j.done
}

func (j *journal) write(left []queued) {
	defer close(j.done)
	defer j.spill.close()
	var behind []queued // not yet written; their callers no longer wait
	for batch := range slices.Chunk(left, maxBatch) {
		behind = append(behind, j.commit(batch)...)
	}
	for open := true; open; {
		var batch []queued
		batch, open = j.gather(len(behind) > 0)
		behind = j.commit(append(behind, batch...))
	}
	for try := 0; len(behind) > 0 && try < lastTries; try++ {
		time.Sleep(retryPause)
		behind = j.commit(behind)
	}
	for _, k := range behind {
		if k.in != nil {
			j.log.Warn("the record of a call could not be written; the next gateway writes it", k.record.names()...)
			continue
		}
		j.log.Error("a call is not recorded: the gateway stops and its record could not be written", k.record.names()...)
	}
}

// gather takes the queued records; while no caller waits for them, it waits a little longer for more. With records
// behind it returns after a while even without any. open is false when no more will come.
func (j *journal) gather(behind bool) (batch []queued, open bool) {
	var enough <-chan time.Time
	if behind {
		enough = time.After(retryPause)
	}
	for waited := false; len(batch) < maxBatch && !(waited && len(j.in) == 0); {
		select {
		case k, ok := <-j.in:
			if !ok {
				return batch, false
			}
			batch, waited = append(batch, k), waited || k.done != nil
			if enough == nil {
				enough = time.After(linger)
			}
		case <-enough:
			return batch, true
		}
	}
	return batch, true
}

// commit writes records, answers the callers that wait for them, and returns the records that could not be written
// yet. A refused record must not delay the others: then each is written alone, and one that is refused alone is
// dropped, with an error to the caller that waits for it.
func (j *journal) commit(batch []queued) (behind []queued) {
	if len(batch) == 0 {
		return nil
	}
	records := make([]Record, len(batch))
	for i, k := range batch {
		records[i] = k.record
	}
	err := j.store.Record(context.Background(), records)
	if fault.CodeOf(err) == recordRefused && len(batch) > 1 {
		for i := range batch {
			behind = append(behind, j.commit(batch[i:i+1])...)
		}
		return behind
	}
	dropped := fault.CodeOf(err) == recordRefused
	switch {
	case dropped:
		j.log.Error("a call is not recorded: the ledger refuses its record", append(batch[0].record.names(), "err", err)...)
	case err != nil:
		j.log.Error("calls could not be recorded; the gateway tries again", "calls", len(batch), "err", err)
	}
	for i := range batch {
		if batch[i].done != nil {
			batch[i].done <- err
			batch[i].done = nil
		}
		if err != nil && !dropped {
			behind = append(behind, batch[i])
			continue
		}
		if batch[i].inRoom {
			<-j.room
		}
		j.spill.written(batch[i].in)
	}
	return behind
}

// recordRefused is the code of a ledger that takes changes, but not this one.
const recordRefused = "ledger_refused"

// names returns the log attributes of a record.
func (r Record) names() []any {
	return []any{"chain", r.Chain, "tool_call_id", r.ToolCallID, "tool_id", r.ToolID, "principal", r.Principal}
}
