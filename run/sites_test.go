package run_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// twin returns another cluster under the same ledger.
func (w *world) twin() *world {
	t := &world{t: w.t, dir: w.dir, ledger: w.ledger, cfg: w.cfg, calls: map[string]int{}, shared: newShared(), images: w.images,
		sent: map[string]run.SendResult{}, kinds: w.kinds, contracts: w.contracts, timeout: w.timeout, held: map[string]bool{},
		staged: map[string]int{}, auto: w.auto}
	w.twins = append(w.twins, t)
	return t
}

// site returns the cluster as a site of a gateway; closed returns why it cannot be opened.
func (w *world) site(name string, closed func() error) run.Site {
	l := &life{Index: w.ledger.Index(name), w: w}
	cfg := w.cfg
	cfg.Site = name
	return run.Site{Config: cfg, Parts: run.Parts{Store: l, Index: l, Objects: l, Contracts: l, Formats: l, Allowed: w.allowed,
		Log: slog.New(slog.DiscardHandler), Now: time.Now},
		Open: func(context.Context) (run.Parts, error) {
			if err := closed(); err != nil {
				return run.Parts{}, err
			}
			return run.Parts{Renderer: l, Submitter: l, Queue: l, Accounting: l, Canceller: l, Workspace: l, Images: l}, nil
		}}
}

func open() error { return nil }

// gateway starts the sites, the first of which is needed.
func gateway(t *testing.T, sites ...run.Site) (s *run.Sites, away map[string]error) {
	t.Helper()
	s = run.NewSites(sites...)
	ctx, stop := context.WithCancel(context.Background())
	away = s.Open(ctx, sites[0].Config.Site)
	wait, err := s.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); wait() })
	return s, away
}

// on returns the order of a run for a site; named: the caller named it.
func on(site string, named bool, change ...func(*plan.Params)) run.Order {
	o := order(change...)
	if o.Site = site; named {
		o.Params.Spec.Placement.Site = &site
	}
	return o
}

func submit(t *testing.T, s *run.Sites, w *world, o run.Order) run.SubmitAnswer {
	t.Helper()
	w.input(o)
	a, err := s.Submit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A run goes to its site and stays there, no matter who submits it again, with or without naming the site.
//
// proves SITE-07 ABI-18
func TestSites(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.auto = true
		b := a.twin()
		s, away := gateway(t, a.site("a", open), b.site("b", open))
		if len(away) != 0 || s.Ready() != nil || !slices.Equal(s.Names(), []string{"a", "b"}) {
			t.Fatalf("the gateway has the sites %q, away %v, not ready %v, want a and b, both ready", s.Names(), away, s.Ready())
		}
		first := submit(t, s, a, on("b", false))
		a.want(a.until(first.RunID, done), run.Succeeded, "ok")
		if first.Site != "b" || a.count("Send") != 0 || b.count("Send") != 1 {
			t.Errorf("on %s; %d sends on a, %d on b", first.Site, a.count("Send"), b.count("Send"))
		}
		for name, o := range map[string]run.Order{"policy has changed its mind": on("a", false), "named": on("b", true)} {
			if again := submit(t, s, a, o); again.RunID != first.RunID || !again.Replayed || again.Site != "b" {
				t.Errorf("the order again with %q gives %+v, want the first run on site b", name, again)
			}
		}
		other := submit(t, s, a, on("a", true))
		if other.RunID == first.RunID || other.Replayed || other.Site != "a" || !slices.Equal(other.EquivalentRuns, []string{first.RunID}) {
			t.Errorf("the order on site a is answered %+v, want a new run there that names %s as equivalent", other, first.RunID)
		}
		a.want(a.until(other.RunID, done), run.Succeeded, "ok")
		// Named first, not named later: the run may be on any site.
		named := submit(t, s, a, on("b", true, cpus(2)))
		if again := submit(t, s, a, on("a", false, cpus(2))); again.RunID != named.RunID || !again.Replayed {
			t.Errorf("the order again for site a is answered %+v, want the run on site b", again)
		}
		if p, err := s.Preview(t.Context(), on("a", false, cpus(2))); err != nil || p.RunID != named.RunID || p.Site != "b" || !p.Exists {
			t.Errorf("the preview of the order is %+v %v, want the run on site b", p, err)
		}
		if p, err := s.Preview(t.Context(), on("a", false, cpus(3))); err != nil || p.Site != "a" || p.Exists {
			t.Errorf("the preview of another order is %+v %v, want a new run on site a", p, err)
		}
		if _, err := s.Submit(t.Context(), on("c", false, cpus(4))); fault.CodeOf(err) != "site_removed" {
			t.Error(err)
		}
	})
}

