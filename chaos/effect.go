package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// effect counts how often a fault of the way to the cluster took effect. A case whose fault never did shows nothing
// about that fault.
type effect struct {
	fault string
	unit  string
	n     int
}

// enter prepares the way to the cluster for the case.
func (t *trial) enter(ctx context.Context) error {
	t.observedBefore, _ = t.s.wires.sofar()
	t.s.wires.set(t.far.networkFaults)
	if t.s.signer != nil {
		t.met0 = t.s.signer.met()
	}
	if t.far.sftp != "" {
		if err := os.RemoveAll(t.s.path(t.s.flags() + "/sftp-server.bit")); err != nil {
			return err
		}
	}
	if t.carrier.rest() {
		return t.s.rest.enter(ctx, t)
	}
	return nil
}

// observed returns what the connections of this case have met so far.
func (t *trial) observed() observed {
	now, _ := t.s.wires.sofar()
	return now.less(t.observedBefore)
}

// effects lists the effects of the case's faults of the way to the cluster.
func (t *trial) effects() (list []effect) {
	f := t.observed()
	add := func(fault, unit string, n int) { list = append(list, effect{fault, unit, n}) }
	if len(t.far.networkFaults.cuts) > 0 || t.far.cutSend > 0 {
		add("cut", "connections", f.cuts)
	}
	if t.far.networkFaults.delay > 0 {
		add("delay", "bytes", f.delayed)
	}
	if t.far.networkFaults.lost > 0 {
		add("late pieces", "pieces", f.late)
	}
	if t.far.sftp != "" {
		bit, err := os.Stat(t.s.path(t.s.flags() + "/sftp-server.bit"))
		n := 0
		if err == nil {
			n = int(bit.Size())
		}
		add("sftp "+t.far.sftp, "answers", n)
	}
	if t.far.daemon != "" {
		add("slurmrestd "+t.far.daemon, "times", t.disturbed)
	}
	switch {
	case t.far.signer == userLocked:
		add(t.far.signer, "refusals", t.signerBit())
	case t.far.signer != "":
		add("signer "+t.far.signer, "times", t.signerBit())
	}
	if t.rename != "" {
		n := t.renamed
		for _, o := range t.others() {
			n += o.renamed
		}
		add("renamed "+string(t.rename), "jobs", n)
	}
	if t.scenario.suspend > 0 {
		add("suspended", "jobs", t.paused)
	}
	if t.far.namesake {
		add("job of the name", "jobs", min(len(t.strange), 1))
	}
	if t.far.token > 0 {
		add("token ended", "calls", t.s.rest.ended(t))
	}
	if t.block >= 0 && t.outage.network && t.group != nil {
		n := f.ended + f.cuts
		unit := "connections"
		if t.outage.drops {
			n, unit = 0, "packets"
			_, ports := t.s.wires.sofar()
			fmt.Fprintf(t.log, "=== packets dropped by port %v; connections of the case and before had the ports %v\n", t.group.lost, ports)
			for port, packets := range t.group.lost {
				if ports[port] {
					n += packets
				}
			}
		}
		add(t.outage.name, unit, n)
	}
	return list
}

// hits counts, for one transport and by fault, the cases that had it, those in which it took effect, and how often.
type hits map[effect]*struct{ cases, bit, n int }

// add counts a case and returns a text that names its faults without effect.
func (b hits) add(list []effect) (missed string) {
	for _, e := range list {
		kind := effect{fault: e.fault, unit: e.unit}
		if b[kind] == nil {
			b[kind] = &struct{ cases, bit, n int }{}
		}
		b[kind].cases++
		b[kind].n += e.n
		if e.n > 0 {
			b[kind].bit++
		} else {
			missed += "; did not bite: " + e.fault
		}
	}
	return missed
}

// total returns how many faults there were and how many of them took effect.
func (b hits) total() (cases, bit int) {
	for _, k := range b {
		cases += k.cases
		bit += k.bit
	}
	return cases, bit
}

func (b hits) String() string {
	var parts []string
	for _, e := range slices.SortedFunc(maps.Keys(b), func(a, b effect) int { return strings.Compare(a.fault, b.fault) }) {
		parts = append(parts, fmt.Sprintf("%s %d of %d (%d %s)", e.fault, b[e].bit, b[e].cases, b[e].n, e.unit))
	}
	return strings.Join(parts, ", ")
}
