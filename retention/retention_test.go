package retention_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/retention"
)

var policy = retention.Policy{Workspaces: days(3), Imports: days(5)}

// Under concurrent imports, submits, ends and retries, and with sweeps killed at any point: nothing that a run refers
// to is removed, no artifact is without its bytes, no needed workspace is touched, and no emptied attempt is without
// a claim.
func TestNothingNeededGoes(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for round := range 8 {
				w.bustle(seed, uint64(round))
				w.check()
				if t.Failed() {
					t.Fatalf("seed %d, round %d", seed, round)
				}
			}
			w.wind()
		})
	}
}

// bustle runs all kinds of work concurrently for a while.
func (w *world) bustle(seed, round uint64) {
	var busy sync.WaitGroup
	for n := range uint64(3) {
		busy.Go(func() {
			r := rand.New(rand.NewPCG(seed, round*10+n))
			for range 25 {
				w.something(r)
			}
		})
	}
	busy.Go(func() {
		r := rand.New(rand.NewPCG(seed, round*10+9))
		for range 6 {
			p := w.parts()
			ctx, stop := context.WithCancel(context.Background())
			p.Ledger = &dying{Ledger: w.ledger, left: r.IntN(40), stop: stop}
			if _, err := p.Sweep(ctx, policy, r.IntN(4) == 0); err != nil && ctx.Err() == nil {
				w.t.Error(err)
			}
			stop()
			w.pass(time.Duration(r.IntN(24)) * time.Hour)
		}
	})
	busy.Wait()
}

func (w *world) something(r *rand.Rand) {
	pick := func() (id string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for id = range w.runs {
			if r.IntN(4) == 0 {
				break
			}
		}
		return id
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		w.add(fmt.Sprint("content ", r.IntN(8)), fmt.Sprint("label ", r.IntN(3)))
	case 3, 4:
		w.mu.Lock()
		for _, a := range w.artifacts {
			if r.IntN(4) == 0 {
				w.mu.Unlock()
				w.submit(a)
				return
			}
		}
		w.mu.Unlock()
	case 5, 6, 7:
		if id := pick(); id != "" {
			w.finish(id, r)
		}
	case 8:
		if id := pick(); id != "" {
			w.retry(id)
		}
	default:
		w.pass(time.Duration(r.IntN(12)) * time.Hour)
	}
}

// dying is a ledger whose gateway is killed after some calls.
type dying struct {
	retention.Ledger
	left int
	stop func()
}

var errKilled = errors.New("killed")

func (d *dying) spend() bool {
	if d.left--; d.left < 0 {
		d.stop()
	}
	return d.left < 0
}

func (d *dying) BeginRemoval(ctx context.Context, w retention.Workspace, before time.Time) (bool, error) {
	ok, err := d.Ledger.BeginRemoval(ctx, w, before)
	if d.spend() {
		return false, errKilled // recorded, but not done
	}
	return ok, err
}

func (d *dying) EndRemoval(ctx context.Context, w retention.Workspace, bytes int64) error {
	if d.spend() {
		return errKilled
	}
	return d.Ledger.EndRemoval(ctx, w, bytes)
}

func (d *dying) MarkUnused(ctx context.Context, since time.Time, limit int) ([]retention.Artifact, error) {
	list, err := d.Ledger.MarkUnused(ctx, since, 2)
	if d.spend() {
		return nil, errKilled // marked, but the bytes stay for now
	}
	return list, err
}

func (d *dying) Holds(ctx context.Context, sum string) (bool, error) {
	if d.spend() {
		return false, errKilled
	}
	return d.Ledger.Holds(ctx, sum)
}

// wind ends all runs and advances the clock by a year: then exactly what runs refer to is left.
func (w *world) wind() {
	r := rand.New(rand.NewPCG(1, 1))
	for id := range w.runs {
		w.finish(id, r)
	}
	w.pass(200 * 24 * time.Hour)
	var last retention.Report
	for range 2 {
		var err error
		if last, err = w.parts().Sweep(context.Background(), policy, false); err != nil || len(last.Kept) > 0 {
			w.t.Fatal(err, last.Kept)
		}
	}
	w.check()
	if last.Workspaces.Count+last.Imports.Count+last.Bytes.Count > 0 {
		w.t.Errorf("the second sweep found more: %+v", last)
	}
	must(w.t, filepath.WalkDir(w.dir+"/runs", func(p string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(w.dir+"/runs", p); err == nil && rel != ".gateway-id" && (d.IsDir() && strings.Contains(rel, "/") ||
			!d.IsDir() && !strings.HasPrefix(d.Name(), "a")) {
			w.t.Errorf("%s is left of a workspace", rel)
		}
		return err
	}))
	held, objects := 0, 0
	for _, sum := range w.checksums() {
		if _, err := w.ledger.Payload(context.Background(), sum); err != nil {
			held++
		}
	}
	must(w.t, filepath.WalkDir(w.dir+"/artifacts/objects", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			objects++
		}
		return err
	}))
	if held != objects || held == 0 {
		w.t.Errorf("%d objects of %d checksums", objects, held)
	}
	w.t.Logf("%d runs, %d imports, %d submits refused since the artifact was removed, %d objects left", len(w.runs), len(w.artifacts),
		w.refused.Load(), objects)
}

