package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"slurmgate/ledger"
	"slurmgate/run"
)

// submit measures, on one ledger that grows: the submit race, status beside squeue, then everything about 100,000 runs.
func (m *measurement) submit(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	sent, err := m.race(ctx, g)
	if err != nil {
		return err
	}
	if err := g.during(ctx, func() error { _, err := g.send(ctx, sent, m.sizes.Large-sent); return err }); err != nil {
		return err
	}
	m.say("%d runs are in Slurm", m.sizes.Large)
	if err := m.onlyOurs(ctx); err != nil {
		return err
	}
	if err := g.quiet(ctx); err != nil {
		return err
	}
	if err := m.status(ctx, g); err != nil {
		return err
	}
	if err := g.seed(ctx, m.sizes.Large, m.sizes.Ledger-m.sizes.Large); err != nil {
		return err
	}
	m.say("%d runs are in the ledger", m.sizes.Ledger)
	if err := m.cold(ctx); err != nil {
		return err
	}
	if err := m.memory(ctx); err != nil {
		return err
	}
	return m.replayTimes(ctx)
}

// raceAlone is the race and nothing after it.
func (m *measurement) raceAlone(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	_, err = m.race(ctx, g)
	return err
}

// race submits the same script in blocks, in turns: by the engine, durably, and by nothing but sbatch. A block of the engine
// lasts from the first call to the last receipt; what the watcher writes down afterwards is waited for outside, so that
// it slows nobody.
func (m *measurement) race(ctx context.Context, g *rig) (sent int, err error) {
	block := m.sizes.Block
	err = g.during(ctx, func() error {
		if _, err := g.send(ctx, 0, block); err != nil { // warm, and the source of the bare command line
			return err
		}
		sent = block
		argv, err := g.bareJob(ctx, 0)
		if err != nil {
			return err
		}
		var ratios, durable, bare []float64
		var ownWith, ownWithout, childWith, childWithout float64 // CPU milliseconds of all rounds
		var allWith, allWithout busy
		for round := range m.sizes.Rounds {
			var with, without time.Duration
			for turn := range 2 {
				if err := g.quiet(ctx); err != nil {
					return err
				}
				own, child, machine := cpuTime(syscall.RUSAGE_SELF), cpuTime(syscall.RUSAGE_CHILDREN), machineTime()
				if turn == round%2 {
					err = profiled(ctx, m.sizes.Profiles, "submit", func(ctx context.Context) (err error) { with, err = g.send(ctx, sent, block); return err })
					sent += block
					ownWith, childWith = ownWith+ms(cpuTime(syscall.RUSAGE_SELF)-own), childWith+ms(cpuTime(syscall.RUSAGE_CHILDREN)-child)
					allWith = allWith.plus(machineTime().minus(machine))
				} else {
					without, err = sendBare(ctx, argv, block)
					ownWithout, childWithout = ownWithout+ms(cpuTime(syscall.RUSAGE_SELF)-own), childWithout+ms(cpuTime(syscall.RUSAGE_CHILDREN)-child)
					allWithout = allWithout.plus(machineTime().minus(machine))
				}
				if err != nil {
					return err
				}
			}
			ratios = append(ratios, without.Seconds()/with.Seconds())
			durable, bare = append(durable, float64(block)/with.Seconds()), append(bare, float64(block)/without.Seconds())
			m.say("round %d: durable %.0f/s, bare %.0f/s, ratio %.2f", round+1, durable[round], bare[round], ratios[round])
		}
		params := []string{fmt.Sprint("rounds=", m.sizes.Rounds), fmt.Sprint("block=", block), fmt.Sprint("workers=", workers)}
		m.print("durable_submit_rate", median(durable), "run/s", "", params...)
		m.print("bare_sbatch_rate", median(bare), "job/s", "", params...)
		// Of this program alone: what the disk's and Slurm's daemons spend is not in it, nor what else the machine does.
		all := float64(m.sizes.Rounds * block)
		m.print("durable_submit_cpu", ownWith/all, "ms/run", "", append(params, "sbatch="+number(childWith/all))...)
		m.print("bare_sbatch_cpu", ownWithout/all, "ms/job", "", append(params, "sbatch="+number(childWithout/all))...)
		m.print("durable_submit_busy", allWith.worked/all, "ms/run", "", append(params, "waited="+number(allWith.waited/all), "idle="+number(allWith.idle/all))...)
		m.print("bare_sbatch_busy", allWithout.worked/all, "ms/job", "", append(params, "waited="+number(allWithout.waited/all), "idle="+number(allWithout.idle/all))...)
		m.print("durable_submit_ratio", median(ratios), "ratio", ">=0.85", append(params, "min="+number(quantile(ratios, 0)), "max="+number(quantile(ratios, 1)))...)
		return nil
	})
	return sent, err
}

