package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Refused calls and callers who could not be identified have a separate chain of records. A flood of them must
// neither fill the disk nor push the records of others out of that chain, so each source gets only so many records
// and the rest are counted:
//
//   - a caller without known credentials is identified by address or user id: the first request with an error code has a record, the
//     following ones share one record with their number at the end of a window;
//   - a known principal has a record for each refused call while its allowance lasts, then one for each tool and error code and window.
//
// A window is a minute; while a source continues, each is twice as long as the one before, up to a quarter of an
// hour. Sources beyond a fixed number are counted together. The counts are in a file next to the ledger too
// ([refusalCounts]), before the call is answered.

// unknownCaller begins the principal of a request whose caller could not be identified; "@" and the source follow.
const unknownCaller = "unauthenticated@"

const (
	refusalPause   = time.Minute
	refusalLongest = 15 * time.Minute
	maxRefusals    = 64  // counted apart at a time, of callers who could not be identified and of those who could
	maxOwnRefusals = 8   // of them one principal's, by tool and code
	allowance      = 100 // refused calls of a principal that have a record of their own in a row,
	allowanceEvery = 2 * time.Minute
	elsewhere      = "elsewhere"
)

// Source is the origin of a request whose caller could not be identified.
type Source struct {
	Transport Transport
	From      string // "uid:1001", or an address; what is counted together
	Face      Face
	Address   string // see [Caller]
}

// refusalKey identifies refused calls that are counted together.
type refusalKey struct {
	principal string // as in the record
	transport Transport
	toolID    string // "" for several
	code      string
	known     bool // the principal is one
}

// refused is one such call: what its record is made of.
type refused struct {
	who Caller
	req Request
	res Response
	t   trail
}

type refusal struct {
	more   int64 // not recorded yet
	taken  int64 // being recorded
	slot   int   // in refusalCounts, while calls are counted
	last   refused
	window time.Duration
	end    *time.Timer
}

// spare is what remains of a principal's allowance.
type spare struct {
	left int
	at   time.Time // of the last refill
}

// refusals counts what is refused.
type refusals struct {
	mu     sync.Mutex
	open   map[refusalKey]*refusal
	spares map[string]*spare
	now    func() time.Time
	record func(r refused, count int64) bool // false: there is no room
	counts *refusalCounts                    // under mu
	bare   func(r refused) (Record, error)   // for counts

	flushing sync.WaitGroup // counted under mu
}

func newRefusals(now func() time.Time, record func(refused, int64) bool, t *refusalCounts, bare func(refused) (Record, error)) *refusals {
	return &refusals{open: map[refusalKey]*refusal{}, spares: map[string]*spare{}, now: now, record: record, counts: t, bare: bare}
}

// own takes one of the records in the principal's allowance; false when the allowance is used up.
func (r *refusals) own(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s := r.spares[key]
	if s == nil {
		if len(r.spares) >= 16*maxRefusals {
			r.forget(now)
		}
		s = &spare{allowance, now}
		r.spares[key] = s
	}
	if n := int(now.Sub(s.at) / allowanceEvery); n > 0 {
		s.left, s.at = min(allowance, s.left+n), s.at.Add(time.Duration(n)*allowanceEvery)
	}
	s.left--
	if s.left >= 0 {
		return true
	}
	s.left = 0
	return false
}

// forget drops what is full again.
func (r *refusals) forget(now time.Time) {
	for key, s := range r.spares {
		if now.Sub(s.at) >= time.Duration(allowance-s.left)*allowanceEvery {
			delete(r.spares, key)
		}
	}
}

// add counts a refused call, or records it where it is the first of a caller who could not be identified.
func (r *refusals) add(k refusalKey, c refused) {
	r.mu.Lock()
	k = r.room(k)
	if one := r.open[k]; one != nil {
		r.count(k, one, c)
		r.mu.Unlock()
		return
	}
	one := &refusal{window: refusalPause, slot: -1}
	one.end = time.AfterFunc(one.window, func() { r.flush(k) })
	if k.known {
		r.count(k, one, c)
	}
	r.open[k] = one
	r.mu.Unlock()
	if !k.known && !r.record(c, 1) {
		r.mu.Lock()
		r.count(k, one, c)
		r.mu.Unlock()
	}
}

// count adds one call. It is called under mu.
func (r *refusals) count(k refusalKey, one *refusal, c refused) {
	one.more++
	one.last = c
	if one.slot < 0 {
		one.slot = r.counts.take(r.bare(k.of(c)))
	} else {
		r.counts.count(one.slot, one.more+one.taken)
	}
}

// of returns a call as it is in the record of all calls counted with it.
func (k refusalKey) of(c refused) refused {
	if k.principal == elsewhere { // from many places
		c.who.Name, c.who.Face, c.who.Address = elsewhere, "", ""
		if !k.known {
			c.who.Name = unknownCaller + elsewhere
		}
	}
	return c
}

