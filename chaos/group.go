package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// outage is a fault of the whole cluster. The cases of one group go through it together.
type outage struct {
	name string
	when string        // "before" the submissions, "receipt" (as soon as one has an id), "later" (wait after they began)
	wait time.Duration // for "later"
	hold time.Duration // until it is lifted
	on   [][]string    // devd's arguments, in order
	off  [][]string

	forgets bool // jobs and ids
	network bool // it is one of the way to the cluster
	drops   bool // it drops packets
}

func (o outage) String() string {
	text := fmt.Sprintf("%s (%s", o.name, o.when)
	if o.when == "later" {
		text += fmt.Sprintf(", %s", o.wait)
	}
	return text + fmt.Sprintf(", for %s)", o.hold)
}

// group holds the cases that share an outage.
type group struct {
	c      *cluster
	outage outage
	size   int

	mu     sync.Mutex
	trials []*trial
	open   chan struct{} // closed: submit
	lost   map[int]int   // packets that the outage dropped, by port of this machine
	err    error
}

func newGroup(c *cluster, o outage, size int) *group {
	return &group{c: c, outage: o, size: size, open: make(chan struct{})}
}

// ready is called by each case before it submits; it returns once all cases have called it and the outage is on its
// way.
func (g *group) ready(t *trial) {
	if g == nil {
		return
	}
	up := time.Now().Add(20 * time.Second)
	for alive := false; !alive && time.Now().Before(up); time.Sleep(20 * time.Millisecond) {
		alive, _ = t.keep.alive()
	}
	t.begin()
	g.mu.Lock()
	g.trials = append(g.trials, t)
	full := len(g.trials) == g.size
	g.mu.Unlock()
	if full {
		go g.happen()
	}
	<-g.open
}

// happen carries out the outage.
func (g *group) happen() {
	ctx := context.Background()
	apply := func(steps [][]string) {
		for _, args := range steps {
			if args[0] == "sever" { // an sshd that was stopped leaves its connections
				for _, t := range g.trials {
					t.s.wires.cutNow()
				}
				continue
			}
			lost, err := g.c.step(ctx, args)
			if err != nil && g.err == nil {
				g.err = fmt.Errorf("devd %v: %w", args, err)
			}
			if lost != nil {
				g.lost = lost
			}
		}
	}
	if g.outage.when == "before" {
		apply(g.outage.on)
	}
	close(g.open)
	switch g.outage.when {
	case "receipt":
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && !g.receipt(); {
			time.Sleep(2 * time.Millisecond)
		}
		apply(g.outage.on)
	case "later":
		time.Sleep(g.outage.wait)
		apply(g.outage.on)
	}
	time.Sleep(g.outage.hold)
	apply(g.outage.off)
	if err := g.c.healthy(ctx); err != nil && g.err == nil {
		g.err = err
	}
	for _, t := range g.trials {
		t.end()
	}
}

// receipt reports whether one of the submissions has its job id.
func (g *group) receipt() bool {
	for _, t := range g.trials {
		if t.carrier.rest() && t.observed().posts > 0 {
			return true
		}
		for _, x := range append(t.others(), t) { // the send of an array leaves its files with one of them
			if st, err := os.Stat(filepath.Join(t.s.path(t.s.dir(x.runID)), "a1/ctl/send.1.out")); err == nil && st.Size() > 0 {
				return true
			}
		}
	}
	return false
}

// Scripts of outages, run on the login node.
const (
	failingProlog = `printf '#!/bin/sh\n[ "$SLURMD_NODENAME" != n1 ]\n' >/shared/chaos-prolog; chmod 755 /shared/chaos-prolog`
	keepState     = `rm -rf /var/spool/chaos-older; cp -a /var/spool/slurmctld /var/spool/chaos-older`
	restoreState  = `find /var/spool/slurmctld -mindepth 1 -delete; cp -a /var/spool/chaos-older/. /var/spool/slurmctld/`
)

// outages are the kinds of cluster-wide faults; draw fills in the times.
func drawOutage(r source) outage {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	o := outage{when: pick("before", "receipt", "later"), wait: r.between(0, 4*time.Second), hold: r.between(500*time.Millisecond,
		5*time.Second)}
	one := func(name string, on, off []string) {
		o.name, o.on, o.off = name, [][]string{on}, [][]string{off}
	}
	switch r.IntN(10) {
	case 0, 1: // longer than sbatch waits for it
		one("slurmctld paused", []string{"pause", "slurmctld"}, []string{"resume", "slurmctld"})
		o.when, o.wait, o.hold = pick("before", "later"), r.between(0, 300*time.Millisecond), r.between(3*time.Second, 14*time.Second)
	case 2:
		one("slurmctld killed", []string{"kill", "slurmctld"}, []string{"start", "slurmctld"})
		// It may not have stored the jobs that it accepted last, and assigns their ids again.
		o.when, o.forgets = pick("receipt", "receipt", "later"), true
	case 3:
		one("slurmctld killed, forgets all jobs", []string{"kill", "slurmctld"}, []string{"start", "slurmctld", "-c"})
		o.when, o.forgets = pick("receipt", "receipt", "later"), true
	case 4:
		one("slurmctld stopped", []string{"stop", "slurmctld"}, []string{"start", "slurmctld"})
	case 5:
		one("slurmdbd stopped", []string{"stop", "slurmdbd"}, []string{"start", "slurmdbd"})
	case 6: // jobs on n1 fail, and Slurm drains it
		o.name, o.when, o.hold = "Prolog fails on n1", "before", r.between(4*time.Second, 10*time.Second)
		o.on = [][]string{{"script", failingProlog}, {"set", "slurm.conf", "Prolog=/shared/chaos-prolog"}}
		o.off = [][]string{{"set", "slurm.conf", "Prolog"}}
	case 7: // what it accepted and started since it has not seen
		o.name, o.when, o.forgets = "slurmctld with older state", pick("receipt", "later"), true
		o.on, o.off = [][]string{{"script", keepState}}, [][]string{{"stop", "slurmctld"}, {"script", restoreState}, {"start", "slurmctld"}}
	case 8:
		o.name = "cold start"
		o.on = [][]string{{"stop", "slurmctld"}, {"stop", "slurmdbd"}, {"stop", "munged"}}
		o.off = [][]string{{"start", "munged"}, {"start", "slurmdbd"}, {"start", "slurmctld"}}
	case 9:
		one("munged stopped", []string{"stop", "munged"}, []string{"start", "munged"})
	}
	return o
}
