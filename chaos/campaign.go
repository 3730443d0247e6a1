package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"slurmgate/run"
)

// caseCounter counts the results of the cases over one transport.
type caseCounter struct {
	cases, fits int // fits: the model allows them
	found       map[string]int
	hits        hits
}

func (t caseCounter) String() string {
	return fmt.Sprintf("%d cases, %d duplicates, %d lost, %d stuck, %d misattributed; %d replayed, as the model allows", t.cases,
		t.found["duplicate"], t.found["lost"], t.found["stuck"], t.found["misattributed"], t.fits)
}

// worker runs one case at a time, each on the site of its transport.
type worker map[carrier]*site

// campaigner runs the cases and keeps the count.
type campaigner struct {
	options
	*ground
	sites   []*site
	workers []worker
	began   time.Time

	mu      sync.Mutex
	done    int
	total   int
	counts  map[string]int // findings by kind, in all
	results map[carrier]*caseCounter
	reached map[string]int             // deaths by seam
	failing map[string]bool            // failing calls that were drawn
	passed  map[string]map[string]bool // place → scenarios that passed it
	arrays  arrayCounter
	batches batchCounter
	ended   []ended
}

func (p *campaigner) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// all runs the independent cases several at a time, then the groups one after another.
func (p *campaigner) all(ctx context.Context, list []testCase) error {
	p.total += len(list)
	var alone []testCase
	blocks := map[int][]testCase{}
	for _, c := range list {
		if c.block < 0 {
			alone = append(alone, c)
		} else {
			blocks[c.block] = append(blocks[c.block], c)
		}
	}
	queue := make(chan testCase)
	errs := make(chan error, len(p.workers))
	for _, w := range p.workers {
		go func() {
			var err error
			for c := range queue {
				if err == nil {
					err = p.one(ctx, w[c.carrier], c)
				}
			}
			errs <- err
		}()
	}
	for _, c := range alone {
		queue <- c
	}
	close(queue)
	for range p.workers {
		if err := <-errs; err != nil {
			return err
		}
	}
	for _, b := range slices.Sorted(maps.Keys(blocks)) {
		if err := p.together(ctx, blocks[b]); err != nil {
			return err
		}
	}
	return nil
}

