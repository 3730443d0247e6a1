package run

import (
	"fmt"
	"math"
	"strings"

	"slurmgate/fault"
)

// WaitsForTurn is the code of a run that is ready and waits for its turn to be staged, sent or collected.
const WaitsForTurn = "turn"

// SiteRemoved is the code of a run on a site that the site file no longer has: renamed or removed.
const SiteRemoved = "site_removed"

// siteRemoved says so, and what to do.
func siteRemoved(site string) *fault.Error {
	return fault.New(fault.Conflict, SiteRemoved,
		"the run is on the site "+site+", which the site file no longer has, so nothing is done for it").
		WithNext("add the site to the site file again, under that name, and reload the gateway")
}

// elsewhere reports whether a run that is not over is on another site, which then has no engine. An old ledger's run may have no site yet.
func (e *Engine) elsewhere(r Run) bool {
	return r.Phase != Done && r.Site != "" && r.Site != e.cfg.Site
}

// Wait is what a run waits for in the gateway, and behind whom. Of other projects it gives one number, and no names.
type Wait struct {
	Code    string         `json:"code"` // turn, site_removed, or the limit on runs in flight: concurrency_limit, project_limit, caller_limit
	Text    string         `json:"text"`
	Ahead   int            `json:"ahead"`           // runs whose turn comes before, as things are now
	Caller  int            `json:"caller_waiting"`  // runs of its caller in its project that wait with it, itself included
	Project int            `json:"project_waiting"` // runs of its project that do, those included
	Others  int            `json:"others_waiting"`  // runs of other projects that do
	Busiest *CallerWaiting `json:"busiest"`         // the other caller of its project with the most of them; null for none
	Limit   *int           `json:"limit"`           // of runs in flight; null where the run waits for its turn alone
	Current *int           `json:"in_flight"`       // of what the limit is about
}

// CallerWaiting is how many runs of a caller wait.
type CallerWaiting struct {
	PrincipalID string `json:"principal_id"`
	Principal   string `json:"principal"` // the name; empty where it is not known
	Waiting     int    `json:"waiting"`
}

// place says where an item waits; nil if it does not.
func (t *turns[K]) place(item K) *Wait {
	mine := t.at[item]
	if mine == nil {
		return nil
	}
	before := 0 // of its caller
	for _, k := range mine.items {
		if k == item {
			break
		}
		before++
	}
	p := mine.project
	w := &Wait{Code: WaitsForTurn, Ahead: before, Caller: mine.n, Project: p.n, Others: len(t.at) - p.n}
	for id, l := range p.callers {
		if l == mine || l.n == 0 {
			continue
		}
		w.Ahead += turnsBefore(l.n, l.turn, 1, mine.turn+float64(before), id < mine.share.Caller)
		if w.Busiest == nil || l.n > w.Busiest.Waiting || l.n == w.Busiest.Waiting && id < w.Busiest.PrincipalID {
			w.Busiest = &CallerWaiting{PrincipalID: id, Waiting: l.n}
		}
	}
	at := p.turn + float64(w.Ahead)/t.weightOf(mine.share.Project)
	for id, q := range t.projects {
		if q != p && q.n > 0 {
			w.Ahead += turnsBefore(q.n, q.turn, t.weightOf(id), at, id < mine.share.Project)
		}
	}
	return w
}

func (t *turns[K]) weightOf(project string) float64 { return float64(max(1, t.weight(project))) }

// turnsBefore is how many of n things, whose turns begin at first, come before a turn; wins: the one at the same turn does too.
func turnsBefore(n int, first, weight, turn float64, wins bool) int {
	exact := (turn - first) * weight
	before := int(math.Ceil(exact))
	if at := math.Round(exact); math.Abs(exact-at) < 1e-6 { // the same turn, but for the rounding of thirds
		if before = int(at); wins {
			before++
		}
	}
	return min(n, max(0, before))
}

// text is the wait in words.
func (w *Wait) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "waits for its turn: %d %s before it", w.Ahead, runs(w.Ahead))
	fmt.Fprintf(&b, "; its caller has %d waiting, its project %d, other projects %d", w.Caller, w.Project, w.Others)
	return b.String()
}

func runs(n int) string {
	if n == 1 {
		return "run"
	}
	return "runs"
}

// waits says what a run waits for in the gateway, nil for nothing. Nothing is asked of the ledger.
func (e *Engine) waits(runID string, tool string, s Share) *Wait {
	if w := e.limits.place(runID, tool, s); w != nil {
		return w
	}
	w := e.sends.place(runID)
	if w == nil {
		w = e.work.place(runID)
	}
	if w != nil {
		w.Text = w.text()
	}
	return w
}

func (l *sendLine) place(runID string) *Wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.place(runID)
}

func (q *workQueue[K]) place(id K) *Wait {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.place(id)
}

// place says where a run waits for a place among those in flight, and for which limit.
func (l *limiter) place(runID, tool string, s Share) *Wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	var w *Wait
	for _, q := range l.waiting {
		if w = q.place(runID); w != nil {
			break
		}
	}
	if w == nil {
		return nil
	}
	for _, b := range l.boundsOf(tool, s) {
		if l.full(b) {
			most, now := l.most(b), l.flying[b]
			w.Code, w.Limit, w.Current = b.reason, &most, &now
			what := map[string]string{ConcurrencyLimit: "its tool", ProjectLimit: "its project", CallerLimit: "its caller"}[b.reason]
			w.Text = fmt.Sprintf("waits: %s has %d runs in flight (limit %d); %d %s before it", what, now, most, w.Ahead, runs(w.Ahead))
			return w
		}
	}
	w.Text = w.text()
	return w
}

// waitsOf is what the run waits for while it is staged or to be sent; of a run that waits for a reason of its own, that says more.
func (e *Engine) waitsOf(r Run) *Wait {
	switch {
	case e.elsewhere(r):
		return &Wait{Code: SiteRemoved, Text: fault.Prose(siteRemoved(r.Site))}
	case r.Phase != Staging && r.Phase != Deferred && r.Phase != Collecting:
		return nil
	}
	return e.waits(r.ID, toolOf(r), ShareOf(r))
}

// Waits says what a run waits for in the gateway; nil for nothing.
func (s *Sites) Waits(r Run) *Wait { return s.reader(r.Site).waitsOf(r) }
