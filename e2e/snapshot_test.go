package e2e

import (
	"fmt"
	"slices"
	"testing"
)

// looksLike is what a look at artifacts says of itself.
type looksLike struct {
	Run       string        `json:"provenance_run_id"`
	AsOf      *string       `json:"as_of_created_at"`
	Count     int           `json:"artifact_count"`
	Artifacts []artifactRow `json:"artifacts"`
	Cursor    *string       `json:"cursor"`
}

// A list is one snapshot while artifacts come in, and the same look is the same run; another state, page or filter is another.
//
// proves ARC-05 ARC-11
func TestSnapshotOfArtifacts(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	var none looksLike
	s.ok(&none, "artifact", "list")
	if none.AsOf != nil || none.Count != 0 || none.Run == "" {
		t.Errorf("of nothing: %+v", none)
	}
	var all []string
	for i := range 5 {
		all = append(all, s.import1(s.file(fmt.Sprint("f", i), fmt.Sprint(i))).ArtifactID)
	}
	var first, same, second, third, later, before looksLike
	s.ok(&first, "artifact", "list", "--limit", "2")
	s.ok(&same, "artifact", "list", "--limit", "2")
	late := s.import1(s.file("late", "late"))
	s.ok(&second, "artifact", "list", "--limit", "2", "--cursor", *first.Cursor)
	s.ok(&third, "artifact", "list", "--limit", "2", "--cursor", *second.Cursor)
	s.ok(&later, "artifact", "list", "--limit", "2")
	s.ok(&before, "artifact", "list", "--limit", "2", "--as-of", *first.AsOf)
	var seen []string
	for _, p := range []looksLike{first, second, third} {
		for _, a := range p.Artifacts {
			seen = append([]string{a.ArtifactID}, seen...)
		}
		if p.Count != 5 || *p.AsOf != *first.AsOf {
			t.Errorf("the snapshot became %+v", p)
		}
	}
	if !slices.Equal(seen, all) || third.Cursor != nil {
		t.Errorf("%v listed, %v imported", seen, all)
	}
	if first.Run != same.Run || first.Run != before.Run || before.Artifacts[0] != first.Artifacts[0] {
		t.Errorf("the same look is another: %+v %+v %+v", first, same, before)
	}
	if later.Count != 6 || later.Artifacts[0].ArtifactID != late.ArtifactID {
		t.Errorf("%+v", later)
	}
	runs := []string{none.Run, first.Run, second.Run, third.Run, later.Run}
	// Of one artifact: its id says what it is, so nothing else is in the identity of the look.
	var a, b, c, p, q, r looksLike
	s.ok(&a, "artifact", "get", all[0])
	s.ok(&b, "artifact", "get", all[0])
	s.ok(&c, "artifact", "get", all[1])
	s.ok(&p, "artifact", "preview", all[0])
	s.ok(&q, "artifact", "preview", all[0])
	s.ok(&r, "artifact", "preview", all[0], "--lines", "1")
	if a.Run != b.Run || p.Run != q.Run {
		t.Errorf("%+v %+v %+v %+v", a, b, p, q)
	}
	runs = append(runs, a.Run, c.Run, p.Run, r.Run)
	if n := len(runs); len(slices.Compact(slices.Sorted(slices.Values(runs)))) != n {
		t.Errorf("different looks are one run: %v", runs)
	}
	if f := s.fails(5, "artifact", "list", "--cursor", *first.Cursor, "--type", "JSON"); f.Code != "snapshot_changed" {
		t.Errorf("%+v", f)
	}
}
