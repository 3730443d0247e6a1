package run

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
)

// An sbatch may hang for ever, on a filesystem or in a plugin. It blocks nothing else of the site: after hungAfter its
// send is in doubt like any other, so its runs can be declared absent, adopted or cancelled, which the claim decides,
// and the next send takes its place.

const (
	hungAfter = 2 * time.Minute // about as long as an sbatch tries while the queue is full
	hungMost  = 8               // hanging sends that stop new ones; those in flight then may hang too
)

// Codes of sends that hang.
const (
	SendHeld  = "send_held"  // a doubt: sbatch has not ended
	SendsHang = "sends_hang" // a send that was not begun, because too many hang
)

// hungSends has the sends whose sbatch had not ended when last checked.
type hungSends struct {
	now      func() time.Time
	checking sync.Mutex // held while it is checked whether they have ended
	mu       sync.Mutex
	list     map[string]*heldSend // by token and number
}

type heldSend struct {
	user  string // executed as this user; a user's hanging sends delay only that user's
	job   JobSpec
	k     int
	since time.Time
	text  string // identifies the process
}

// sendOnce calls Submitter.Send and waits for hungAfter at most.
func (e *Engine) sendOnce(ctx context.Context, v View, job JobSpec, k int) SendResult {
	began := e.Now()
	within, stop := context.WithTimeout(ctx, hungAfter)
	defer stop()
	res := e.Submitter.Send(within, job, k)
	if ctx.Err() != nil || res.Code != SendHeld || within.Err() == nil {
		return res
	}
	res, held := e.Submitter.Receipt(ctx, job, k)
	if held {
		e.hung.saw(v.Run.ExecutedAs, job, k, began, res.Text)
		res.Text = heldDetail(res)
		e.Log.Warn("an sbatch hangs", append(about(v), "send", k, "detail", res.Text)...)
	}
	return res
}

// heldDetail returns the detail of a run whose sbatch has not ended, with what can be done.
func heldDetail(res SendResult) string {
	return res.Text + ". If it hangs, end that process, or declare the run absent or cancel it: the claim decides whether a job may still " +
		"execute"
}

// saw records a send that has not ended since.
func (h *hungSends) saw(user string, job JobSpec, k int, since time.Time, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := fmt.Sprintf("%s/%d", job.Token, k)
	if h.list == nil {
		h.list = map[string]*heldSend{}
	}
	if h.list[key] == nil {
		h.list[key] = &heldSend{user: user, job: job, k: k, since: since, text: text}
	}
}

// hanging returns the sends as a user, "" for the gateway's own, that have not ended for hungAfter, the oldest first.
func (h *hungSends) hanging(user string) (list []heldSend) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.list {
		if s.user == user && h.now().Sub(s.since) >= hungAfter {
			list = append(list, *s)
		}
	}
	slices.SortFunc(list, func(a, b heldSend) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.job.Token, b.job.Token))
	})
	return list
}

// fault returns a fault that names the hanging sends as the user; nil: none hangs.
func (h *hungSends) fault(user string) error {
	list := h.hanging(user)
	if len(list) == 0 {
		return nil
	}
	var texts []string
	for _, s := range list[:min(len(list), 3)] {
		texts = append(texts, fmt.Sprintf("since %s %s (%s)", s.since.UTC().Format(time.RFC3339), s.text, s.job.RunID))
	}
	return fault.New(fault.Transport, SendsHang, fmt.Sprintf("%d sbatch did not end within %s: %s", len(list), hungAfter,
		strings.Join(texts, "; "))).WithNext(fmt.Sprintf("end the processes that hang; with %d of them no other run is sent", hungMost))
}

// full reports whether so many sends as the user hang that no other may begin.
func (h *hungSends) full(user string) (pause, bool) {
	if len(h.hanging(user)) < hungMost {
		return pause{}, false
	}
	return pause{code: SendsHang, detail: fault.Prose(h.fault(user))}, true
}

// holdSend reports whether a run must not be sent now, and why: a pause holds it, or too many sends hang.
func (e *Engine) holdSend(runID string, at sendTarget) (pause, bool) {
	if why, held := e.pressure.holdIfPaused(runID, at); held {
		return why, true
	}
	why, held := e.hung.full(at.user)
	if held {
		e.pressure.delay(runID, e.cfg.Ceiling)
	}
	return why, held
}

// forgetEnded forgets the sends that have ended. A check as a user may take long, so it runs in the background.
func (e *Engine) forgetEnded(ctx context.Context) {
	if !e.hung.checking.TryLock() {
		return
	}
	e.checks.flying.Go(func() {
		defer e.hung.checking.Unlock()
		e.dropEnded(ctx)
	})
}

func (e *Engine) dropEnded(ctx context.Context) {
	e.hung.mu.Lock()
	list := slices.Collect(maps.Values(e.hung.list))
	e.hung.mu.Unlock()
	for _, s := range list {
		if _, held := e.Submitter.Receipt(ctx, s.job, s.k); !held && ctx.Err() == nil {
			e.hung.mu.Lock()
			delete(e.hung.list, fmt.Sprintf("%s/%d", s.job.Token, s.k))
			e.hung.mu.Unlock()
			e.Log.Info("an sbatch that hung has ended", "run_id", s.job.RunID, "send", s.k)
		}
	}
}
