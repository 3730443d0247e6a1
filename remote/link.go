package remote

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// link is one connection.
type link struct {
	number   int // 0: a connection of More
	client   *ssh.Client
	closeAll func()
	slots    *slots
	used     atomic.Bool   // a call has had its answer
	gone     chan struct{} // closed when the connection has ended
	err      error         // reason of the end; valid after gone

	renew time.Time // from then on new calls need another connection; zero: never
	until time.Time // end of its certificate

	mu    sync.Mutex
	calls int       // running: scripts, requests over SFTP, openings of channels
	last  time.Time // when the last one ended
	why   string    // reason why this side closed it; "": it did not
}

// renewal is the longest time before the end of its certificate in which a connection accepts no further calls.
const renewal = 30 * time.Second

// adopt records a new connection. The caller holds mu.
func (h *Host) adopt(d dialed) *link {
	now := time.Now()
	l := &link{client: d.Client, closeAll: d.closeAll, slots: newSlots(sessions), gone: make(chan struct{}), last: now, until: d.until}
	if !d.until.IsZero() {
		l.renew = d.until.Add(-min(renewal, d.until.Sub(now)/5))
	}
	h.links[l] = true
	go func() {
		l.err = d.Wait()
		close(l.gone)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.links, l)
	}()
	if !l.until.IsZero() || h.cfg.Idle > 0 {
		go h.tend(l)
	}
	return l
}

// tend closes the connection when it is idle, or when its certificate ends.
func (h *Host) tend(l *link) {
	for {
		wait := l.review(time.Now(), h.cfg.Idle, h.timing)
		if wait == 0 {
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-l.gone:
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// review closes the connection if it is due, or returns the time until the next review. 0: the connection has ended.
func (l *link) review(now time.Time, idle time.Duration, t timing) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	after := func(last time.Duration) time.Duration { // a running call may end at any time
		if l.calls > 0 {
			return last
		}
		return max(time.Millisecond, last-now.Sub(l.last))
	}
	quiet := func(d time.Duration) bool { return l.calls == 0 && now.Sub(l.last) >= d }
	wait := time.Duration(1<<63 - 1)
	if idle > 0 {
		wait = after(idle)
	}
	switch {
	case l.why != "":
		return 0
	case idle > 0 && quiet(idle):
		l.endNow("nothing used it")
		return 0
	case l.until.IsZero():
		return wait
	case !now.Before(l.until.Add(t.grace)), !now.Before(l.renew) && quiet(t.quiet):
		l.endNow("its certificate ended")
		return 0
	case !now.Before(l.renew):
		return max(time.Millisecond, min(wait, after(t.quiet), l.until.Add(t.grace).Sub(now)))
	}
	return max(time.Millisecond, min(wait, l.renew.Sub(now)))
}

// enter begins a call if the connection accepts new ones, and reports whether it does.
func (l *link) enter(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != "" || !l.works() || !l.renew.IsZero() && !now.Before(l.renew) {
		return false
	}
	l.calls++
	return true
}

// hold begins a call, or a part of one, even if the connection accepts no new ones.
func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
}

// leave ends a call.
func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.last = time.Now()
}

// end closes the connection with all its calls. It does not count as lost.
func (l *link) end(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endNow(why)
}

// endNow is end for a caller that holds mu.
func (l *link) endNow(why string) {
	if l.why == "" {
		l.why = why
	}
	go l.closeAll()
}

// ended returns why this side closed the connection, or "" if it did not.
func (l *link) ended() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

func (l *link) works() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// close closes the connection, which counts as lost. It never blocks for long: the outermost connection is closed too,
// and with it all connections through it.
func (l *link) close() { l.closeAll() }
