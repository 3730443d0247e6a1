package run

import (
	"slices"
	"sync"
)

// collectSlots bounds how many runs are collected at once, in all and of one project. A job may leave outputs of 100 GiB, which cost it
// nothing when they are sparse; reading them delays neither the sends of others nor their collects.
type collectSlots struct {
	most, share int

	mu       sync.Mutex
	used     int
	projects map[string]int
	waiting  []waitingCollect
}

type waitingCollect struct{ runID, project string }

// newCollectSlots leaves one of several workers to runs that are staged and sent, and one slot to other projects.
func newCollectSlots(workers int) *collectSlots {
	most := max(1, workers-1)
	return &collectSlots{most: most, share: max(1, most-1), projects: map[string]int{}}
}

func (s *collectSlots) fits(project string) bool {
	return s.used < s.most && s.projects[project] < s.share
}

// take takes a slot. Without one the run waits: release names it when it is its turn.
func (s *collectSlots) take(runID, project string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := waitingCollect{runID, project}
	at := slices.Index(s.waiting, w)
	if !s.fits(project) {
		if at < 0 {
			s.waiting = append(s.waiting, w)
		}
		return false
	}
	if at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	s.used++
	s.projects[project]++
	return true
}

// release gives a slot back and returns the run whose turn it is; empty: none waits that may have one.
func (s *collectSlots) release(project string) (next string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.projects[project]--; s.projects[project] == 0 {
		delete(s.projects, project)
	}
	at := slices.IndexFunc(s.waiting, func(w waitingCollect) bool { return s.fits(w.project) })
	if at < 0 {
		return ""
	}
	next = s.waiting[at].runID
	s.waiting = slices.Delete(s.waiting, at, at+1)
	return next
}
