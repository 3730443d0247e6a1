package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// importer may import into every project.
var importer = gate.Caller{Principal: gate.Principal{Name: "user:lab", Method: gate.ByPeer, Rights: gate.Everything()},
	Transport: gate.Local}

// imported imports a text, or the body of who where the text is empty.
func imported(t *testing.T, g *Gateway, who gate.Caller, project, text string) (ArtifactDoc, error) {
	t.Helper()
	args := fmt.Sprintf(`{"project_id":%q,"text":%q}`, project, text)
	if text == "" {
		args = fmt.Sprintf(`{"project_id":%q,"upload":true}`, project)
	}
	res := g.Gate.Call(t.Context(), who, gate.NewRequest("artifact.import", BuiltinVersion, []byte(args)))
	if res.Error != nil {
		return ArtifactDoc{}, res.Error.Fault()
	}
	var got ImportAnswer
	must(t, json.Unmarshal(res.Result, &got))
	return got.ArtifactDoc, nil
}

// A project stores what its quota allows: imports and new runs beyond it are refused with the amount used, existing
// artifacts are still found, and other projects are not affected.
func TestProjectQuota(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\n", func(s *site.Site) {
		s.Limits.Projects = []site.ProjectLimit{{Project: "small", QuotaMB: 1}, {Project: "few", QuotaMB: 0, Imports: 2}}
	})
	upload := func(n int) gate.Caller {
		who := importer
		who.Body, who.BodyBytes = strings.NewReader(strings.Repeat("u", n)), int64(n)
		return who
	}
	first, err := imported(t, g, upload(600<<10), "small", "")
	must(t, err)
	_, err = imported(t, g, upload(600<<10+1), "small", "")
	if fault.CodeOf(err) != "quota_exceeded" || !strings.Contains(err.Error(), "of 1 MiB") {
		t.Error(err)
	}
	unknown := upload(600<<10 + 1)
	unknown.BodyBytes = -1
	if _, err = imported(t, g, unknown, "small", ""); fault.CodeOf(err) != "quota_exceeded" {
		t.Error(err)
	}
	if again, err := imported(t, g, upload(600<<10), "small", ""); err != nil || again.ArtifactID != first.ArtifactID {
		t.Error("what the project has is not found:", again, err)
	}
	if _, err := imported(t, g, upload(600<<10+1), "other", ""); err != nil {
		t.Error(err)
	}
	small := plan.ProjectOf("small")
	if err := g.Quotas().Room(t.Context(), run.Share{Project: small}); err != nil {
		t.Error("a run is refused below the quota:", err)
	}
	// The outputs of a job are stored above the quota too, and count.
	out := run.Artifact{ProjectID: small, Type: "TEXT", Label: "out", Source: "run_x"}
	if _, err := g.addBytes(t.Context(), out, []byte(strings.Repeat("o", 600<<10))); err != nil {
		t.Fatal(err)
	}
	if err := g.Quotas().Room(t.Context(), run.Share{Project: small}); fault.CodeOf(err) != "quota_exceeded" {
		t.Error("a run is not refused above the quota:", err)
	}
	if _, err := imported(t, g, importer, "small", "x"); fault.CodeOf(err) != "quota_exceeded" {
		t.Error(err)
	}
	for i, want := range []string{"", "", "quota_exceeded"} {
		if _, err := imported(t, g, importer, "few", fmt.Sprint("text ", i)); (err == nil) != (want == "") || err != nil &&
			fault.CodeOf(err) != want {
			t.Errorf("import %d: %v", i, err)
		}
	}
	if again, err := imported(t, g, importer, "few", "text 1"); err != nil {
		t.Error(again, err)
	}
	use, err := g.Ledger.Use(t.Context(), small)
	if want := (ledger.Use{ProjectID: small, Artifacts: 2, Imports: 1, Bytes: 1200 << 10}); err != nil || use != want {
		t.Errorf("Use = %+v, %v; want %+v", use, err, want)
	}
}

// An import that policy refuses only once its size or detected type is known leaves no bytes in the store.
func TestRefusedImportsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	g := gatewayOver(t, dir, "../domains/genomics", "version: 1\nimport: {max_bytes: 1000, types_allowlist: [JSON]}\n")
	for _, text := range []string{strings.Repeat("x", 1001), "plain text"} {
		who := importer
		who.Body, who.BodyBytes = strings.NewReader(text), -1
		if _, err := imported(t, g, who, "p", ""); fault.KindOf(err) != fault.Policy {
			t.Error(err)
		}
	}
	objects := 0
	err := g.Store.Objects(t.Context(), func(string, int64, time.Time) error { objects++; return nil })
	if err != nil || objects != 0 {
		t.Errorf("%d objects stay in the store, %v", objects, err)
	}
}

// Concurrent imports together never exceed the quota, and release what they do not store.
func TestQuotaIsExact(t *testing.T) {
	var mu sync.Mutex
	kept := ledger.Use{}
	q := &Quotas{limits: site.Limits{ProjectQuotaMB: 1, ProjectImports: 100}, use: func(context.Context, string) (ledger.Use, error) {
		mu.Lock()
		defer mu.Unlock()
		return kept, nil
	}}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			a, end := q.importing(run.Share{Project: "p"})
			defer end()
			size := int64(30 << 10)
			if i%2 == 1 { // of unknown size
				for size = 0; size < 20<<10; {
					got, err := a.Take(t.Context(), 1, 8<<10)
					if err != nil {
						return
					}
					size += got
				}
			} else if _, err := a.Take(t.Context(), size, size); err != nil {
				return
			}
			if i%5 == 0 {
				return // it fails
			}
			mu.Lock()
			kept.Bytes += size
			kept.Imports++
			over := kept.Bytes > 1<<20 || kept.Imports > 100
			mu.Unlock()
			if over {
				t.Errorf("%d bytes and %d imports are stored, more than the quota", kept.Bytes, kept.Imports)
			}
		})
	}
	wg.Wait()
	if kept.Bytes < 900<<10 {
		t.Errorf("only %d bytes came in", kept.Bytes)
	}
	if len(q.imports) != 0 {
		t.Error("imports that have ended still count:", q.imports)
	}
}

