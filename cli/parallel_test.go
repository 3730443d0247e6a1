package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"slurmgate/app"
	"slurmgate/httpapi"
	"slurmgate/plan"
)

// Everything is done once, never more than a few things at a time; after an error nothing new is begun, and it is returned.
func TestParallel(t *testing.T) {
	const n = 100
	var seen [n]atomic.Int64
	var busy, most atomic.Int64
	var told []int
	must(t, parallel(t.Context(), n, func(_ context.Context, i int) error {
		if now := busy.Add(1); now > most.Load() {
			most.Store(now)
		}
		seen[i].Add(1)
		busy.Add(-1)
		return nil
	}, func(n int) { told = append(told, n) }))
	for i := range seen {
		if got := seen[i].Load(); got != 1 {
			t.Errorf("%d was done %d times", i, got)
		}
	}
	if len(told) != n || told[n-1] != n || most.Load() > collectors {
		t.Errorf("%d at a time, done was called with %v", most.Load(), told)
	}
	bad := errors.New("bad")
	var begun atomic.Int64
	var all sync.WaitGroup
	all.Add(collectors)
	err := parallel(t.Context(), 10*n, func(ctx context.Context, i int) error {
		begun.Add(1)
		all.Done() // of each worker once: the first things they do all fail
		all.Wait()
		return bad
	}, func(int) { t.Error("something was done") })
	if !errors.Is(err, bad) || begun.Load() != collectors {
		t.Errorf("%v after %d were begun", err, begun.Load())
	}
	if err := parallel(t.Context(), 0, nil, nil); err != nil {
		t.Error(err)
	}
}

// Small outputs that are missing come in bundles of consecutive rows; a few are fetched alone, and so are large ones and directories.
func TestBundlesOf(t *testing.T) {
	var files []placed
	for row := 2; row < 122; row++ {
		files = append(files, placed{row: row, doc: app.ArtifactDoc{Type: "TSV"}})
	}
	all := slices.Repeat([]bool{true}, len(files))
	var got []string
	for _, b := range bundlesOf(files, all) {
		got = append(got, fmt.Sprint(b.after, " ", b.rows, " ", len(b.files)))
	}
	if want := []string{"0 50 50", "51 50 50", "101 20 20"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	files[3].doc.Type, files[4].Size = plan.Directory, httpapi.BundledAtMost+1
	if b := bundlesOf(files, all); len(b[0].files) != 48 || slices.Contains(b[0].files, 3) || slices.Contains(b[0].files, 4) {
		t.Errorf("first bundle %+v", b[0])
	}
	few := make([]bool, len(files))
	few[7], few[8], few[100] = true, true, true
	if b := bundlesOf(files, few); len(b) != 0 {
		t.Errorf("bundles %+v", b)
	}
}