// Verbs reach the engine of the run's site; a run of a site that the site file no longer has can be read, and no verb
// guesses.
func TestVerbsOfASite(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		b := a.twin()
		s, _ := gateway(t, a.site("a", open), b.site("b", open))
		x := submit(t, s, a, on("b", false))
		a.until(x.RunID, in(run.Pending))
		if c, err := s.Cancel(t.Context(), x.RunID, "", run.Withdrawal{}); err != nil || c.Executed != "never" {
			t.Errorf("the cancel is answered %+v %v, want never executed", c, err)
		}
		b.auto = true
		if r, err := s.Retry(t.Context(), x.RunID, run.RetryOrder{After: 1}); err != nil || r.Site != "b" {
			t.Errorf("the retry is answered %+v %v, want on site b", r, err)
		}
		a.want(a.until(x.RunID, done), run.Succeeded, "ok")
		if l, err := s.Logs(t.Context(), x.RunID, "stdout", run.LogPart{Limit: 100}); err != nil || l.Text != "said\n" {
			t.Errorf("the log is %+v %v, want what the program said", l, err)
		}
		if a.count("Send") != 0 || b.count("Send") != 2 {
			t.Errorf("%d sends on a, %d on b", a.count("Send"), b.count("Send"))
		}
		y := submit(t, s, a, on("b", false, cpus(2)))
		left, _ := gateway(t, a.site("a", open))
		g, err := left.Get(t.Context(), y.RunID, 0)
		if err != nil || g.Site != "b" || g.Reason == nil || !strings.HasPrefix(*g.Reason, "site_removed: the run is on the site b, which") {
			t.Errorf("a run on a site that was removed is shown as %+v, %v; want that as its reason", g, err)
		}
		if wait := left.Waits(run.Run{Site: "b", Phase: run.InJob}); wait == nil || wait.Code != "site_removed" {
			t.Errorf("a run in a job on a site that was removed waits for %+v, want for the site", wait)
		}
		if a, err := left.Answer(t.Context(), y.RunID, true); err != nil || !slices.ContainsFunc(a.Warnings, func(s string) bool {
			return strings.Contains(s, "add the site to the site file again")
		}) {
			t.Errorf("a submit of a run on a site that was removed warns %q, %v; want what to do", a.Warnings, err)
		}
		_, err = left.Cancel(t.Context(), y.RunID, "", run.Withdrawal{})
		if fault.CodeOf(err) != "site_removed" || !strings.Contains(err.Error(), "b") {
			t.Error(err)
		}
		a.until(y.RunID, done)
	})
}

// A site that cannot be opened delays no other site. A run for it is accepted, waits with the reason, and continues by
// itself as soon as the site is open.
//
// proves SITE-07
func TestSiteAway(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.auto = true
		b := a.twin()
		var there atomic.Bool
		closed := func() error {
			if there.Load() {
				return nil
			}
			return fault.New(fault.Transport, "runs_dir_unavailable", "runs_dir is not mounted").WithNext("mount it")
		}
		s, away := gateway(t, a.site("a", open), b.site("b", closed))
		if fault.CodeOf(away["b"]) != "runs_dir_unavailable" || away["a"] != nil || fault.CodeOf(s.Away("b")) != run.SiteAway ||
			s.Away("a") != nil {
			t.Errorf("the sites away are %v, want only b with runs_dir_unavailable", away)
		}
		if err := s.Ready(); fault.CodeOf(err) != run.SiteAway || !strings.Contains(err.Error(), "runs_dir is not mounted") {
			t.Error(err)
		}
		before := time.Now()
		waits := submit(t, s, a, on("b", true))
		if waits.State != run.Queued || waits.Reason == nil || !strings.Contains(*waits.Reason,
			"site_away: the site b is away: runs_dir is not mounted") {
			t.Errorf("the run for the site that is away is answered %+v, want that it waits for it", waits)
		}
		if d := time.Since(before); d > time.Second {
			t.Errorf("the answer took %s", d)
		}
		x := submit(t, s, a, on("a", false, cpus(2)))
		a.want(a.until(x.RunID, done), run.Succeeded, "ok")
		if g, err := s.Get(t.Context(), waits.RunID, 0); err != nil || len(g.Warnings) == 0 {
			t.Errorf("the run that waits is shown as %+v %v, want with a warning", g, err)
		}
		if b.count("Send")+b.count("Queue") != 0 {
			t.Error("a site that is not open was asked")
		}
		there.Store(true)
		b.want(b.until(waits.RunID, done), run.Succeeded, "ok")
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
		if g, err := s.Get(t.Context(), waits.RunID, 0); err != nil || len(g.Warnings) != 0 {
			t.Errorf("the run that went on is shown as %+v %v, want without a warning", g, err)
		}
	})
}

