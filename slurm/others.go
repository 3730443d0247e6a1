package slurm

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// A query of accounting for all users names its jobs, so that slurmdbd does not read the history of all users: names
// and users of jobs that squeue no longer shows, ids of jobs whose usage is measured. (slurmdbd has an index of users
// and times, and none of names.)
const (
	keysAtOnce      = 500       // in one command line
	maxForeignBytes = 512 << 20 // of an answer that may have jobs of others, which are dropped while it is read
)

// noJob is a name that no job has. A query about no job asks for it, to check that slurmdbd answers.
const noJob = "sg-none"

// recordsOf is Records for all users.
func (c *CLI) recordsOf(ctx context.Context, since time.Time, names []string, cols []column, of []run.JobKey) (all []run.Job, err error) {
	l := c.accountingLayout(names, cols)
	if of = c.owned(of); len(of) == 0 {
		of = []run.JobKey{{Name: noJob}}
	}
	for part := range slices.Chunk(of, keysAtOnce) {
		jobs, err := c.recordsPart(ctx, since, l, part)
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	return all, c.seesRecords(ctx)
}

// owned returns a copy of the keys in which each has its user's name.
func (c *CLI) owned(of []run.JobKey) []run.JobKey {
	of = slices.Clone(of)
	for i := range of {
		of[i].User = cmp.Or(of[i].User, c.cfg.User)
	}
	return of
}

// recordsPart asks for the jobs of one command line. If the answer is too large, a user has created very many jobs
// under one of the names: then it asks for halves, until only the runs of that name wait.
func (c *CLI) recordsPart(ctx context.Context, since time.Time, l layout, of []run.JobKey) ([]run.Job, error) {
	names, users := namesAndUsers(of)
	args := []string{"--duplicates", "--allocations", "--noheader", "--starttime=" + sacctTime(since),
		"--name=" + strings.Join(names, ","), "--format=" + l.formatAccounting()}
	ask := func(whose string) ([]run.Job, Output, error) {
		s := newSheet(l, 0)
		s.wanted = map[run.JobKey]int{}
		for _, k := range of {
			s.wanted[run.JobKey{Name: k.Name, User: k.User}] = 0
		}
		out, err := c.askUpTo(ctx, s, maxForeignBytes, rpcAccounting, answered, "sacct", append([]string{whose}, args...)...)
		if err != nil {
			return nil, out, err
		}
		jobs, err := c.parsed("sacct", s)
		if err == nil {
			jobs = append(jobs, c.unexplained("sacct", out)...)
		}
		return jobs, out, err
	}
	whose := "--user=" + strings.Join(users, ",")
	if len(users) == 0 {
		whose = "--allusers"
	}
	jobs, out, err := ask(whose)
	if err != nil && len(users) > 0 && strings.Contains(out.Stderr, "Invalid user") { // one of the users no longer has an account
		jobs, out, err = ask("--allusers")
	}
	switch {
	case !tooMuch(err):
		if err != nil {
			err = notKept(out, err)
		}
		return jobs, err
	case len(of) == 1:
		return []run.Job{{Name: of[0].Name, User: of[0].User, Class: run.ClassUnread, Why: "accounting has too many jobs of this name"}}, nil
	}
	first, err := c.recordsPart(ctx, since, l, of[:len(of)/2])
	if err != nil {
		return nil, err
	}
	second, err := c.recordsPart(ctx, since, l, of[len(of)/2:])
	return append(first, second...), err
}

// namesAndUsers returns the sorted names and users, each once. It drops names that no gateway's job can have, because
// sacct may read them as syntax.
func namesAndUsers(of []run.JobKey) (names, users []string) {
	for _, k := range of {
		if jobName.MatchString(k.Name) {
			names = append(names, k.Name)
		}
		if k.User != "" && !strings.ContainsAny(k.User, ",") {
			users = append(users, k.User)
		}
	}
	if len(names) == 0 {
		names = []string{noJob}
	}
	slices.Sort(names)
	slices.Sort(users)
	return slices.Compact(names), slices.Compact(users)
}

func sacctTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

// usageOf is Usage for all users: only for jobs whose id and user match one of the keys.
func (c *CLI) usageOf(ctx context.Context, since time.Time, of []run.JobKey) (all []run.Usage, err error) {
	of = slices.DeleteFunc(c.owned(of), func(k run.JobKey) bool { return !jobID.MatchString(k.ID) })
	for part := range slices.Chunk(of, keysAtOnce) {
		list, err := c.usagePart(ctx, since, part)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// usagePart asks for the jobs of one command line. A job may have so many steps that the answer is too long: then it
// asks for halves, until only that job is left out.
func (c *CLI) usagePart(ctx context.Context, since time.Time, of []run.JobKey) (all []run.Usage, err error) {
	var ids []string
	wanted := map[run.JobKey]bool{}
	for _, k := range of {
		ids, wanted[run.JobKey{ID: k.ID, User: k.User}] = append(ids, k.ID), true
	}
	out, err := c.ask(ctx, rpcAccounting, answered, "sacct", "--allusers", "--duplicates", "--parsable2", "--noheader",
		"--jobs="+strings.Join(ids, ","), "--starttime="+sacctTime(since), "--format="+usageFields+",User")
	switch {
	case tooMuch(err) && len(of) == 1:
		return nil, nil
	case tooMuch(err):
		first, err := c.usagePart(ctx, since, of[:len(of)/2])
		if err != nil {
			return nil, err
		}
		second, err := c.usagePart(ctx, since, of[len(of)/2:])
		return append(first, second...), err
	case err != nil:
		return nil, notKept(out, err)
	}
	list, err := c.usages(string(out.Stdout), true)
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		if wanted[run.JobKey{ID: u.JobID, User: u.User}] {
			all = append(all, u)
		}
	}
	c.heardWith(out, all, of)
	return all, nil
}

// tooMuch reports whether a program was stopped because it printed more than it may.
func tooMuch(err error) bool {
	return errors.Is(err, errLimit) || fault.CodeOf(err) == "ssh_answer"
}
