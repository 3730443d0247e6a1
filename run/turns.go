package run

import (
	"cmp"
	"slices"
)

// Share identifies whose turn a run waits for: the runs of a project take turns with those of other projects, by
// weight, and in a project the callers take equal turns.
type Share struct {
	Project string
	Caller  string // the id of a principal, or see [UnixCaller]; empty if the run's principal is not recorded
}

// UnixPrefix is the prefix of callers of runs that are executed as a Unix user.
const UnixPrefix = "unix:"

// UnixCaller returns the caller of runs that are executed as a Unix user: one person, whichever credentials that person
// uses.
func UnixCaller(user string) string { return UnixPrefix + user }

// ShareOf returns the share of a run.
func ShareOf(r Run) Share {
	if r.ExecutedAs != "" {
		return Share{r.ProjectID, UnixCaller(r.ExecutedAs)}
	}
	return Share{r.ProjectID, cmp.Or(r.Principal.ID, r.Principal.Name)}
}

// turns picks the next of the waiting items: weighted round robin over projects, round robin over a project's callers,
// and in order of arrival for each caller. It is start-time fair queueing with a cost of one: every turn advances a
// lane's next turn by 1/weight, and a new lane starts at the turn that was taken last, so that no lane saves up turns,
// and none waits for more than the others' share. An empty lane keeps its next turn until the others have reached it: a
// caller who asks for one item at a time gets no more than one who asks for many. All of it is in memory; a new gateway
// adds what waits according to the ledger, oldest first. Not safe for concurrent use.
//
// A pick considers each lane with something waiting, and at most the first fitting item of each.
type turns[K comparable] struct {
	weight   func(project string) int // nil: 1
	projects map[string]*projectLane[K]
	at       map[K]*lane[K] // where each item waits
	reached  float64        // the turn of the project that was picked last
}

type projectLane[K comparable] struct {
	turn    float64 // its next turn
	reached float64 // the turn of the caller that was picked last
	n       int     // items that wait
	callers map[string]*lane[K]
}

// lane holds the waiting items of one caller in a project. Removed items stay in the list until they are first in it.
type lane[K comparable] struct {
	share   Share
	project *projectLane[K]
	turn    float64
	n       int // items that wait
	items   []K
}

func newTurns[K comparable](weight func(project string) int) *turns[K] {
	if weight == nil {
		weight = func(string) int { return 1 }
	}
	return &turns[K]{weight: weight, projects: map[string]*projectLane[K]{}, at: map[K]*lane[K]{}}
}

func (t *turns[K]) len() int { return len(t.at) }

func (t *turns[K]) has(item K) bool { return t.at[item] != nil }

// of returns how many items of a share wait.
func (t *turns[K]) of(s Share) int {
	if p := t.projects[s.Project]; p != nil && p.callers[s.Caller] != nil {
		return p.callers[s.Caller].n
	}
	return 0
}

// add adds an item as the last of its share, unless it waits already.
func (t *turns[K]) add(s Share, item K) {
	if t.has(item) {
		return
	}
	p := t.projects[s.Project]
	if p == nil {
		p = &projectLane[K]{callers: map[string]*lane[K]{}}
		t.projects[s.Project] = p
	}
	if p.n == 0 {
		p.turn = max(p.turn, t.reached)
	}
	l := p.callers[s.Caller]
	if l == nil {
		l = &lane[K]{share: s, project: p}
		p.callers[s.Caller] = l
	}
	if l.n == 0 {
		l.turn = max(l.turn, p.reached)
	}
	l.items = append(l.items, item)
	l.n++
	p.n++
	t.at[item] = l
}

// remove removes an item that need not wait any longer.
func (t *turns[K]) remove(item K) {
	l := t.at[item]
	if l == nil {
		return
	}
	delete(t.at, item)
	l.n--
	l.project.n--
	if i := slices.Index(l.items, item); i == 0 {
		l.items = l.items[1:] // moves no item, even of 100,000
	} else {
		l.items = slices.Delete(l.items, i, i+1)
	}
	if len(t.at) == 0 { // nothing waits: there is nothing to be fair about
		clear(t.projects)
		t.reached = 0
	}
}

// next removes and returns the item whose turn it is, of the shares and items that fit; nil: all do.
func (t *turns[K]) next(share func(Share) bool, item func(K) bool) (whose Share, taken K, ok bool) {
	var best *lane[K]
	for id, p := range t.projects {
		if p.n == 0 {
			if p.turn <= t.reached {
				delete(t.projects, id) // when it comes back it counts as new
			}
			continue
		}
		if best != nil && !earlier(p.turn, id, best.project.turn, best.share.Project) {
			continue
		}
		l, i := p.first(share, item)
		if l == nil {
			p.turn = max(p.turn, t.reached) // no turns are saved up while none of its items fits
			continue
		}
		best, taken = l, i
	}
	if best == nil {
		return whose, taken, false
	}
	p := best.project
	t.reached, p.reached = max(t.reached, p.turn), max(p.reached, best.turn)
	p.turn += 1 / float64(max(1, t.weight(best.share.Project)))
	best.turn++
	t.remove(taken)
	return best.share, taken, true
}

// first returns the caller of the project whose turn it is, and its first item, of those that fit.
func (p *projectLane[K]) first(share func(Share) bool, item func(K) bool) (best *lane[K], found K) {
	for id, l := range p.callers {
		if l.n == 0 {
			if l.turn <= p.reached {
				delete(p.callers, id)
			}
			continue
		}
		if share != nil && !share(l.share) {
			l.turn = max(l.turn, p.reached)
			continue
		}
		if best != nil && !earlier(l.turn, id, best.turn, best.share.Caller) {
			continue
		}
		if i := slices.IndexFunc(l.items, func(k K) bool { return item == nil || item(k) }); i >= 0 {
			best, found = l, l.items[i]
		}
	}
	return best, found
}

func earlier(turn float64, id string, than float64, thanID string) bool {
	return turn < than || turn == than && id < thanID
}