// While one cluster's Slurm is down, the other's submits and collects take no longer than usual, and waiting runs
// continue afterwards.
//
// proves SITE-07
func TestSlurmOfOneSiteDown(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.auto = true
		b := a.twin()
		down := false
		b.fault = failingWhile(&down, errors.New("unable to contact slurmctld"), "Queue")
		b.send = func(int) sendKind {
			if down {
				return deferSend
			}
			return accept
		}
		b.deferred = run.SendResult{Code: run.Unreachable, Scope: run.ScopeSite, Text: "unable to contact slurmctld"}
		s, _ := gateway(t, a.site("a", open), b.site("b", open))
		took := func(cpu int) time.Duration {
			began := time.Now()
			x := submit(t, s, a, on("a", false, cpus(cpu)))
			a.want(a.until(x.RunID, done), run.Succeeded, "ok")
			return time.Since(began)
		}
		usual := took(1)
		b.with(func() { down = true })
		waits := submit(t, s, a, on("b", false, cpus(2)))
		if a.until(waits.RunID, in(run.Deferred)).Run.Reason != run.Unreachable || fault.CodeOf(s.Ready()) != run.Unreachable {
			t.Errorf("the run for site b is answered %+v, the sites are %v; want both to say that it does not answer",
				waits, s.Ready())
		}
		for n := 3; n < 6; n++ {
			if d := took(n); d > usual+2*time.Second {
				t.Errorf("a run of the other site took %s, usually %s", d, usual)
			}
		}
		b.with(func() { down = false })
		b.want(b.until(waits.RunID, done), run.Succeeded, "ok")
	})
}

// hanging is a controller that answers after a minute.
type hanging struct{ run.Queue }

func (q hanging) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	time.Sleep(time.Minute)
	return q.Queue.Jobs(ctx, sought)
}

// A site whose controller hangs delays CaughtUp by a few seconds, not for as long as the caller would wait; the only
// cluster of a gateway is waited for.
//
// proves SITE-07
func TestOneSiteHangs(t *testing.T) {
	for _, clusters := range []int{1, 2} {
		bubble(t, func(t *testing.T, host *world) {
			hangs, other := host.twin(), host.twin()
			sites := []run.Site{host.site("host", open), hangs.site("hangs", open), other.site("other", open)}[:clusters+1]
			first := run.NewSites(sites...)
			ctx, stop := context.WithCancel(t.Context())
			first.Open(ctx, "host")
			wait, err := first.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			hangs.until(submit(t, first, hangs, on("hangs", false)).RunID, in(run.Pending))
			stop()
			wait()

			sites[1].Wrap = func(p run.Parts) run.Parts {
				p.Queue = hanging{p.Queue}
				return p
			}
			s, _ := gateway(t, sites...)
			began := time.Now()
			err = s.CaughtUp(t.Context())
			took := time.Since(began)
			if waited := err == nil && took >= time.Minute; waited != (clusters == 1) || took > 10*time.Second != waited {
				t.Errorf("with %d clusters: %s, %v", clusters, took, err)
			}
		})
	}
}

// A tool's limit holds for all sites together, and a place that becomes free on one site is used on the other.
//
// proves SITE-07
func TestLimitAcrossSites(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.cfg.InFlight = map[string]int{"test_tool": 1}
		b := a.twin()
		s, _ := gateway(t, a.site("a", open), b.site("b", open))
		limited := func(site string, n int) run.Order {
			o := on(site, false, cpus(n))

			return o
		}
		x, y := submit(t, s, a, limited("a", 1)), submit(t, s, a, limited("b", 2))
		a.until(x.RunID, in(run.Pending))
		if v := a.until(y.RunID, in(run.Deferred)); v.Run.Reason != run.ConcurrencyLimit || b.count("Send") != 0 {
			t.Errorf("%s, %d sends", v.Run.Reason, b.count("Send"))
		}
		must(s.Cancel(t.Context(), x.RunID, "", run.Withdrawal{}))
		b.until(y.RunID, in(run.Pending))
	})
}
