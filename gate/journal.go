package gate

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
)

// The journal writes records in the background, many at a time. A call that may have changed something waits until its record is on
// the disk; a look is answered at once, and its record follows within [linger]. So a crash can lose the records of the
// looks of that time, and of nothing else. What cannot be written is kept and tried again; when there is no more room for
// records, calls are refused until there is.

const (
	linger      = 50 * time.Millisecond
	maxUnkept   = 4096            // records waiting
	maxBatch    = 64              // records in one transaction: a submit that comes meanwhile waits for them
	journalWait = 2 * time.Second // for room
	retryPause  = time.Second
)

type journal struct {
	store Journal
	log   *slog.Logger
	room  chan struct{} // a token for each record that waits
	in    chan kept
	done  chan struct{} // closed when the writer has ended

	mu     sync.RWMutex
	closed bool
}

type kept struct {
	record Record
	told   chan error // nil: nobody waits
}

func newJournal(store Journal, log *slog.Logger) *journal {
	j := &journal{store: store, log: log, room: make(chan struct{}, maxUnkept), in: make(chan kept, maxUnkept), done: make(chan struct{})}
	go j.write()
	return j
}

// admit takes room for one record, before the call is carried out: a call that could not be recorded is not made.
func (j *journal) admit(ctx context.Context) error {
	select {
	case j.room <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(journalWait)
	defer timer.Stop()
	select {
	case j.room <- struct{}{}:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return fault.New(fault.Transport, "gate.Call", "journal_full", "calls cannot be recorded at present, so none is made").WithNext("see the gateway's log: is the disk of gateway.state_dir full?")
}

// keep hands a record over; with wait it returns when the record is durable, or could not be made so.
func (j *journal) keep(r Record, wait bool) error {
	k := kept{record: r}
	if wait {
		k.told = make(chan error, 1)
	}
	j.mu.RLock()
	if j.closed {
		j.mu.RUnlock()
		return fault.New(fault.Transport, "gate.Call", "gateway_stopping", "the gateway stops")
	}
	j.in <- k // there is room: admit took it
	j.mu.RUnlock()
	if !wait {
		return nil
	}
	return <-k.told
}

// close writes what waits and ends the writer. Nothing is kept afterwards.
func (j *journal) close() {
	j.mu.Lock()
	if !j.closed {
		j.closed = true
		close(j.in)
	}
	j.mu.Unlock()
	<-j.done
}

func (j *journal) write() {
	defer close(j.done)
	var behind []Record // could not be written yet
	for open := true; open; {
		var batch []kept
		batch, open = j.gather(len(behind) > 0)
		behind = j.commit(behind, batch)
	}
	if len(behind) > 0 {
		j.log.Error("calls are not recorded", "calls", len(behind))
	}
}

// gather takes what is there; while nobody waits for it, a little longer. With records behind it returns after a while even
// with nothing. open is false when no more will come.
func (j *journal) gather(behind bool) (batch []kept, open bool) {
	var wait <-chan time.Time
	if behind {
		timer := time.NewTimer(retryPause)
		defer timer.Stop()
		wait = timer.C
	}
	for len(batch) < maxBatch {
		select {
		case k, ok := <-j.in:
			if !ok {
				return batch, false
			}
			if batch = append(batch, k); k.told != nil {
				return j.rest(batch)
			}
			if wait == nil {
				timer := time.NewTimer(linger)
				defer timer.Stop()
				wait = timer.C
			}
		case <-wait:
			return batch, true
		}
	}
	return batch, true
}

// rest adds what is there already.
func (j *journal) rest(batch []kept) ([]kept, bool) {
	for len(batch) < maxBatch {
		select {
		case k, ok := <-j.in:
			if !ok {
				return batch, false
			}
			batch = append(batch, k)
		default:
			return batch, true
		}
	}
	return batch, true
}

// commit writes what is behind and the batch, tells those who wait, and gives what is behind now.
func (j *journal) commit(behind []Record, batch []kept) []Record {
	records := behind
	for _, k := range batch {
		records = append(records, k.record)
	}
	if len(records) == 0 {
		return nil
	}
	err := j.store.Record(context.Background(), records)
	if err != nil {
		j.log.Error("calls could not be recorded; they are kept and tried again", "calls", len(records), "err", err)
	}
	if fault.CodeOf(err) == recordRefused {
		records = slices.DeleteFunc(records, j.refused) // one that can never be written must not keep the others back
		err = j.store.Record(context.Background(), records)
	}
	for _, k := range batch {
		if k.told != nil {
			k.told <- err
		}
	}
	left := 0
	if err != nil {
		left = len(records)
	}
	for range len(behind) + len(batch) - left {
		<-j.room
	}
	return records[:left:left]
}

// recordRefused is the code of a ledger that takes changes, but not this one.
const recordRefused = "ledger_refused"

// refused writes a record alone and tells whether to let it go: it is written now, or never will be.
func (j *journal) refused(r Record) bool {
	err := j.store.Record(context.Background(), []Record{r})
	if err != nil && fault.CodeOf(err) == recordRefused {
		j.log.Error("a call is not recorded", "tool_call_id", r.ToolCallID, "tool_id", r.ToolID, "err", err)
		return true
	}
	return err == nil
}
