package run_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// picking returns an order whose site is picked when its run turns out to be new.
func picking(a *atomic.Int32, site string, change ...func(o *run.Order)) run.Order {
	o := on("a", false)
	o.Pick = func(context.Context) (run.Picked, error) {
		a.Add(1)
		return run.Picked{Site: site, Why: "test", Sites: []run.Considered{{Site: "a", Why: "full"}, {Site: site, Fits: true, Why: "free"}}}, nil
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// The site of a new run is picked once, when there is no such run yet; a replay picks nothing, whatever the state of
// the sites then, and naming the site that was picked finds the run.
//
// proves SITE-07 ABI-18
func TestPick(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.auto = true
		b := a.twin()
		s, _ := gateway(t, a.site("a", open), b.site("b", open))
		var picks atomic.Int32
		shown, err := s.Preview(t.Context(), picking(&picks, "b"))
		if err != nil || shown.Site != "b" || shown.SiteWhy != "test" || len(shown.Sites) != 2 || shown.Sites[0].Why != "full" || shown.Exists {
			t.Errorf("the preview is %+v %v, want site b for the choice's reason", shown, err)
		}
		first := submit(t, s, a, picking(&picks, "b"))
		b.want(b.until(first.RunID, done), run.Succeeded, "ok")
		if first.Site != "b" || a.count("Send") != 0 || b.count("Send") != 1 || picks.Load() != 2 {
			t.Errorf("on %s, %d picks", first.Site, picks.Load())
		}
		no := func(o *run.Order) {
			o.Pick = func(context.Context) (run.Picked, error) { return run.Picked{}, errors.New("the run fits no site") }
		}
		for name, o := range map[string]run.Order{"another would be picked": picking(&picks, "a"), "nothing fits": picking(&picks, "", no),
			"named": on("b", true), "without a rule": on("a", false)} {
			if again := submit(t, s, a, o); again.RunID != first.RunID || !again.Replayed || again.Site != "b" {
				t.Errorf("the order again with %q gives %+v, want the first run on site b", name, again)
			}
		}
		if p, err := s.Preview(t.Context(), picking(&picks, "a")); err != nil || !p.Exists || p.Site != "b" || len(p.Sites) != 0 ||
			p.SiteWhy == "" {
			t.Errorf("the preview of a run is %+v %v, want the run where it is", p, err)
		}
		if picks.Load() != 2 {
			t.Errorf("%d picks", picks.Load())
		}
		if _, err := s.Submit(t.Context(), picking(&picks, "", no, func(o *run.Order) { cpus(9)(&o.Params) })); err == nil {
			t.Error("a run that fits no site was accepted")
		}
	})
}

// A caller's submit and its twin, concurrent and with different picks, are one run on one site.
//
// proves SITE-07 ABI-18
func TestPicksDiffer(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.auto = true
		b := a.twin()
		s, _ := gateway(t, a.site("a", open), b.site("b", open))
		var picks atomic.Int32
		a.input(on("a", false))
		var both, ready sync.WaitGroup
		ready.Add(2)
		answers := make([]run.SubmitAnswer, 2)
		for i, site := range []string{"a", "b"} {
			both.Go(func() {
				o := picking(&picks, site)
				pick := o.Pick
				o.Pick = func(ctx context.Context) (run.Picked, error) {
					ready.Done()
					ready.Wait() // both have found no run
					return pick(ctx)
				}
				var err error
				if answers[i], err = s.Submit(t.Context(), o); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if answers[0].RunID != answers[1].RunID || answers[0].Site != answers[1].Site || answers[0].Replayed == answers[1].Replayed {
			t.Errorf("two orders at once are answered %+v, want the same run, once new", answers)
		}
		a.until(answers[0].RunID, done)
		if n := a.count("Send") + b.count("Send"); n != 1 {
			t.Errorf("%d sends", n)
		}
	})
}

// The state of a site has since when it is away, until when it is paused and why, without any query.
//
// proves SITE-07
func TestSiteState(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		b, c := a.twin(), a.twin()
		var there atomic.Bool
		down := false
		closed := func() error {
			if there.Load() {
				return nil
			}
			return fault.New(fault.Transport, "runs_dir_unavailable", "runs_dir is not mounted")
		}
		c.fault = failingWhile(&down, errors.New("unable to contact slurmctld"), "Queue")
		began := time.Now()
		s, _ := gateway(t, a.site("a", open), b.site("b", closed), c.site("c", open))
		state := func(name string) run.SiteState {
			t.Helper()
			st, ok := s.State(name)
			if !ok {
				t.Fatalf("State(%q) finds no site, want one of the gateway's", name)
			}
			return st
		}
		if st := state("a"); st.Condition != run.SiteReady || st.Problem != nil || st.Accounting == nil || st.Since != nil ||
			len(st.Pauses) != 0 {
			t.Errorf("site a is %+v, want ready without problem", st)
		}
		if st := state("b"); st.Condition != run.SiteIsAway || st.Since == nil || !st.Since.Equal(began) || st.Accounting != nil ||
			fault.CodeOf(st.Problem) != run.SiteAway {
			t.Errorf("site b is %+v, want away since the test began", st)
		}
		c.until(submit(t, s, a, on("c", false, cpus(2))).RunID, in(run.Pending))
		time.Sleep(time.Minute)
		c.with(func() { down = true })
		time.Sleep(5 * time.Minute)
		if state("c").Since == nil {
			t.Fatalf("site c is %+v, want away since some time", state("c"))
		}
		since := *state("c").Since
		time.Sleep(5 * time.Minute)
		if st := state("c"); !st.Since.Equal(since) || fault.CodeOf(st.Problem) != run.Unreachable || st.Answered == nil ||
			st.Answered.After(since) {
			t.Errorf("five minutes later site c is %+v, want unreachable since %s, answered before", st, since)
		}
		c.with(func() { down = false })
		there.Store(true)
		time.Sleep(5 * time.Minute)
		for _, name := range []string{"b", "c"} {
			if st := state(name); st.Condition != run.SiteReady || st.Since != nil {
				t.Errorf("the site %s is %+v, want it ready, with Since nil", name, st)
			}
		}
		s.SetDrains([]run.Drain{{Site: "a", Reason: "maintenance", Since: began}})
		if st := state("a"); st.Condition != run.SiteDrained || !st.Since.Equal(began) || st.Drain.Reason != "maintenance" {
			t.Errorf("site a is %+v, want drained since the drain began", st)
		}
		if _, ok := s.State("d"); ok {
			t.Error("there is no site d")
		}
	})
}

