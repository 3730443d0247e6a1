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

// siteRemoved returns the fault of a run on a removed site, with what to do.
func siteRemoved(site string) *fault.Error {
	return fault.New(fault.Conflict, SiteRemoved,
		"the run is on the site "+site+", which the site file no longer has, so nothing is done for it").
		WithNext("add the site to the site file again, under that name, and reload the gateway")
}

// elsewhere reports whether an unfinished run is on a site that has no engine any more. A run of an old ledger may have
// no site yet.
func (e *Engine) elsewhere(r Run) bool {
	return r.Phase != Done && r.Site != "" && r.Site != e.cfg.Site
}

// Wait is what a run waits for in the gateway, and its position in the queue. It has the number of other projects'
// runs, but no names.
type Wait struct {
	Code    string         `json:"code"` // turn, site_removed, or the limit on runs in flight: concurrency_limit, project_limit, caller_limit
	Text    string         `json:"text"`
	Ahead   int            `json:"ahead"`           // runs whose turn comes before, at present
	Caller  int            `json:"caller_waiting"`  // waiting runs of its caller in its project, itself included
	Project int            `json:"project_waiting"` // waiting runs of its project, those included
	Others  int            `json:"others_waiting"`  // waiting runs of other projects
	Busiest *CallerWaiting `json:"busiest"`         // the other caller of its project with the most waiting runs; null for none
	Limit   *int           `json:"limit"`           // of runs in flight; null if the run waits only for its turn
	Current *int           `json:"in_flight"`       // runs in flight that count against the limit
}

// CallerWaiting is how many runs of a caller wait.
type CallerWaiting struct {
	PrincipalID string `json:"principal_id"`
	Principal   string `json:"principal"` // the name; empty: unknown
	Waiting     int    `json:"waiting"`
}

// place returns the position of an item; nil if it does not wait.
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

// turnsBefore returns how many of n items, whose turns begin at first, come before a turn; wins: the item at the same
// turn does too.
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

// text returns the wait as text.
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

// waits returns what a run waits for in the gateway, nil for nothing. It does not query the ledger.
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

// place returns the position of a run that waits for a limit on runs in flight, and which limit it is.
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

// waitsOf returns what the run waits for while it is staged, to be sent or collected.
func (e *Engine) waitsOf(r Run) *Wait {
	switch {
	case e.elsewhere(r):
		return &Wait{Code: SiteRemoved, Text: fault.Prose(siteRemoved(r.Site))}
	case r.Phase != Staging && r.Phase != Deferred && r.Phase != Collecting:
		return nil
	}
	return e.waits(r.ID, toolOf(r), ShareOf(r))
}

// Waits returns what a run waits for in the gateway; nil for nothing.
func (s *Sites) Waits(r Run) *Wait { return s.reader(r.Site).waitsOf(r) }