// together runs the cases of one outage at the same time, each on a separate site.
func (p *campaigner) together(ctx context.Context, list []testCase) error {
	for len(list) > 0 {
		now := list[:min(len(list), len(p.workers))]
		list = list[len(now):]
		g := newGroup(p.cluster, now[0].outage, len(now))
		var cases errgroup.Group
		for i, c := range now {
			c.group = g
			cases.Go(func() error { return p.one(ctx, p.workers[i][c.carrier], c) })
		}
		first := cases.Wait()
		if first == nil {
			first = g.err
		}
		if first == nil { // the next outage finds nothing of this one
			first = p.quiet(ctx)
		}
		if first == nil && g.outage.forgets {
			// A slurmd never forgets an id that slurmctld forgot, and refuses to start another job that gets it.
			first = errors.Join(p.devd(ctx, "restart", "slurmd-n1"), p.devd(ctx, "restart", "slurmd-n2"))
		}
		if first == nil {
			first = p.healthy(ctx)
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// one runs a case to its verdict.
func (p *campaigner) one(ctx context.Context, s *site, c testCase) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	name := filepath.Join(p.repo, "build", "chaos", fmt.Sprintf("case-%d.log", c.n))
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "case %d of seed %d: %s\n", c.n, p.seed, c)
	t := &trial{testCase: &c, s: s, log: log, token: fmt.Sprintf("s%d-c%d", p.seed, c.n)}
	carryOut, judge := t.run, func() (run.State, error) { return p.judgeRuns(ctx, t) }
	if c.batch != nil {
		b := &batchTrial{trial: t, name: fmt.Sprintf("b%d", c.n), maybe: map[string]bool{}, tokens: map[string]string{}}
		carryOut, judge = b.run, func() (run.State, error) { return p.judgeBatch(ctx, b) }
	}
	before := s.passes()
	if err := carryOut(ctx); err != nil {
		return fmt.Errorf("case %d: %w", c.n, err)
	}
	if !p.alive() {
		return fmt.Errorf("case %d: the cluster was stopped", c.n)
	}
	state, err := judge()
	if err != nil {
		return fmt.Errorf("case %d: %w", c.n, err)
	}
	for _, w := range t.keep.wrong {
		t.find("stuck", "%s", w)
	}
	p.count(t, state, before, time.Since(began))
	if len(t.trouble) == 0 && p.only < 0 && !p.list && time.Since(began) < time.Minute { // keep the logs of slow ones
		os.Remove(name)
	}
	return nil
}

// ledgerOf returns the path to which a site's ledger is copied to be judged.
func (p *campaigner) ledgerOf(s *site) string {
	return filepath.Join(p.repo, "build", "chaos", "ledger-"+s.name())
}

// judgeRuns judges the runs of a case without a batch, and books them.
func (p *campaigner) judgeRuns(ctx context.Context, t *trial) (run.State, error) {
	e, err := t.judge(ctx, p.ledgerOf(t.s))
	if err != nil {
		return "", err
	}
	for _, o := range t.others() {
		if err := p.judgeOther(ctx, t, o); err != nil {
			return "", err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, e)
	return e.state, nil
}

// judgeOther judges another run of a case, and books what it finds with the case's own.
func (p *campaigner) judgeOther(ctx context.Context, t, o *trial) error {
	e, err := o.judge(ctx, p.ledgerOf(t.s))
	if err != nil {
		return err
	}
	for _, f := range o.trouble {
		t.trouble = append(t.trouble, finding{f.kind, "run " + o.runID + " of " + o.who() + ": " + f.text})
	}
	t.fits = t.fits && o.fits
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrays.add(o)
	p.ended = append(p.ended, e)
	return nil
}

// count counts a case and prints its line.
func (p *campaigner) count(t *trial, state run.State, before int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	over := p.results[t.carrier]
	over.cases++
	if t.fits {
		over.fits++
	}
	for _, seam := range t.keep.fired {
		p.reached[place(seam)]++
	}
	missed := ""
	for _, st := range t.starts {
		p.failing[place(st.fail)] = st.fail != ""
		if st.kill != "" && !slices.Contains(t.keep.fired, st.kill) {
			missed += "; not reached: " + st.kill
		}
	}
	for _, line := range t.s.passedSince(before) {
		at := strings.TrimSuffix(strings.TrimSuffix(line, ".before"), ".after")
		if p.passed[at] == nil {
			p.passed[at] = map[string]bool{}
		}
		p.passed[at][t.scenario.name] = true
	}
	missed += over.hits.add(t.effects())
	p.arrays.add(t)
	verdict := "ok"
	if len(t.trouble) > 0 {
		verdict = "FAILED"
	}
	p.say("%3d/%d  case %d  %s %s in %.1fs  (%s%s)", p.done, p.total, t.n, verdict, state, took.Seconds(), t.testCase, missed)
	if len(t.trouble) == 0 {
		return
	}
	p.book(t, t.trouble)
	fmt.Println(indent(t.story))
}

// book counts a case's findings once each and prints how to repeat it.
func (p *campaigner) book(t *trial, found []finding) {
	kinds := map[string]bool{}
	for _, f := range found {
		fmt.Printf("        case %d  %s: %s\n", t.n, f.kind, f.text)
		kinds[f.kind] = true
	}
	for k := range kinds {
		p.counts[k]++
		p.results[t.carrier].found[k]++
	}
	fmt.Printf("        again: go run ./chaos -seed %d -case %d   log: build/chaos/case-%d.log\n", p.seed, t.n, t.n)
}

// place returns the name of a seam without its #n.
func place(seam string) string {
	name, _, _ := strings.Cut(seam, "#")
	return name
}

func indent(s string) string {
	return "        " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n        ")
}

// passes returns the size of the site's list of passed seams.
func (s *site) passes() int64 {
	st, err := os.Stat(s.path(s.local + "/seams"))
	if err != nil {
		return 0
	}
	return st.Size()
}

// passedSince returns the seams passed since.
func (s *site) passedSince(offset int64) []string {
	f, err := os.Open(s.path(s.local + "/seams"))
	if err != nil {
		return nil
	}
	defer f.Close()
	if _, err := f.Seek(offset, 0); err != nil {
		return nil
	}
	seen := map[string]bool{}
	var out []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if !seen[sc.Text()] {
			seen[sc.Text()] = true
			out = append(out, sc.Text())
		}
	}
	return out
}

// close waits for the last job, reads every run once more, and returns the number of findings.
func (p *campaigner) close(ctx context.Context) (int, error) {
	if err := p.quiet(ctx); err != nil {
		return 0, err
	}
	for _, s := range p.sites {
		l, db, err := s.copyLedger(ctx, p.ledgerOf(s))
		if err != nil {
			return 0, err
		}
		for _, e := range p.ended {
			if e.t.s != s {
				continue
			}
			found, err := e.again(ctx, l, db)
			if err != nil {
				return 0, err
			}
			if len(found) > 0 {
				p.book(e.t, found)
				fmt.Println(indent(e.t.story))
			}
		}
		db.Close()
		l.Close()
	}
	p.places()
	for _, text := range []string{p.arrays.String(), p.batches.String()} {
		if text != "" {
			fmt.Println(text)
		}
	}
	all := caseCounter{cases: p.done, found: p.counts}
	drawn, bitten := 0, 0
	for _, c := range carriers {
		r := p.results[c]
		if r == nil {
			continue
		}
		all.fits += r.fits
		line := c.title() + ": " + r.String()
		if cases, bit := r.hits.total(); cases > 0 {
			line += fmt.Sprintf("; %d of %d faults of the way bit: %s", bit, cases, r.hits)
			drawn, bitten = drawn+cases, bitten+bit
		}
		fmt.Println(line)
	}
	fmt.Printf("faults of the way: %d of %d bit\n", bitten, drawn)
	fmt.Println(all)
	if len(p.counts) > 0 || p.n >= everySeam && p.only < 0 && !p.list && len(p.missed()) > 0 {
		return 1, nil
	}
	return 0, nil
}

// missed returns the seams at which no gateway died.
func (p *campaigner) missed() (list []seam) {
	for _, s := range seams(false) {
		if p.reached[s.name] == 0 {
			list = append(list, s)
		}
	}
	return list
}

// places reports coverage, and places that are missing from the campaign's list.
func (p *campaigner) places() {
	var missed []string
	for _, s := range p.missed() {
		missed = append(missed, s.name)
	}
	all := seams(false)
	known := map[string][]string{}
	for _, k := range places {
		known[k.name] = k.in
	}
	for _, k := range arrayPlaces {
		known[k.name] = []string{k.in}
	}
	for _, name := range batchPlaces {
		known[name] = []string{"batch"}
	}
	for _, at := range slices.Sorted(maps.Keys(p.passed)) {
		if p.list {
			fmt.Printf("{%q, 1, []string{%s}},\n", at, quoted(slices.Sorted(maps.Keys(p.passed[at]))))
		} else if known[at] == nil {
			fmt.Printf("the gateway passes %s, which is not in chaos/seam.go\n", at)
		}
	}
	if !p.list {
		fmt.Printf("seams %d of %d, failing calls %d of %d\n", len(all)-len(missed), len(all), len(p.failing)-1, len(places))
		if len(missed) > 0 {
			fmt.Printf("not reached: %s\n", strings.Join(missed, " "))
		}
	}
	fmt.Printf("%s in all\n", time.Since(p.began).Round(time.Second))
}

func quoted(words []string) string {
	var out []string
	for _, w := range words {
		out = append(out, fmt.Sprintf("%q", w))
	}
	return strings.Join(out, ", ")
}