// onlyOurs takes the bare jobs out of the queue and waits until slurmctld has forgotten them.
func (m *measurement) onlyOurs(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "scancel", "--name="+bareName).CombinedOutput(); err != nil {
		return fmt.Errorf("scancel: %w: %s", err, out)
	}
	for range 90 { // MinJobAge is 5 s; slurmctld purges every 30 to 60
		out, err := exec.CommandContext(ctx, "squeue", "-h", "-t", "all", "-u", user, "--name="+bareName).Output()
		if err != nil || len(out) == 0 {
			return err
		}
		time.Sleep(2 * time.Second)
	}
	return fmt.Errorf("slurmctld does not forget the bare jobs")
}

// status compares what it takes to know the state of every run, afresh, with a look at the same jobs by squeue. Two bare
// commands stand beside it: the shortest that tells state and name, and the one the gateway itself runs.
func (m *measurement) status(ctx context.Context, g *rig) error {
	var ours, short, same, toShort, toSame []float64
	for range m.sizes.Looks {
		a, err := timed(func() error { return squeue(ctx, "-h", "-r", "-t", "all", "-u", user, "-o", "%i|%T|%j") })
		if err != nil {
			return err
		}
		b, err := timed(func() error {
			return profiled(ctx, m.sizes.Profiles, "status", func(ctx context.Context) error { return g.lookAtAll(ctx, m.sizes.Large) })
		})
		if err != nil {
			return err
		}
		c, err := timed(func() error { _, err := g.cli.Queue(ctx); return err })
		if err != nil {
			return err
		}
		ours, short, same = append(ours, ms(b)), append(short, ms(a)), append(same, ms(c))
		toShort, toSame = append(toShort, float64(b)/float64(a)), append(toSame, float64(b)/float64(c))
	}
	runs := fmt.Sprint("runs=", m.sizes.Large)
	m.print("status_time", median(ours), "ms", "", runs)
	m.print("squeue_time", median(short), "ms", "", runs, "columns=id,state,name")
	m.print("queue_time", median(same), "ms", "", runs, "columns=all")
	m.print("status_ratio", median(toShort), "ratio", "<=2", runs, "min="+number(quantile(toShort, 0)), "max="+number(quantile(toShort, 1)))
	m.print("status_ratio_same_columns", median(toSame), "ratio", "", runs)
	return nil
}

// lookAtAll is one watch cycle, and then the answer about every run from the ledger.
func (g *rig) lookAtAll(ctx context.Context, want int) error {
	if _, err := g.engine.Cycle(ctx); err != nil {
		return err
	}
	seen := 0
	for cursor := ""; ; {
		page, err := g.ledger.List(ctx, ledger.Filter{Limit: 500, Cursor: cursor})
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			if r.Phase == run.Pending && r.SlurmState == "PENDING" && r.JobID != "" {
				seen++
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if seen != want {
		return fmt.Errorf("%d of %d runs are pending", seen, want)
	}
	return nil
}

func squeue(ctx context.Context, args ...string) error {
	_, err := exec.CommandContext(ctx, "/usr/bin/squeue", args...).Output()
	return err
}

// cpuTime is what this process, or the children it has waited for, have used of the processors.
func cpuTime(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busy is what the processors of the machine did, all programs and the kernel together, in milliseconds.
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

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
