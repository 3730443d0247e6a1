package slurm

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
)

// Probe is what a site's Slurm says about itself.
type Probe struct {
	Version             string // of sbatch, e.g. "slurm-wlm 24.11.5"
	Release             [2]int // 24, 11
	ExportNIL           bool   // sbatch knows --export=NIL (documented since 20.11)
	ControllerText      string // what scontrol ping printed
	ClusterName         string
	AccountingStorage   string // e.g. accounting_storage/slurmdbd
	MinJobAge           time.Duration
	MessageTimeout      time.Duration
	KillWait            time.Duration
	SlurmctldParameters string
	RateLimited         bool // rl_enable: slurmctld itself limits each user's RPCs
	GraceFitsInKillWait bool // the script can still leave an exit file when a program ignores SIGTERM
}

// Probe asks Slurm about itself, for doctor and for choosing the site's settings, whatever cluster it is. With the controller down it
// gives what it has together with a Transport fault.
func (c *CLI) Probe(ctx context.Context) (Probe, error) {
	var p Probe
	out, err := c.ask(ctx, 0, clean, "sbatch", "--version")
	if err != nil {
		return p, err
	}
	p.Version = strings.TrimSpace(string(out.Stdout))
	if p.Release, err = release(p.Version); err != nil {
		return p, fault.Wrap(fault.Transport, "version", "the version of sbatch cannot be read", err)
	}
	p.ExportNIL = p.Release[0] > 20 || p.Release == [2]int{20, 11}
	anyExit := func(Output) bool { return true } // ping exits with 1 when the controller is down
	if err := c.budget.Spend(ctx, 1+rpcConfig); err != nil {
		return p, err
	}
	if out, err = c.run(ctx, nil, anyExit, "scontrol", "ping"); err != nil {
		return p, err
	}
	p.ControllerText = strings.TrimSpace(string(out.Stdout))
	if out, err = c.run(ctx, nil, clean, "scontrol", "show", "config"); err != nil {
		return p, err
	}
	p.read(configValues(string(out.Stdout)))
	p.GraceFitsInKillWait = time.Duration(c.Renderer.cfg.GraceSeconds)*time.Second < p.KillWait
	return p, nil
}

// MessageTimeout is slurm.conf's; run.Queue has the contract. It is asked for once.
func (c *CLI) MessageTimeout(ctx context.Context) (time.Duration, error) {
	if c.service != nil {
		return c.service.MessageTimeout(ctx)
	}
	return c.timeout.get(func() (d time.Duration, err error) {
		out, err := c.ask(ctx, rpcConfig, clean, "scontrol", "show", "config")
		if err != nil {
			return 0, err
		}
		if d = seconds(configValues(string(out.Stdout))["MessageTimeout"]); d == 0 {
			err = fault.New(fault.Transport, "config_unreadable", "scontrol show config does not show MessageTimeout")
		}
		return d, err
	})
}

func (p *Probe) read(v map[string]string) {
	p.ClusterName = v["ClusterName"]
	p.AccountingStorage = v["AccountingStorageType"]
	p.SlurmctldParameters = v["SlurmctldParameters"]
	p.RateLimited = strings.Contains(p.SlurmctldParameters, "rl_enable")
	p.MinJobAge, p.MessageTimeout, p.KillWait = seconds(v["MinJobAge"]), seconds(v["MessageTimeout"]), seconds(v["KillWait"])
}

// configValues reads "Key = value" lines of scontrol show config.
func configValues(text string) map[string]string {
	v := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, " = "); ok {
			v[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return v
}

// seconds reads "300 sec"; 0 for anything else.
func seconds(s string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSuffix(s, " sec"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// versionLine is the line with the version among whatever else a program prints.
var versionLine = regexp.MustCompile(`(?m)^slurm(?:-wlm)? ([0-9]{1,4})\.([0-9]{1,4})\b`)

// release reads the two numbers of "slurm 22.05.8" or "slurm-wlm 24.11.5".
func release(version string) (r [2]int, err error) {
	found := versionLine.FindStringSubmatch(version)
	if found == nil {
		return r, errors.New("no line with a version: " + fault.Clip(version))
	}
	for i := range r {
		if r[i], err = strconv.Atoi(found[i+1]); err != nil {
			return r, err
		}
	}
	return r, nil
}
