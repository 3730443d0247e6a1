package slurm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/remote"
)

//go:embed far.sh
var farScript string

// The verbs of far.sh.
const (
	farState   = "state"
	farAsk     = "ask"
	farSend    = "send"
	farReceipt = "receipt"
)

// errMoved reports that the files that decide which cluster Slurm's commands talk to have changed on the login node, or
// that it is another login node. Nothing was started.
var errMoved = errors.New("the login node's Slurm has changed")

const exitMoved = 198 // of far.sh

// newFar is NewCLI over SSH.
func newFar(c Config) (*CLI, error) {
	for _, path := range []string{c.BinDir, c.Conf} {
		if strings.ContainsAny(path, "=\n") { // env would take the path of a program for a variable
			return nil, fault.New(fault.Validation, "far_path",
				fmt.Sprintf("the path %s on the login node must not contain = or a line break", fault.Clip(path)))
		}
	}
	return &CLI{Renderer: NewRenderer(c.Script), cfg: c, runner: far{c.Over, strings.Join(decidingFiles(c), "\n")},
		budget: NewBudget(c.RPCPerMinute, c.Shared)}, nil
}

// far is the Runner on a login node.
type far struct {
	host  *remote.Host
	files string // those that decide the cluster, one on each line
}

// Run implements Runner. When ctx ends first the program continues for a few seconds: only timeout(1) can kill it
// there.
func (f far) Run(ctx context.Context, c Command) (Output, error) {
	limit := queryTime
	if end, ok := ctx.Deadline(); ok {
		limit = max(time.Second, time.Until(end))
	}
	args := append([]string{farAsk, f.files, c.While, fmt.Sprint(int(limit.Seconds()) + 5)}, c.Env...)
	out, err := f.host.Run(ctx, remote.Call{Script: farScript, Args: append(append(args, c.Path), c.Args...), Stdin: c.Stdin, Limit: c.Limit,
		Sink: c.Sink})
	switch {
	case err != nil:
		return Output{}, err
	case out.Exit == exitMoved && c.While != "":
		return Output{}, errMoved
	case out.Exit == 124 || out.Exit > 128: // timeout(1) ended it, or a signal
		return Output{}, fmt.Errorf("it was stopped (status %d): %s", out.Exit, oneLine(out.Stderr))
	}
	return printed(out), nil
}

// decidingFar returns the state of the deciding files on the login node.
func (c *CLI) decidingFar(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	out, err := c.cfg.Over.Run(ctx, remote.Call{Script: farScript, Args: []string{farState, strings.Join(decidingFiles(c.cfg), "\n")},
		Limit: 64 << 10})
	if err != nil {
		return "", unanswered("the login node", Output{}, err)
	}
	return strings.TrimRight(string(out.Stdout), "\n"), nil
}

func printed(out remote.Output) Output {
	return Output{Stdout: out.Stdout, Stderr: out.Stderr, Exit: out.Exit}
}
