package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/secrets"
	"slurmgate/visible"
)

// Command is one start of one of Slurm's query programs. (sbatch is not started this way: it must never be killed.)
type Command struct {
	Path  string
	Args  []string
	Env   []string
	Stdin io.Reader // nil: /dev/null
	Limit int64     // bytes of standard output; standard error is cut to 64 KiB
	Sink  io.Writer // receives standard output while it arrives; nil: it is stored in Output

	While string // proof of the cluster; over SSH nothing is started if it has changed. Empty: any cluster
}

// Output is what a program printed and how it ended.
type Output struct {
	Stdout []byte
	Stderr string
	Exit   int
}

// Runner starts a program and waits for it. A program that ran to its end is no error, for any exit status. One that
// could not be started, was killed, was stopped by ctx or printed more than its limit is an error.
type Runner interface {
	Run(ctx context.Context, c Command) (Output, error)
}

var errLimit = errors.New("it printed more than")

// processes is the [Runner] that starts programs on this host.
type processes struct{}

// Run implements Runner.
func (processes) Run(ctx context.Context, c Command) (Output, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = c.Env
	cmd.Stdin = c.Stdin
	cmd.WaitDelay = 5 * time.Second // for pipes a killed program's children hold
	stdout, stderr := &capped{limit: c.Limit, strict: true, sink: c.Sink}, &capped{limit: 64 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	out := Output{Stdout: stdout.buf.Bytes(), Stderr: stderr.buf.String()}
	ended, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case stdout.over:
		return out, fmt.Errorf("%w %d bytes", errLimit, c.Limit)
	case ended != nil && ended.Exited():
		out.Exit = ended.ExitCode()
		return out, nil
	}
	return out, err
}

// capped stores at most limit bytes, or passes them to sink. Past the limit a strict one fails the program's write, any
// other drops the bytes. (The buffer is not embedded: io.Copy would find its ReadFrom and bypass Write.)
type capped struct {
	buf    bytes.Buffer
	sink   io.Writer
	passed int64
	limit  int64
	strict bool
	over   bool
}

func (b *capped) Write(p []byte) (int, error) {
	room := b.limit - b.passed
	if int64(len(p)) > room {
		b.over = true
		b.take(p[:room])
		if b.strict {
			return 0, errors.New("output limit")
		}
		return len(p), nil
	}
	return b.take(p)
}

func (b *capped) take(p []byte) (int, error) {
	b.passed += int64(len(p))
	if b.sink != nil {
		return b.sink.Write(p)
	}
	return b.buf.Write(p)
}

// Bounds of one query.
const (
	queryTime     = time.Minute
	maxQueryBytes = 64 << 20
)

// environ returns the whole environment of Slurm's programs: no SBATCH_ or SLURM_ variable of the gateway's caller
// changes a query.
func (c *CLI) environ(more ...string) []string {
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + c.home, "LANG=C", "LC_ALL=C"}
	if c.cfg.Over != nil {
		env = slices.Delete(env, 1, 2) // the far script knows it
	}
	if c.cfg.Conf != "" {
		env = append(env, "SLURM_CONF="+c.cfg.Conf)
	}
	return append(env, more...)
}

// asking holds the additional environment of a query: times in seconds, and lists of an array's tasks in full.
var asking = []string{"TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0"}

// ask runs one query within queryTime, and spends rpcs of the budget. An error is a Transport fault with what the
// program printed; so is a non-zero exit status unless okay accepts the output.
func (c *CLI) ask(ctx context.Context, rpcs int, okay func(Output) bool, program string, args ...string) (Output, error) {
	return c.askInto(ctx, nil, rpcs, okay, program, args...)
}

// askInto is ask with the output written to sink while it arrives. After an error the content of the sink is invalid. A
// query that costs RPCs goes only to the site file's cluster.
func (c *CLI) askInto(ctx context.Context, sink io.Writer, rpcs int, okay func(Output) bool, program string,
	args ...string) (Output, error) {
	return c.askUpTo(ctx, sink, maxQueryBytes, rpcs, okay, program, args...)
}

// askUpTo is askInto with a limit, in bytes, of what the program may print.
func (c *CLI) askUpTo(ctx context.Context, sink io.Writer, limit int64, rpcs int, okay func(Output) bool, program string,
	args ...string) (Output, error) {
	if rpcs == 0 {
		return c.runWhile(ctx, "", sink, limit, okay, program, args...)
	}
	for again := false; ; again = true {
		proof, err := c.prove(ctx)
		if err == nil && !again {
			err = c.budget.Spend(ctx, rpcs)
		}
		if err != nil {
			return Output{}, err
		}
		out, err := c.runWhile(ctx, proof, sink, limit, okay, program, args...)
		moved := errors.Is(err, errMoved)
		if moved {
			c.moved(proof)
		}
		// sacct and sacctmgr ask slurmdbd, so their failure proves nothing about slurmctld.
		if err != nil && (moved || program != "sacct" && program != "sacctmgr") {
			c.distrust()
		}
		if !moved || again {
			return out, err
		}
	}
}

// run runs one query without a check of the cluster.
func (c *CLI) run(ctx context.Context, sink io.Writer, okay func(Output) bool, program string, args ...string) (Output, error) {
	return c.runWhile(ctx, "", sink, maxQueryBytes, okay, program, args...)
}

func (c *CLI) runWhile(ctx context.Context, proof string, sink io.Writer, limit int64, okay func(Output) bool, program string,
	args ...string) (Output, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	out, err := c.runner.Run(ctx, Command{
		Path: filepath.Join(c.cfg.BinDir, program), Args: args, Limit: limit, Sink: sink, While: proof,
		// Times are seconds since 1970, independent of the configuration of the site and the node.
		Env: c.environ(asking...),
	})
	if err != nil {
		return out, unanswered(program, out, err)
	}
	if okay(out) {
		return out, nil
	}
	return out, fault.New(fault.Transport, "slurm_unreachable",
		fmt.Sprintf("%s exited with status %d: %s", program, out.Exit, oneLine(out.Stderr)))
}

// feed runs a program that reads commands from standard input, and accepts any exit status.
func (c *CLI) feed(ctx context.Context, in io.Reader, program string, args ...string) (Output, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	out, err := c.runner.Run(ctx, Command{Path: filepath.Join(c.cfg.BinDir, program), Args: args, Limit: maxQueryBytes, Stdin: in,
		Env: c.environ(asking...)})
	if err != nil {
		err = unanswered(program, out, err)
	}
	return out, err
}

// unanswered returns the fault of a program that did not run to its end. A fault of the connection keeps its code.
func unanswered(program string, out Output, err error) error {
	if _, known := errors.AsType[*fault.Error](err); known {
		return fault.Wrap(fault.Transport, "", program+" did not answer", err)
	}
	return fault.Wrap(fault.Transport, "slurm_unreachable", program+" did not answer: "+oneLine(out.Stderr), err)
}

func oneLine(s string) string {
	return cmp.Or(Excerpt(strings.Join(strings.Fields(s), " "), 500), "nothing on standard error")
}

// Excerpt returns at most the first limit bytes of another program's output, as valid text without secrets. A cut is
// marked with an ellipsis.
func Excerpt(s string, limit int) string {
	s, more := secrets.Default().Head(s, visible.Head(s, limit))
	if more {
		s += " …"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
