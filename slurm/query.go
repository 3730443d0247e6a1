package slurm

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// queueFields holds squeue's names of queueColumns, and of the user, who ends a record. Every squeue since 20.11 knows
// them.
var (
	queueFields = []string{"JobArrayID", "State", "Reason", "RestartCnt", "NodeList", "exit_code", "SubmitTime", "StartTime", "EndTime",
		"Cluster", "Partition", "Account", "TimeLimit", "WorkDir", "Name", "UserName"}
	queueColumns = []column{colID, colState, colReason, colRestarts, colNode, colExit, colSubmit, colStart, colEnd, colCluster,
		colPartition, colAccount, colLimit, colDir, colName}
)

// Jobs asks squeue once for our jobs, including ended ones that Slurm still remembers; run.Queue has the contract. It
// costs slurmctld two RPCs (jobs of this user, partitions) for any number of jobs: --local saves the one about
// federations, and without --all jobs in hidden partitions would be missing.
//
// The jobs of all users are asked for with one such query too, without squeue's filters: with several users or with
// names slurmctld still sends all jobs, and one user whose account is gone makes squeue refuse them all.
//
// Arrays stay folded: squeue --array of 24.11 left out the last task of a list with steps ([27-47:2]), and the arrays
// of other users could have a million lines. Such a record is split here. In an answer about all users a long list does
// not fit its field: then a second query asks for these arrays.
func (c *CLI) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	if err := c.budget.Look(ctx); err != nil {
		return nil, fault.Wrap(fault.Transport, "rpc_budget", "the look at the queue was stopped while it waited for its share", err)
	}
	args := []string{"--local", "--all", "--noheader", "--states=all"}
	var into listing
	var s *sheet
	limit := int64(maxQueryBytes)
	if c.cfg.AllUsers {
		l := c.queueLayout()
		s = newSheet(l, int(c.queued.Load()))
		s.sought = sought
		into, limit, args = s, maxForeignBytes, append(args, "--Format="+l.formatQueue())
	} else {
		a := newAnswer(c.cfg.User, queueColumns, int(c.queued.Load()))
		a.sought = sought
		into, args = a, append(args, "--user="+c.cfg.User, "--Format="+strings.Join(queueFields, ":"+sep+",")+":"+sep)
	}
	out, err := c.askUpTo(ctx, into, limit, rpcQueue, answered, "squeue", args...)
	if err != nil {
		return nil, err
	}
	jobs, err := c.parsed("squeue", into)
	if err == nil && s != nil {
		jobs = append(jobs, c.listed(ctx, s.cut)...)
	}
	c.queued.Store(int64(len(jobs) + len(jobs)/16))
	if err == nil {
		jobs = append(jobs, c.unexplained("squeue", out)...)
	}
	return jobs, err
}

// listed splits records of array tasks whose lists were cut, after a second query about these arrays. The query asks
// for no text that a user can write, so the lists need no width. An array that it does not show, because Slurm does not
// answer or the array has changed, gets the record of [someTasks].
func (c *CLI) listed(ctx context.Context, cut []run.Job) (jobs []run.Job) {
	if len(cut) == 0 {
		return nil
	}
	ids := make([]string, len(cut))
	for i, j := range cut {
		ids[i] = j.ID
	}
	tasks := map[string][]int{}
	out, err := c.ask(ctx, rpcQueue, answered, "squeue", "--local", "--all", "--noheader", "--states=all", "--jobs="+strings.Join(ids, ","),
		"--Format=JobArrayID:"+sep)
	if err == nil {
		for line := range strings.Lines(string(out.Stdout)) {
			if id, list, cut := unfold([]byte(strings.TrimSuffix(strings.TrimSpace(line), sep))); !cut && list[0] != alone {
				tasks[string(id)] = list
			}
		}
	}
	for _, j := range cut {
		if list := tasks[j.ID]; list != nil {
			jobs = append(jobs, split(j, list)...)
		} else {
			jobs = append(jobs, someTasks(j))
		}
	}
	return jobs
}

// accountingFields holds the columns of sacct; an optional one that this sacct does not know is left out.
var accountingFields = []struct {
	name string
	col  column
	need bool
}{
	{"JobID", colID, true}, {"State", colAccounted, true}, {"Reason", colReason, false}, {"Restarts", colRestarts, false},
	{"NodeList", colNode, true},
	{"ExitCode", colExit, true}, {"Submit", colSubmit, true}, {"Start", colStart, true}, {"End", colEnd, true}, {"Cluster", colCluster, true},
	{"SLUID", colSLUID, false}, {"WorkDir", colDir, false}, {"JobName", colName, true},
}

// listing reads an answer while it arrives, and returns its jobs when it is complete.
type listing interface {
	io.Writer
	whole() ([]run.Job, error)
	report() (records int, why, example string)
}

// Records asks sacct once; run.Accounting has the contract. The answer has every record of a reused or requeued id
// (--duplicates). It lacks jobs that were never eligible to start, such as held ones.
func (c *CLI) Records(ctx context.Context, since time.Time, of ...run.JobKey) ([]run.Job, error) {
	names, cols, err := c.accountingColumns(ctx)
	if err != nil {
		return nil, err
	}
	if c.cfg.AllUsers {
		return c.recordsOf(ctx, since, names, cols, of)
	}
	a := newAnswer(c.cfg.User, cols, 0)
	out, err := c.askInto(ctx, a, rpcAccounting, answered, "sacct",
		"--duplicates", "--allocations", "--parsable", "--delimiter="+sep, "--noheader", "--user="+c.cfg.User,
		"--starttime="+sacctTime(since), "--format="+strings.Join(names, ",")+",User")
	if err != nil {
		return nil, notKept(out, err)
	}
	jobs, err := c.parsed("sacct", a)
	if err != nil {
		return nil, err
	}
	return append(jobs, c.unexplained("sacct", out)...), nil
}

// notKept returns the fault AccountingDisabled if the cluster has no accounting, and err otherwise.
func notKept(out Output, err error) error {
	if strings.Contains(out.Stderr, "accounting storage is disabled") {
		return fault.New(fault.NotFound, run.AccountingDisabled, "this cluster has no accounting")
	}
	return err
}

// accountingColumns returns the columns that this sacct knows. It asks sacct once, and no daemon.
func (c *CLI) accountingColumns(ctx context.Context) (names []string, cols []column, err error) {
	known, err := c.fields.get(func() ([]string, error) {
		out, err := c.ask(ctx, 0, answered, "sacct", "--helpformat")
		return strings.Fields(string(out.Stdout)), err
	})
	for _, f := range accountingFields {
		if f.need || slices.Contains(known, f.name) {
			names, cols = append(names, f.name), append(cols, f.col)
		}
	}
	return names, cols, err
}

// parsed returns the jobs of an answer, and reports its unreadable records. Jobs of another cluster are a fault.
func (c *CLI) parsed(program string, a listing) ([]run.Job, error) {
	jobs, err := a.whole()
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "half_answer", "the answer of "+program+" is incomplete", err)
	}
	records, why, example := a.report()
	c.reportUnread(program, records, why, example)
	for _, j := range jobs {
		if c.cfg.Cluster != "" && j.Cluster != "" && !SameCluster(j.Cluster, c.cfg.Cluster) {
			c.distrust()
			return nil, c.compare(j.Cluster)
		}
	}
	return jobs, nil
}

func (c *CLI) reportUnread(program string, records int, why, example string) {
	if records > 0 && c.cfg.Unread != nil {
		c.cfg.Unread(program, records, why, example)
	}
}