// If Slurm refuses for a reason that concerns all of a site, the site is paused, with the reason and the end of the
// pause.
//
// proves SITE-07
func TestSitePaused(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.send = sends(deferSend)
		a.deferred = run.SendResult{Code: "ESLURM_MAX_JOB_COUNT", Scope: run.ScopeSite}
		s, _ := gateway(t, a.site("a", open), a.twin().site("b", open))
		a.until(submit(t, s, a, on("a", false)).RunID, in(run.Deferred))
		st, _ := s.State("a")
		if st.Condition != run.SitePaused || st.Until == nil || !st.Until.After(time.Now()) || len(st.Pauses) != 1 ||
			st.Pauses[0].What != "site" ||
			*st.Pauses[0].Detail != "no room" || fault.CodeOf(st.Problem) != "ESLURM_MAX_JOB_COUNT" {
			t.Errorf("site a is %+v, want paused by Slurm for a time", st)
		}
		if st, _ := s.State("b"); st.Condition != run.SiteReady {
			t.Errorf("site b is %+v, want ready", st)
		}
	})
}

// Slurm is queried for its partitions once in a while; a site that does not answer delays a choice once, for two
// seconds.
//
// proves SITE-07
func TestPartitionsOfASite(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		var asked atomic.Int32
		var hangs atomic.Bool
		x := a.site("a", open)
		x.Open = func(context.Context) (run.Parts, error) {
			p, err := a.site("a", open).Open(t.Context())
			p.Partitions = func(ctx context.Context) ([]run.Partition, error) {
				if asked.Add(1); hangs.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return []run.Partition{{Name: "main"}}, nil
			}
			return p, err
		}
		s, _ := gateway(t, x)
		took := func() time.Duration {
			began := time.Now()
			s.Partitions(t.Context(), "a")
			return time.Since(began)
		}
		hangs.Store(true)
		if d := took(); d != 2*time.Second {
			t.Errorf("Partitions of a site that hangs took %s, want 2s", d)
		}
		time.Sleep(2 * time.Minute)
		hangs.Store(false)
		for range 3 {
			if list := s.Partitions(t.Context(), "a"); len(list) != 1 || asked.Load() != 2 {
				t.Errorf("Partitions gives %+v after %d calls, want one partition after 2 calls", list, asked.Load())
			}
		}
		time.Sleep(11 * time.Minute)
		hangs.Store(true)
		if d := took(); d != 0 || len(s.Partitions(t.Context(), "a")) != 1 {
			t.Error("an older answer is used while Slurm is asked again", d)
		}
		if s.Partitions(t.Context(), "none") != nil {
			t.Error("a site that is not there")
		}
		time.Sleep(2 * time.Minute)
	})
}

// A site that was open and whose host cannot be reached now accepts new runs: whether it has their image is checked
// when it is back.
//
// proves SITE-07
func TestHostOfASiteDown(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		a.auto = true
		b := a.twin()
		b.auto = true
		down := true
		b.fault = failingWhile(&down, fault.New(fault.Transport, "ssh_unreachable", "login.example does not answer"), "Verify")
		s, _ := gateway(t, a.site("a", open), b.site("b", open))
		waits := submit(t, s, a, on("b", true))
		if waits.Reason == nil || !strings.HasPrefix(*waits.Reason, run.SiteAway+": ") {
			t.Errorf("the run for site b is answered %+v, want that it waits for the site", waits)
		}
		x := submit(t, s, a, on("a", false, cpus(2)))
		a.want(a.until(x.RunID, done), run.Succeeded, "ok")
		if v := a.until(waits.RunID, in(run.Staging)); v.Run.Reason != run.SiteAway || b.count("Send") != 0 {
			t.Errorf("the run for site b is %+v, want waiting, and nothing sent", v.Run)
		}
		b.with(func() { down = false })
		b.want(b.until(waits.RunID, done), run.Succeeded, "ok")
	})
}
