package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// raceAlone runs only the race.
func (m *measurement) raceAlone(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	_, err = m.race(ctx, g)
	return err
}

// lane is one of the competitors: how it submits the runs from … from+n-1, and what that took.
type lane struct {
	name  string
	send  func(ctx context.Context, from, n int) (time.Duration, error)
	walls []float64 // milliseconds of each block
	own   float64   // CPU milliseconds of this program, all blocks together
	child float64   // and of the sbatch it started
	all   busy      // what the machine did
}

func (l *lane) block(ctx context.Context, from, n int) error {
	own, child, machine := cpuTime(syscall.RUSAGE_SELF), cpuTime(syscall.RUSAGE_CHILDREN), machineTime()
	wall, err := l.send(ctx, from, n)
	l.own, l.child = l.own+ms(cpuTime(syscall.RUSAGE_SELF)-own), l.child+ms(cpuTime(syscall.RUSAGE_CHILDREN)-child)
	l.all, l.walls = l.all.plus(machineTime().minus(machine)), append(l.walls, ms(wall))
	return err
}

// race submits the same script in blocks, in turns: by the engine, durably; by sbatch alone; and by sbatch plus only
// the writes of a durable submit. A block of the engine lasts from the first call to the last receipt; race waits for
// the watcher's writes after that outside the timing, so that they slow down no block.
func (m *measurement) race(ctx context.Context, g *rig) (sent int, err error) {
	err = g.during(ctx, func() error {
		if _, err := g.send(ctx, 0, m.sizes.Block); err != nil { // warm, and the source of the bare command line
			return err
		}
		argv, err := g.bareJob(ctx, 0)
		if err != nil {
			return err
		}
		least, err := openFloor(filepath.Join(m.dir, "floor"), argv)
		if err != nil {
			return err
		}
		defer least.close()
		durable := &lane{name: "durable_submit", send: func(ctx context.Context, from, n int) (wall time.Duration, err error) {
			err = profiled(ctx, m.sizes.Profiles, "submit", func(ctx context.Context) (err error) { wall, err = g.send(ctx, from, n); return err })
			return wall, err
		}}
		bare := &lane{name: "bare_sbatch", send: func(ctx context.Context, _, n int) (time.Duration, error) {
			return sendBare(ctx, argv, workers, n)
		}}
		floor := &lane{name: "floor", send: least.send}
		if sent, err = m.turns(ctx, g, []*lane{durable, bare, floor}); err != nil {
			return err
		}
		params := m.raceParams()
		m.ratio("floor_ratio", bare, floor, "", params)
		m.ratio("durable_to_floor_ratio", floor, durable, "", params)
		m.ratio("durable_submit_ratio", bare, durable, ">=0.85", params)
		return nil
	})
	return sent, err
}

// turns lets the lanes submit a block each, in turns, and prints what each of them took. The first block of runs is already sent; sent is
// how many are at the end.
func (m *measurement) turns(ctx context.Context, g *rig, lanes []*lane) (sent int, err error) {
	block := m.sizes.Block
	sent = block
	for round := range m.sizes.Rounds {
		for turn := range lanes {
			if err := g.quiet(ctx); err != nil {
				return sent, err
			}
			if err := lanes[(round+turn)%len(lanes)].block(ctx, sent, block); err != nil {
				return sent, err
			}
		}
		sent += block
		words := ""
		for _, l := range lanes {
			words += fmt.Sprintf(" %s %.0f/s", l.name, 1000*float64(block)/l.walls[round])
		}
		m.say("round %d:%s", round+1, words)
	}
	for _, l := range lanes {
		m.lane(l, float64(block), m.raceParams())
	}
	return sent, nil
}

func (m *measurement) raceParams() []string {
	return []string{fmt.Sprint("rounds=", m.sizes.Rounds), fmt.Sprint("block=", m.sizes.Block), fmt.Sprint("workers=", workers)}
}

// lane prints what a lane took per run: rate, CPU time of this program and of its sbatch, and what all processors did.
func (m *measurement) lane(l *lane, block float64, params []string) {
	n := block * float64(len(l.walls))
	m.print(l.name+"_rate", 1000*block/median(l.walls), "run/s", "", params...)
	m.print(l.name+"_cpu", l.own/n, "ms/run", "", append(params, "sbatch="+number(l.child/n))...)
	m.print(l.name+"_busy", l.all.worked/n, "ms/run", "", append(params, "waited="+number(l.all.waited/n), "idle="+number(l.all.idle/n))...)
}

// ratio prints the rate of the second lane divided by that of the first, round by round.
func (m *measurement) ratio(name string, of, to *lane, target string, params []string) {
	var ratios []float64
	for i := range of.walls {
		ratios = append(ratios, of.walls[i]/to.walls[i])
	}
	m.print(name, median(ratios), "ratio", target, append(params, "min="+number(quantile(ratios, 0)), "max="+number(quantile(ratios, 1)))...)
}

// cpuTime returns the CPU time used by this process, or by the children it has waited for.
func cpuTime(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busy holds the times of the machine's processors, all programs and the kernel together, in milliseconds.
type busy struct{ worked, waited, idle float64 }

func (b busy) plus(o busy) busy {
	return busy{b.worked + o.worked, b.waited + o.waited, b.idle + o.idle}
}
func (b busy) minus(o busy) busy { return b.plus(busy{-o.worked, -o.waited, -o.idle}) }

// machineTime reads the first line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq in hundredths of a second.
func machineTime() busy {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return busy{}
	}
	var user, nice, system, idle, iowait, irq, softirq float64
	if _, err := fmt.Sscanf(string(data), "cpu %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &iowait, &irq, &softirq); err != nil {
		return busy{}
	}
	return busy{worked: 10 * (user + nice + system + irq + softirq), waited: 10 * iowait, idle: 10 * idle}
}
