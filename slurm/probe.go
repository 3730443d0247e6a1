package slurm

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/run"
)

// Probe holds what a site's Slurm reports about itself.
type Probe struct {
	Version        string // of sbatch, e.g. "slurm-wlm 24.11.5"
	Release        [2]int // 24, 11
	ExportNIL      bool   // sbatch knows --export=NIL (documented since 20.11)
	ControllerText string // what scontrol ping printed
	Config         run.Asked[run.ClusterConfig]
}

// Version returns sbatch's version. No daemon is asked.
func (c *CLI) Version(ctx context.Context) (string, error) {
	out, err := c.ask(ctx, 0, answered, "sbatch", "--version")
	return strings.TrimSpace(string(out.Stdout)), err
}

// Probe asks Slurm about itself, for doctor, without a check of the cluster. With the controller down it returns what
// it has together with a Transport fault.
func (c *CLI) Probe(ctx context.Context) (p Probe, err error) {
	if p.Version, err = c.Version(ctx); err != nil {
		return p, err
	}
	if p.Release, err = release(p.Version); err != nil {
		return p, fault.Wrap(fault.Transport, "version", "the version of sbatch cannot be read", err)
	}
	p.ExportNIL = p.Release[0] > 20 || p.Release == [2]int{20, 11}
	anyExit := func(Output) bool { return true } // ping exits with 1 when the controller is down
	if err := c.budget.Spend(ctx, 1+rpcConfig); err != nil {
		return p, err
	}
	out, err := c.run(ctx, nil, anyExit, "scontrol", "ping")
	if err != nil {
		return p, err
	}
	p.ControllerText = strings.TrimSpace(string(out.Stdout))
	p.Config, err = run.Ask(ctx, c.showConfig)
	return p, err
}

// versionLine matches the line with the version among all lines that a program prints.
var versionLine = regexp.MustCompile(`(?m)^slurm(?:-wlm)? ([0-9]{1,4})\.([0-9]{1,4})\b`)

// release parses the two numbers of "slurm 22.05.8" or "slurm-wlm 24.11.5".
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