// limits.caller_quota_mb bounds what a caller stores in all projects: imports, arguments and large answers, and
// outputs of its runs count. Beyond it imports and new runs are refused with the amounts used and allowed; existing
// artifacts are still found, and others are not affected.
//
// proves OPS-03
func TestCallerQuota(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\n", func(s *site.Site) {
		s.Limits.CallerQuotaMB = 1
		s.Limits.Callers = []site.CallerLimit{{Caller: "user:two", QuotaMB: 2}, {Caller: "user:free", QuotaMB: -1}}
	})
	upload := func(name string, n int, letter string) gate.Caller {
		who := importer
		who.Name = "user:" + name
		who.Body, who.BodyBytes = strings.NewReader(strings.Repeat(letter, n)), int64(n)
		return who
	}
	refused := func(err error, field, says string) {
		t.Helper()
		if fault.CodeOf(err) != "quota_exceeded" || !fault.Is(err, fault.Policy) {
			t.Fatal(err)
		}
		for _, part := range []string{says, field + ": ", "to raise " + field} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %s", part, err)
			}
		}
	}
	first, err := imported(t, g, upload("one", 600<<10, "a"), "p", "")
	must(t, err)
	_, err = imported(t, g, upload("one", 600<<10, "b"), "q", "")
	refused(err, "limits.caller_quota_mb", "the caller keeps 0 of 1 MiB in all projects")
	unknown := upload("one", 600<<10, "b")
	unknown.BodyBytes = -1
	_, err = imported(t, g, unknown, "q", "")
	refused(err, "limits.caller_quota_mb", "of 1 MiB")
	if again, err := imported(t, g, upload("one", 600<<10, "a"), "p", ""); err != nil || again.ArtifactID != first.ArtifactID {
		t.Error("what the caller has is not found:", again, err)
	}
	for _, c := range []struct{ name, letter string }{{"two", "b"}, {"two", "c"}, {"two", "d"}, {"free", "e"}, {"free", "f"}, {"free", "g"},
		{"free", "h"}} {
		if _, err := imported(t, g, upload(c.name, 600<<10, c.letter), "q", ""); err != nil {
			t.Error(c, err)
		}
	}
	_, err = imported(t, g, upload("two", 600<<10, "i"), "q", "")
	refused(err, "limits.callers[0].quota_mb", "the caller keeps 1 of 2 MiB")
	one := run.Share{Project: plan.ProjectOf("p"), Caller: "user:one"}
	if err := g.Quotas().Room(t.Context(), one); err != nil {
		t.Error("a run is refused below the quota:", err)
	}
	// Large answers count as the caller's too; they are stored above the quota, like the outputs of jobs.
	answer := []byte(`"` + strings.Repeat("x", 600<<10) + `"`)
	if _, err := (artifacts{g}).Keep(t.Context(), gate.Principal{Name: "user:one"}, "answer", answer); err != nil {
		t.Fatal(err)
	}
	refused(g.Quotas().Room(t.Context(), one), "limits.caller_quota_mb", "keeps 1 of 1 MiB in all projects")
	for _, caller := range []string{"user:two", "user:free", ""} {
		if err := g.Quotas().Room(t.Context(), run.Share{Project: one.Project, Caller: caller}); err != nil {
			t.Error(caller, err)
		}
	}
	var u UsageMonth
	g.says(t, everything("user:one", gate.All), "usage.month", map[string]any{}, "", &u)
	if u.Stored.Artifacts != 2 || u.Stored.Bytes <= 1200<<10 || u.Stored.MaxBytes == nil || *u.Stored.MaxBytes != 1<<20 {
		t.Errorf("stored: %d artifacts, %d bytes, at most %v; want 2 artifacts above the quota", u.Stored.Artifacts, u.Stored.Bytes,
			u.Stored.MaxBytes)
	}
}

// Concurrent imports of one caller into many projects together never exceed its quota.
func TestCallerQuotaIsExact(t *testing.T) {
	var mu sync.Mutex
	kept := map[string]int64{}
	q := &Quotas{use: func(context.Context, string) (ledger.Use, error) { return ledger.Use{}, nil },
		caller: func(string) bound { return bound{1, "limits.caller_quota_mb"} },
		callerUse: func(_ context.Context, who string) (ledger.CallerUse, error) {
			mu.Lock()
			defer mu.Unlock()
			return ledger.CallerUse{Bytes: kept[who]}, nil
		}}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			who := fmt.Sprint("caller ", i%3)
			a, end := q.importing(run.Share{Project: fmt.Sprint("p", i%7), Caller: who})
			defer end()
			size, err := a.Take(t.Context(), 30<<10, 30<<10)
			if err != nil || i%5 == 0 { // it fails
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if kept[who] += size; kept[who] > 1<<20 {
				t.Errorf("%s: %d", who, kept[who])
			}
		})
	}
	wg.Wait()
	for who, n := range kept {
		if n < 800<<10 {
			t.Errorf("only %d bytes of %s came in", n, who)
		}
	}
	if len(kept) != 3 || len(q.imports) != 0 {
		t.Error("imports that have ended still count:", q.imports)
	}
}
