package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// What a gateway with 100,000 open runs needs is measured in separate processes, so that nothing is warm.

// alone starts this program in the measurement's folder and decodes the one line of JSON it prints.
func (m *measurement) alone(ctx context.Context, what string, answer any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	where, err := json.Marshal(place{m.dir, m.sizes.Ledger})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "inside", what, string(where))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return json.Unmarshal(out, answer)
}

// place is the argument of such a process.
type place struct {
	Dir  string
	Runs int // in the ledger
}

// seldom leaves the cycles to the measurement; the first one still comes at once.
var seldom = rates{rpcPerMinute: 1_000_000, floor: time.Hour, ceiling: time.Hour}

func (p place) open(ctx context.Context) (*rig, error) { return openRig(ctx, p.Dir, seldom) }

// cold measures from the start of the process to the end of the first cycle and everything that followed from it.
func (m *measurement) cold(ctx context.Context) error {
	var took []float64
	for range m.sizes.Cold {
		began := time.Now()
		var u usage
		if err := m.alone(ctx, "idle", &u); err != nil {
			return err
		}
		took = append(took, u.Ready.Sub(began).Seconds())
	}
	m.print("cold_start", median(took), "s", "<=2", fmt.Sprint("runs=", m.sizes.Large), fmt.Sprint("ledger=", m.sizes.Ledger),
		fmt.Sprint("starts=", m.sizes.Cold), "min="+number(quantile(took, 0)), "max="+number(quantile(took, 1)))
	return nil
}

// memory measures the highest peak of RAM of any such process.
func (m *measurement) memory(ctx context.Context) error {
	var u usage
	if err := m.alone(ctx, "idle", &u); err != nil {
		return err
	}
	open := fmt.Sprint("ledger=", m.sizes.Ledger)
	m.print("memory_peak", u.PeakRSS, "MB", "<=128", open, fmt.Sprint("cycles=", idleCycles))
	m.print("memory_rss", u.RSS, "MB", "<=128", open)
	m.print("memory_heap", u.Heap, "MB", "", open)
	m.print("cycle_time", u.Cycle.Seconds(), "s", "", open)
	return nil
}

const idleCycles = 5

// usage holds what a gateway at rest uses.
type usage struct {
	Ready              time.Time // caught up
	PeakRSS, RSS, Heap float64   // MB; heap after a collection
	Cycle              time.Duration
}

// idle runs a gateway that starts, catches up and keeps watching.
func idle(ctx context.Context, p place) error {
	g, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	var u usage
	err = g.during(ctx, func() error {
		if err := g.engine.CaughtUp(ctx); err != nil {
			return err
		}
		u.Ready = time.Now()
		for range idleCycles {
			took, err := timed(func() error { _, err := g.engine.Cycle(ctx); return err })
			if err != nil {
				return err
			}
			u.Cycle += took / idleCycles
		}
		if u.PeakRSS, err = status("VmHWM"); err != nil {
			return err
		}
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		u.Heap = float64(mem.HeapAlloc) / 1e6
		u.RSS, err = status("VmRSS")
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(u)
}

// status reads a line of /proc/self/status, in MB.
func status(key string) (float64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), key+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return n * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no %s", key)
}

// replayTimes measures submits of runs that exist, one after another.
func (m *measurement) replayTimes(ctx context.Context) error {
	var took []time.Duration
	if err := m.alone(ctx, "replay", &took); err != nil {
		return err
	}
	params := []string{fmt.Sprint("ledger=", m.sizes.Ledger), fmt.Sprint("replays=", len(took))}
	m.print("replay_p50", ms(quantile(took, 0.5)), "ms", "", params...)
	m.print("replay_p99", ms(quantile(took, 0.99)), "ms", "<=2", params...)
	return nil
}

const replaysTimed = 5000

// replayAlone replays in a separate process.
func replayAlone(ctx context.Context, p place) error {
	g, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	var took []time.Duration
	for i := range replaysTimed { // all over the ledger
		if err := g.replay(ctx, i*p.Runs/replaysTimed, 1, &took); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}
