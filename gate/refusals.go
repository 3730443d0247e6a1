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

// Requests of callers nobody knows are recorded too, as looks under a principal that no caller can have. A flood of them must neither fill
// the disk nor push the records of known callers out of the chain of looks, so of each source, face and error code one record a minute is
// written for the first and one for all that follow, with their number. Sources beyond a fixed number are counted together.

// unknownCaller begins the principal of a request that was refused because nobody knows who made it; "@" and the source follow.
const unknownCaller = "unauthenticated@"

const (
	refusalPause = time.Minute
	maxRefusals  = 64 // counted apart at a time
	elsewhere    = "elsewhere"
)

// Source is where a request of an unknown caller came from.
type Source struct {
	Transport Transport
	From      string // "uid:1001", or an address
}

type refusalKey struct {
	Source
	code string
}

type refusal struct {
	more int // since the first was recorded
	last Response
	end  *time.Timer
}

// refusals counts what is refused.
type refusals struct {
	mu     sync.Mutex
	open   map[refusalKey]*refusal
	record func(refusalKey, *Response)
}

func newRefusals(record func(refusalKey, *Response)) *refusals {
	return &refusals{open: map[refusalKey]*refusal{}, record: record}
}

// add records a refusal, or counts it.
func (r *refusals) add(k refusalKey, res *Response) {
	r.mu.Lock()
	known := r.open[k]
	if known == nil && len(r.open) >= maxRefusals {
		k.From = elsewhere
		known = r.open[k]
	}
	if known != nil {
		known.more++
		known.last = *res
		r.mu.Unlock()
		return
	}
	r.open[k] = &refusal{end: time.AfterFunc(refusalPause, func() { r.flush(k) })}
	r.mu.Unlock()
	r.record(k, res)
}

// flush records how many there were after the first.
func (r *refusals) flush(k refusalKey) {
	r.mu.Lock()
	known := r.open[k]
	delete(r.open, k)
	r.mu.Unlock()
	if known == nil || known.more == 0 {
		return
	}
	res := known.last
	body := *res.Error
	body.Message = fmt.Sprintf("%s (this is the last of %d such requests in a minute, after one that has a record of its own)", body.Message,
		known.more)
	res.Error = &body
	r.record(k, &res)
}

// close records what is counted.
func (r *refusals) close() {
	r.mu.Lock()
	var keys []refusalKey
	for k, known := range r.open {
		known.end.Stop()
		keys = append(keys, k)
	}
	r.mu.Unlock()
	for _, k := range keys {
		r.flush(k)
	}
}

// Refuse answers and records a request whose caller nobody knows, or that is not meant for this gateway. It never got as far as a call:
// its ids are the gateway's own, its tool is "unknown".
func (g *Gate) Refuse(from Source, err error) Response {
	now := g.now().UTC()
	res := Response{SchemaVersion: SchemaVersion, ToolCallID: uuid.NewString(), TraceID: uuid.NewString(), Error: BodyOf(from.Transport,
		err), Timing: Timing{StartedAt: now, EndedAt: now}, Resources: touched()}
	res.Error = g.registry.concealedError(from.Transport, res.Error)
	g.seal(&res, Tool{})
	if g.journal != nil {
		g.refusals.add(refusalKey{from, res.Error.Code}, &res)
	}
	return res
}

// recordRefusal writes one record, if there is room for it: records of known callers come first.
func (g *Gate) recordRefusal(k refusalKey, res *Response) {
	if !g.journal.hasRoom() {
		g.log.Error("a refused request is not recorded: the journal is full", "from", k.From, "code", k.code)
		return
	}
	g.remember(Caller{Principal: Principal{Name: unknownCaller + k.From}, Transport: k.Transport}, Request{}, res, trail{})
}

// Malformed answers and records a call that a face could not make sense of: of a known caller, and of a known tool where the face knows
// which.
func (g *Gate) Malformed(ctx context.Context, who Caller, toolID string, err error) Response {
	return g.call(ctx, who, Request{ToolID: toolID}, plan.Doc{}, orMalformed(err))
}

func orMalformed(err error) error {
	if fault.Is(err, fault.Internal) {
		return noEnvelope(err)
	}
	return err
}
