package gate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"slurmgate/fault"
)

// Idempotency keys (HTC-10). A key belongs to a principal, is bound to one payload, and never expires. The first
// final outcome counts: a call that failed in a way that may be tried again leaves the key bound and open. A call
// that only reads needs no key: it is answered anew each time, and its key is recorded but bound to nothing.
//
// Each repeated call passes the gate like the first one. In addition, the principal must have every right that it had
// then, because the outcome may contain what only those rights allow it to see.
//
// A gateway that ends between binding a key and settling it leaves it open too. A tool that is idempotent by itself –
// a submit finds its run – is then carried out again; for any other tool it is unknown whether it had its effect, and
// the answer reports that.

// flights prevents concurrent calls with the same key: the second waits and finds the first one's outcome. One
// gateway owns the ledger, so its memory is enough.
type flights struct{ open sync.Map } // [2]string → chan struct{}

// enter waits until no call with the key is in progress. The caller calls leave.
func (f *flights) enter(ctx context.Context, who Caller, key string, waits *Counter) (leave func(), err error) {
	k, mine := [2]string{who.Key(), key}, make(chan struct{})
	for {
		other, busy := f.open.LoadOrStore(k, mine)
		if !busy {
			return func() {
				f.open.Delete(k)
				close(mine)
			}, nil
		}
		if !waits.Add(who.Key()) {
			return nil, fault.New(fault.Transport, "too_many_waits", "too many of your calls are waiting already").
				WithNext("repeat the call when some of them have ended").WithRetry(retryIn)
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			err = ctx.Err()
		}
		if waits.Remove(who.Key()); err != nil {
			return nil, err
		}
	}
}

// known finds a key. For a settled key it returns the outcome, for an open one that may be used the key.
func (g *Gate) known(ctx context.Context, who Caller, t Tool, keyHash, binding string, names map[string]string) (k *Key, first *Response,
	err error) {
	got, err := g.promises.Key(ctx, who.Principal, keyHash)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case !who.has(got.Rights): // first: to those with fewer rights, the answer does not depend on what the key is bound to
		return nil, nil, fault.New(fault.Capability, "idempotency_rights",
			"this idempotency key was used with rights that the caller no longer has").
			WithNext("use a new key, or ask the administrator for the rights of the first call")
	case got.Binding != binding && len(names) > 0:
		return nil, nil, fault.New(fault.Conflict, "idempotency_conflict", "this idempotency key was already used for another call, or when "+
			strings.Join(slices.Sorted(maps.Keys(names)), " or ")+" stood for other content").
			WithNext("use a new key; to have the earlier content again, name it by its digest: ref:NAME@sha256:DIGEST")
	case got.Binding != binding:
		return nil, nil, fault.New(fault.Conflict, "idempotency_conflict", "this idempotency key was already used for another call").
			WithNext("use a new key for new arguments")
	case got.Outcome != nil:
		var o outcome
		err := json.Unmarshal(got.Outcome, &o)
		o.Response.RunID, o.Response.resultHash = o.Run, o.ResultHash
		return &got, &o.Response, err
	case t.Idempotency != Idempotent && !t.Resumes:
		return nil, nil, fault.New(fault.Unknown, "outcome_unknown",
			"an earlier call with this key was interrupted, and it is unknown whether it had its effect").
			WithNext("check whether it had, for example with a list; if not, call with a new key")
	}
	return &got, nil, nil
}

// outcome is the answer stored under an idempotency key.
type outcome struct {
	Response
	Run        string `json:"run_id,omitempty"`      // see [Response.RunID]
	ResultHash string `json:"result_hash,omitempty"` // of a result that is in an artifact
}

// final reports whether a call's outcome is the key's final outcome.
func final(err error) bool {
	switch k := fault.KindOf(err); {
	case err == nil:
		return true
	case k == fault.Canceled, k == fault.Auth, k == fault.Internal, k == fault.Unknown:
		return false
	default:
		return !k.Retryable()
	}
}
