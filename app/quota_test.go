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

// importer is a caller who may import into every project.
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
	if err := json.Unmarshal(res.Result, &got); err != nil {
		t.Fatal(err)
	}
	return got.ArtifactDoc, nil
}

// A project keeps what its quota allows: imports and new runs beyond it are refused with what is used, what exists is still found, and
// other projects are not concerned.
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := g.Quotas().Room(t.Context(), small); err != nil {
		t.Error("a run is refused below the quota:", err)
	}
	// What a job makes is kept whatever the quota says, and counts.
	out := run.Artifact{ProjectID: small, Type: "TEXT", Label: "out", Source: "run_x"}
	if _, err := g.addBytes(t.Context(), out, []byte(strings.Repeat("o", 600<<10))); err != nil {
		t.Fatal(err)
	}
	if err := g.Quotas().Room(t.Context(), small); fault.CodeOf(err) != "quota_exceeded" {
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
		t.Errorf("%+v, %v", use, err)
	}
}

// What policy refuses once it is known, by its size or its detected type, leaves no bytes in the store.
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

// Imports at the same time never take more than the quota together, and give back what they do not keep.
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
			a, end := q.importing("p")
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
				t.Errorf("%+v", kept)
			}
		})
	}
	wg.Wait()
	if kept.Bytes < 900<<10 {
		t.Errorf("only %d bytes came in", kept.Bytes)
	}
	if len(q.projects) != 0 {
		t.Error("imports that have ended still count:", q.projects)
	}
}
