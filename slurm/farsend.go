package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/run"
)

// sendFar is Send on a login node. This machine can hold no lock there; as in Send, the exclusive creation of its two
// files, here by far.sh, keeps a send from being made twice. sbatch runs under a process in a separate session, which
// survives the connection and writes send.<k>.end last. A node that ends processes with their session
// (KillUserProcesses) ends this one too when the connection is lost: then that file is missing, which is doubt, and the
// claim decides. KillExcludeUsers prevents that, lingering does not.
func (c *CLI) sendFar(ctx context.Context, job run.JobSpec, k int, argv []string) run.SendResult {
	argv[len(argv)-1] = c.atLogin(argv[len(argv)-1]) // sbatch reads the script on the login node
	for again := false; ; again = true {
		proof, err := c.prove(ctx)
		if err != nil {
			return unchecked(err)
		}
		args := append([]string{farSend, strings.Join(decidingFiles(c.cfg), "\n"), proof, c.sendPath(job, k)}, c.environ()...)
		args = append(append(args, filepath.Join(c.cfg.BinDir, "sbatch")), argv...)
		out, err := c.cfg.Over.Run(ctx, remote.Call{Script: farScript, Args: args, Limit: 2 * maxSendText, Once: true})
		switch {
		case remote.NotStarted(err) && ctx.Err() != nil:
			return notRun(fault.CodeOf(err), run.ScopeRun, err)
		case remote.NotStarted(err):
			return run.SendResult{Outcome: run.SendNotRun, Code: fault.CodeOf(err), Scope: run.ScopeSite, Text: "sbatch was not started: " +
				fault.Prose(err)}
		case err != nil && ctx.Err() != nil:
			return run.SendResult{Outcome: run.SendDoubt, Code: run.SendHeld, Text: "the gateway stopped waiting; sbatch continues"}
		case err != nil:
			return run.SendResult{Outcome: run.SendDoubt, Code: fault.CodeOf(err), Text: fault.Prose(err)}
		case out.Exit == exitMoved:
			c.moved(proof)
			if again {
				return notRun("cluster_changed", run.ScopeSite, errMoved)
			}
			continue
		}
		res, _ := c.left(ctx, job, printed(out))
		if res.Outcome != run.SendAccepted && res.Outcome != run.SendRejected {
			c.distrust()
		}
		return res
	}
}

// receiptFar is Receipt on a login node. While the node cannot be asked, sbatch counts as running, because it may be.
func (c *CLI) receiptFar(ctx context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	out, err := c.cfg.Over.Run(ctx, remote.Call{Script: farScript, Args: []string{farReceipt, "", c.sendPath(job, k)}, Limit: 2 * maxSendText})
	if err != nil {
		return run.SendResult{Outcome: run.SendDoubt, Code: fault.CodeOf(err), Text: fault.Prose(err)}, true
	}
	return c.left(ctx, job, printed(out))
}

// left parses a report of far.sh.
func (c *CLI) left(ctx context.Context, job run.JobSpec, out Output) (res run.SendResult, held bool) {
	doubt := func(code, text string) run.SendResult {
		return run.SendResult{Outcome: run.SendDoubt, Code: code, Text: text}
	}
	line, stdout, _ := bytes.Cut(out.Stdout, []byte("\n"))
	word, rest, _ := strings.Cut(string(line), " ")
	number, err := strconv.Atoi(rest)
	if pid, host, ok := strings.Cut(rest, " "); word == "running" && ok {
		rest = " (process group " + fault.Clip(pid) + " on " + fault.Clip(host) + ")"
	}
	switch {
	case word == "end" && err == nil:
		if len(stdout) > maxSendText || len(out.Stderr) > maxSendText {
			return doubt("no_receipt", fmt.Sprintf("sbatch printed more than %d bytes", maxSendText)), false
		}
		exit := &number
		if number > 128 { // by a signal
			exit = nil
		}
		return c.judge(job, string(stdout), out.Stderr, exit), false
	case word == "running":
		return doubt(run.SendHeld, "sbatch has not ended"+rest), true
	case word == "elsewhere" && err == nil && number > -60 && time.Duration(number)*time.Second < c.sendTime(ctx):
		return doubt(run.SendHeld, "sbatch was started on another login node and may not have ended"), true
	case word == "elsewhere":
		return doubt("no_receipt", "sbatch was started on another login node and left no receipt"), false
	case word == "gone" || word == "end":
		return doubt("no_receipt", "the process of sbatch has ended without leaving a receipt"), false
	case word == "none":
		return doubt("no_receipt", "sbatch left nothing"), false
	case word == "unwritable":
		return notRun("control_unwritable", run.ScopeRun, errors.New(Excerpt(string(stdout), 500))), false
	}
	return doubt("no_receipt", "the login node's answer cannot be read: "+fault.Clip(string(out.Stdout)+out.Stderr)), true
}

// sbatchPatience is how long sbatch itself retries when slurmctld has no room, in addition to its time limits for
// single messages.
const sbatchPatience = 2 * time.Minute

// sendTime returns how long an sbatch may run, for one that cannot be observed.
func (c *CLI) sendTime(ctx context.Context) time.Duration {
	d, err := c.MessageTimeout(ctx)
	if err != nil {
		d = time.Minute
	}
	return sbatchPatience + 3*d
}

// sendPath returns the prefix of a send's files on the login node.
func (c *CLI) sendPath(job run.JobSpec, k int) string {
	return c.atLogin(strings.TrimSuffix(job.ControlPath(run.SendFile(k, "out")), ".out"))
}

// atLogin converts a path as jobs see it to the path on the login node.
func (c *CLI) atLogin(path string) string {
	if below, ok := strings.CutPrefix(path, c.cfg.RunsDir+"/"); ok && c.cfg.LoginRunsDir != "" {
		return c.cfg.LoginRunsDir + "/" + below
	}
	return path
}