// room returns the key to count under: a wider one where there is no room for another.
func (r *refusals) room(k refusalKey) refusalKey {
	if r.open[k] != nil {
		return k
	}
	all, his := 0, 0
	for other := range r.open {
		if other.known == k.known {
			all++
		}
		if other.principal == k.principal {
			his++
		}
	}
	if his >= maxOwnRefusals {
		k.toolID, k.code = "", ""
	}
	if all >= maxRefusals {
		return refusalKey{principal: elsewhere, known: k.known}
	}
	return k
}

// flush records how many there were since the last record. What there is no room for is counted on; then done is false.
func (r *refusals) flush(k refusalKey) (done bool) {
	r.mu.Lock()
	one := r.open[k]
	if one == nil {
		r.mu.Unlock()
		return true
	}
	n, c := one.more, one.last
	if n == 0 && one.taken == 0 { // the series has ended
		r.counts.end(one.slot)
		delete(r.open, k)
		r.mu.Unlock()
		return true
	}
	one.more, one.taken, one.window = 0, one.taken+n, min(2*one.window, refusalLongest)
	one.end.Reset(one.window)
	r.flushing.Add(1)
	defer r.flushing.Done()
	r.mu.Unlock()
	if n == 0 {
		return true
	}
	c = k.of(c)
	body := *c.res.Error
	body.Message = fmt.Sprintf("%s (the last of %d refused calls that this record counts)", body.Message, n)
	c.res.Error = &body
	recorded := r.record(c, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	one.taken -= n
	if !recorded {
		one.more += n
		return false
	}
	r.counts.count(one.slot, one.more+one.taken)
	return true
}

// close records what is counted, if there is room within [journalWait].
func (r *refusals) close() {
	r.mu.Lock()
	var keys []refusalKey
	for k, one := range r.open {
		one.end.Stop()
		keys = append(keys, k)
	}
	r.mu.Unlock()
	until := time.Now().Add(journalWait)
	for _, k := range keys {
		for !r.flush(k) && time.Now().Before(until) {
			time.Sleep(linger)
		}
	}
	r.flushing.Wait() // for those that a timer had begun
	r.mu.Lock()
	any := false
	for _, one := range r.open {
		one.end.Stop()
		any = any || one.more+one.taken > 0
	}
	r.counts.close(any)
	r.mu.Unlock()
}

// Refuse answers and records a request whose caller could not be identified, or that is not meant for this gateway. It never got as far as
// a call: its ids are the gateway's own, its tool is one that no tool can be.
func (g *Gate) Refuse(from Source, err error) Response {
	now := g.now().UTC()
	res := Response{SchemaVersion: SchemaVersion, ToolCallID: uuid.NewString(), TraceID: uuid.NewString(),
		Error:  BodyOf(g.words.Of(from.Transport), err),
		Timing: Timing{StartedAt: now, EndedAt: now}, Resources: touched()}
	res.Error = g.registry.concealedError(from.Transport, res.Error)
	g.seal(&res, Tool{})
	if g.journal != nil {
		c := refused{Caller{Principal: Principal{Name: unknownCaller + from.From}, Transport: from.Transport, Face: from.Face,
			Address: from.Address}, Request{}, res,
			trail{instead: InvalidCall}}
		if fault.Is(err, fault.Auth) {
			c.t.instead = LoginCall
		}
		g.refusals.add(refusalKey{principal: c.who.Name, transport: from.Transport, code: res.Error.Code}, c)
	}
	return res
}

// tooMany reports whether the call is one of so many refused ones of its caller that it is only counted.
func (g *Gate) tooMany(who Caller, req Request, res Response, t trail) bool {
	if chainOf(res, t) != Refused || t.key != nil && t.final || g.refusals.own(who.Key()) {
		return false
	}
	who.Body = nil
	c := refused{who, Request{ToolID: req.ToolID, Actor: req.Actor}, res, trail{tool: t.tool, instead: t.instead}}
	g.refusals.add(refusalKey{who.Key(), who.Transport, t.recordedID(req), res.Error.Code, true}, c)
	return true
}

// recordRefused writes one record for a number of refused calls, if there is room for it: records of other calls come first.
func (g *Gate) recordRefused(c refused, count int64) bool {
	if !g.journal.hasRoom() {
		return false
	}
	r, err := g.record(c.who, c.req, c.res, c.t)
	if err != nil {
		g.log.Error("the record of a refused call breaks its schema; a bare one is written", "err", err)
		r, err = g.bareRecord(c.who, c.res, c.t)
	}
	if err != nil {
		return true // it would fail again
	}
	r.Count = count
	return g.journal.keep(r, false) == nil
}

// bareRefused returns the record of a refused call without anything its caller wrote.
func (g *Gate) bareRefused(c refused) (Record, error) { return g.bareRecord(c.who, c.res, c.t) }

// Malformed answers and records a call that a face could not parse: of a known caller, and of a known tool where the
// face has it.
func (g *Gate) Malformed(ctx context.Context, who Caller, toolID string, err error) Response {
	return g.call(ctx, who, Request{ToolID: toolID}, plan.Doc{}, orMalformed(err))
}

func orMalformed(err error) error {
	if fault.Is(err, fault.Internal) {
		return noEnvelope(err)
	}
	return err
}
