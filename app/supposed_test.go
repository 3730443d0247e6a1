package app

import (
	"fmt"
	"testing"
	"time"

	"slurmgate/run"
)

// What a dry run supposed is the principal's own, for a while, and bounded.
func TestSupposed(t *testing.T) {
	var s supposed
	now := time.Now()
	s.add("a", run.Artifact{ID: "art_1", ProjectID: "p"}, now)
	if x, ok := s.find("a", "art_1", now.Add(supposeTime)); !ok || x.ProjectID != "p" {
		t.Error(x, ok)
	}
	if _, ok := s.find("b", "art_1", now); ok {
		t.Error("another principal sees it")
	}
	if _, ok := s.find("a", "art_1", now.Add(supposeTime+1)); ok {
		t.Error("it is kept for ever")
	}
	for i := range supposeMost + 10 {
		s.add("b", run.Artifact{ID: fmt.Sprint(i)}, now.Add(time.Duration(i)))
	}
	if _, ok := s.find("b", fmt.Sprint(supposeMost+9), now); !ok || len(s.known) > supposeMost {
		t.Error(len(s.known), ok)
	}
	s.add("c", run.Artifact{ID: "x"}, now.Add(2*supposeTime))
	if len(s.known) != 1 {
		t.Error(len(s.known))
	}
}
