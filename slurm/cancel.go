package slurm

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/shell"
)

var (
	jobID   = regexp.MustCompile(`^[0-9]{1,10}(_[0-9]{1,10})?$`)
	jobName = regexp.MustCompile(`^sg-[A-Za-z0-9_-]{1,200}$`)
)

// maxJobName bounds a job's name as slurmctld does, in bytes.
const maxJobName = 1024

// Cancel asks Slurm to cancel the job that has this id, this name and the user jobs are sent as; run.Canceller has the
// contract. A job with that id with another name, or of another user, is never cancelled, even if the user may cancel
// all jobs: from Slurm 24.05 on slurmctld compares them itself (--ctld: one RPC, however many tasks), before 24.05
// scancel reads each job first (three RPCs).
func (c *CLI) Cancel(ctx context.Context, id, name, shown string) error {
	ids, err := Cancelled(id, name, shown)
	if err != nil {
		return err
	}
	ctld, err := c.cancelsByName(ctx)
	if err != nil {
		return err
	}
	if args := []string{"--name=" + cmp.Or(shown, name), "--user=" + c.cfg.User}; ctld {
		_, err = c.ask(ctx, rpcCancelCtld, cancelled, "scancel", slices.Concat([]string{"--ctld"}, args, ids)...)
	} else {
		for _, id := range ids {
			_, failed := c.ask(ctx, rpcCancel, cancelled, "scancel", append(slices.Clip(args), id)...)
			err = cmp.Or(err, failed)
		}
	}
	if err != nil {
		c.scancel.forget() // it may be another version by now
	}
	return err
}

// Cancelled returns the ids of the jobs to cancel, after it has checked id, name and shown name, which are those of
// [run.Canceller].
func Cancelled(id, name, shown string) ([]string, error) {
	ids := run.JobIDs(id)
	if slices.ContainsFunc(ids, func(id string) bool { return !jobID.MatchString(id) }) || !jobName.MatchString(name) ||
		len(shown) > maxJobName || strings.Contains(shown, "\x00") {
		return nil, fault.New(fault.Internal, "job_id", "not a job of this gateway: "+
			shell.Quote(id)+" "+shell.Quote(name)+" "+shell.Quote(shown))
	}
	return ids, nil
}

// cancelsByName reports whether scancel can leave the comparison of names to slurmctld. It finds out once; no daemon is asked.
func (c *CLI) cancelsByName(ctx context.Context) (bool, error) {
	if c.service != nil {
		return c.service.cancelsByName(ctx)
	}
	r, err := c.scancel.get(func() (r [2]int, err error) {
		out, err := c.ask(ctx, 0, answered, "scancel", "--version")
		if err != nil {
			return r, err
		}
		if r, err = release(strings.TrimSpace(string(out.Stdout))); err != nil {
			err = fault.Wrap(fault.Transport, "version", "the version of scancel cannot be read", err)
		}
		return r, err
	})
	return r[0] > 24 || r[0] == 24 && r[1] >= 5, err
}

// nothingToCancel holds the messages of scancel, on its standard error, about a job that has ended or that does not
// match.
var nothingToCancel = []string{"Invalid job id specified", "Job/step already completing or completed", " != filter name ",
	" != filter user id "}

// aboutJob matches a message of scancel about a job, in every release.
var aboutJob = regexp.MustCompile(`(?i)\b(job|step)`)

// cancelled reports whether no job is left to cancel: every error is about a job that has ended or that does not match.
// Where scancel exits with 0, lines that concern no job are ignored.
func cancelled(out Output) bool {
	over := false
	for line := range strings.Lines(out.Stderr) {
		one := slices.ContainsFunc(nothingToCancel, func(text string) bool { return strings.Contains(line, text) })
		over = over || one
		switch {
		case one:
		case failedCall(strings.TrimSpace(line)), strings.Contains(line, "error") && (out.Exit != 0 || aboutJob.MatchString(line)):
			return false
		}
	}
	return over || out.Exit == 0
}