// A dry sweep reports what the next sweep does, and does nothing.
func TestDryRun(t *testing.T) {
	w := newWorld(t)
	r := rand.New(rand.NewPCG(3, 3))
	used, unused := w.add("used", "a"), w.add("unused", "b")
	id := w.submit(used)
	w.finish(id, r)
	open := w.submit(used)
	orphan := w.put("nobody's")
	young := w.add("young", "c")
	w.pass(10 * 24 * time.Hour)
	w.add("young", "c") // imported again
	dry, err := w.parts().Sweep(t.Context(), policy, true)
	must(t, err)
	if dry.Workspaces.Count != 1 || dry.Workspaces.Named[0] != id || dry.Imports.Count != 1 || dry.Imports.Named[0] != unused.ID ||
		dry.Bytes.Count != 1 || dry.Bytes.Named[0] != orphan || len(dry.Kept) != 0 {
		t.Errorf("a dry sweep gives %+v, want the workspace, the import and the orphan", dry)
	}
	w.check()
	wet, err := w.parts().Sweep(t.Context(), policy, false)
	must(t, err)
	if wet.Bytes.Count != 2 || wet.Workspaces.Bytes == 0 || dry.Workspaces.Bytes == 0 {
		t.Errorf("the sweep gives %+v, want the bytes of the import and the orphan", wet)
	}
	if d := cmp.Diff([][]string{dry.Workspaces.Named, dry.Imports.Named}, [][]string{wet.Workspaces.Named, wet.Imports.Named}); d != "" {
		t.Error(d)
	}
	w.check()
	for _, a := range []string{used.ID, young.ID} {
		if _, err := w.ledger.Artifact(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	_, err = w.ledger.Artifact(t.Context(), unused.ID)
	if fault.CodeOf(err) != "artifact_removed" || w.submit(unused) != "" {
		t.Errorf("a removed artifact can be used: %v", err)
	}
	if back := w.add("unused", "b"); back.ID != unused.ID || w.submit(back) == "" { // imported again, it exists again
		t.Error("it did not come back")
	}
	w.check()
	if r, err := w.ledger.RunRecord(t.Context(), id); r.GoneSince == nil || err != nil {
		t.Error(r.GoneSince, err)
	}
	if r, err := w.ledger.RunRecord(t.Context(), open); r.GoneSince != nil || err != nil {
		t.Error(r.GoneSince, err)
	}
	w.retry(id) // fills the workspace again
	if r, err := w.ledger.RunRecord(t.Context(), id); r.GoneSince != nil || err != nil {
		t.Error(r.GoneSince, err)
	}
	w.check()
	short := policy
	short.Imports = new(time.Hour)
	_, err = w.parts().Sweep(t.Context(), short, true)
	if fault.CodeOf(err) != "retention_imports" {
		t.Error(err)
	}
	nothing, err := w.parts().Sweep(t.Context(), retention.Policy{}, false)
	if err != nil || nothing.Workspaces.Count+nothing.Imports.Count != 0 {
		t.Errorf("an empty policy removed something: %+v %v", nothing, err)
	}
}

// deserted has workspaces of some users who cannot be reached.
type deserted struct {
	retention.Workspaces
	users  func(runID string) string
	faults map[string]error // by user
	tried  map[string]int
}

func (d *deserted) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (int64, error) {
	user := d.users(runID)
	d.tried[user]++
	if err := d.faults[user]; err != nil {
		return 0, err
	}
	return d.Workspaces.RemoveRun(ctx, runID, attempts, still)
}

func (d *deserted) RunSize(ctx context.Context, runID string) (int64, error) {
	user := d.users(runID)
	d.tried[user]++
	if err := d.faults[user]; err != nil {
		return 0, err
	}
	return d.Workspaces.RunSize(ctx, runID)
}

// A user who has left, or whose folder is away, delays no other user's workspaces: a sweep tries once, reports for
// each of that user's runs why it was left, and continues. The outputs of the runs stay. Once the user is back the
// next sweep removes the workspaces.
func TestUsersWhoLeft(t *testing.T) {
	w := newWorld(t)
	r := rand.New(rand.NewPCG(5, 5))
	owners := map[string]string{}
	for range 3 {
		for _, w.user = range []string{"gone", "away", "stays"} {
			id := w.submit(w.add("of all", "a"))
			owners[id] = w.user
			w.finish(id, r)
			w.pass(time.Hour)
		}
	}
	w.pass(10 * 24 * time.Hour)
	d := &deserted{Workspaces: w.shared, users: func(id string) string { return owners[id] }, faults: map[string]error{
		"gone": fault.New(fault.Policy, "user_refused", "this host has no such user"),
		"away": fault.New(fault.Transport, "runs_dir_unavailable", "runs_dir is missing")}}
	p := w.parts()
	p.Workspaces = d
	for _, dry := range []bool{true, false} {
		d.tried = map[string]int{}
		report, err := p.Sweep(t.Context(), policy, dry)
		must(t, err)
		if report.Workspaces.Count != 3 || len(report.Kept) != 6 ||
			d.tried["gone"] != 1 || d.tried["away"] != 1 || d.tried["stays"] != 3 {
			t.Errorf("dry run %v: %+v, tried %v", dry, report, d.tried)
		}
		for _, k := range report.Kept {
			why := map[string]string{"gone": "no such user", "away": "is missing"}[owners[k.Name]]
			if why == "" || !strings.Contains(k.Why, why) {
				t.Errorf("%s of %q was left: %s", k.Name, owners[k.Name], k.Why)
			}
		}
	}
	w.check()
	d.faults = nil
	report, err := p.Sweep(t.Context(), policy, false)
	must(t, err)
	if report.Workspaces.Count != 6 || len(report.Kept) != 0 {
		t.Errorf("the sweep gives %+v, want six workspaces and nothing kept", report)
	}
	w.check()
}
