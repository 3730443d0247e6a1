package gate

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"slurmgate/fault"
)

// Allowance bounds how many calls of a caller may leave permanent data in the ledger: the record of an effect, or an
// idempotency key. 0 is no bound.
type Allowance struct {
	PerMinute int // at once, and as many again in a minute
	PerDay    int // as PerMinute, in a day
}

const (
	codeManyRecords = "too_many_records"
	allowancesKept  = 4096 // callers; beyond, those who have all of theirs are forgotten
)

// records keeps what each caller has left of the allowance, since the gateway started.
type records struct {
	Allowance
	mu   sync.Mutex
	left map[string]*left
}

// left holds what a caller had left when it last called. (golang.org/x/time/rate cannot give back what a call took that left nothing: its
// reservations are final once their time has come.)
type left struct {
	minute, day float64
	at          time.Time
}

func newRecords(a Allowance) *records { return &records{Allowance: a, left: map[string]*left{}} }

// take counts one call. The fault is Transport, with the seconds to wait.
func (r *records) take(caller string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.refilled(caller, now)
	for _, b := range []struct {
		left  *float64
		most  int
		per   time.Duration
		field string
	}{{&l.minute, r.PerMinute, time.Minute, "minute"}, {&l.day, r.PerDay, 24 * time.Hour, "day"}} {
		if b.most > 0 && *b.left < 1 {
			wait := int(math.Ceil((1 - *b.left) * b.per.Seconds() / float64(b.most)))
			return fault.New(fault.Transport, codeManyRecords, fmt.Sprintf("you have made more than %d calls in a %s that are recorded for ever",
				b.most, b.field)).WithNext(fmt.Sprintf("call again in %d s, or ask the administrator to raise limits.caller_records_per_%s",
				wait, b.field)).WithRetry(wait)
		}
	}
	l.minute--
	l.day--
	return nil
}

// giveBack takes one call back that left nothing.
func (r *records) giveBack(caller string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.refilled(caller, now)
	l.minute++
	l.day++
}

// refilled returns what a caller has left now. Under mu.
func (r *records) refilled(caller string, now time.Time) *left {
	minute, day := float64(r.PerMinute), float64(r.PerDay)
	refill := func(l *left) {
		passed := max(0, now.Sub(l.at).Seconds())
		l.minute, l.day, l.at = min(minute, l.minute+passed*minute/60), min(day, l.day+passed*day/86400), now
	}
	l := r.left[caller]
	if l == nil {
		if len(r.left) >= allowancesKept {
			maps.DeleteFunc(r.left, func(_ string, o *left) bool { refill(o); return o.minute == minute && o.day == day })
		}
		l = &left{minute, day, now}
		r.left[caller] = l
	}
	refill(l)
	return l
}
