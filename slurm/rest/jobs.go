package rest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// Costs of the calls in RPCs, at most what sdiag counted.
const (
	rpcQueue      = 1
	rpcAccounting = 1 // to slurmdbd
)

// maxList bounds an answer with all jobs of a cluster, in bytes. A job has some 10 KB; one on a thousand nodes, with each of its cores,
// some MB.
const maxList = 16 << 30

// listTime bounds an answer with all jobs of a cluster.
const listTime = 3 * time.Minute

// halfAnswer is the code of an answer that does not show all jobs.
const halfAnswer = "half_answer"

// nothingFound is ESLURM_REST_EMPTY_RESULT: slurmdbd has no such record.
const nothingFound = 9003

// Jobs asks slurmctld once for our jobs, including ended ones that Slurm still remembers; run.Queue has the contract.
// There is no filter: slurmctld sends the jobs of all users, and those of others are dropped while the answer is read.
// It costs one RPC for any number of jobs.
func (s *Slurm) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	if err := s.budget.Look(ctx); err != nil {
		return nil, fault.Wrap(fault.Transport, "rpc_budget", "the look at the queue was stopped while it waited for its share", err)
	}
	list := newJobs(queued, s.cfg.User, sought, int(s.queued.Load()))
	// Never with update_time: "nothing has changed" comes as an empty list.
	a, err := s.list(ctx, rpcQueue, "/slurm/{v}/jobs/", nil, list)
	if err != nil {
		return nil, err
	}
	if list.records == 0 && len(a.warnings) > 0 && !list.idle(a.warnings) {
		return nil, fault.New(fault.Transport, halfAnswer, "slurmrestd shows no job and warns: "+shown(a.warnings[0].String()))
	}
	found, err := s.whole(list)
	s.queued.Store(int64(len(found) + len(found)/16))
	return found, err
}

// idle reports whether slurmctld has no job at all. slurmrestd warns then too, but it shows when slurmctld's list last
// changed, which it does not if it got no list.
func (j *jobs) idle(warnings []problem) bool {
	return len(warnings) == 1 && warnings[0].Description == "Zero jobs to dump" && j.updated.set && j.updated.n > 0
}

// Records asks slurmdbd once; run.Accounting has the contract. The answer has every record of a reused or requeued id.
func (s *Slurm) Records(ctx context.Context, since time.Time, _ ...run.JobKey) ([]run.Job, error) {
	list := newJobs(accounted, s.cfg.User, nil, 0)
	if err := s.accounted(ctx, since, list); err != nil {
		return nil, err
	}
	return s.whole(list)
}

// accounted asks slurmdbd for this user's jobs since a time, with their steps if list measures usage.
func (s *Slurm) accounted(ctx context.Context, since time.Time, list *jobs) error {
	// The time in seconds: any other form is in the time zone of slurmrestd.
	q := url.Values{"start_time": {fmt.Sprintf("uts%d", since.Unix())}, "users": {s.cfg.User}}
	if !list.of.usage {
		q.Set("skip_steps", "true")
	}
	a, err := s.list(ctx, rpcAccounting, "/slurmdb/{v}/jobs/", q, list)
	switch p := problemsOf(err); {
	case err == nil && list.records == 0 && len(a.warnings) > 0 && !foundNothing(a.warnings):
		return fault.New(fault.Transport, halfAnswer, "slurmrestd shows no job of accounting and warns: "+shown(a.warnings[0].String()))
	case len(p) == 1 && p[0].Number == nothingFound && list.records == 0:
		return nil
	}
	return noAccounting(err)
}

// list asks for jobs and reads them into list. After an error the content of list is invalid.
func (s *Slurm) list(ctx context.Context, rpcs int, path string, q url.Values, list *jobs) (answer, error) {
	if err := s.budget.Spend(ctx, rpcs); err != nil {
		return answer{}, err
	}
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	a, err := s.client.call(ctx, request{method: "GET", path: path, query: q, limit: maxList, members: members{
		"jobs":        list.read,
		"last_update": list.readUpdate,
	}})
	if err == nil && !list.came {
		err = fault.New(fault.Transport, halfAnswer, "slurmrestd's answer has no list of jobs")
	}
	return a, err
}

// whole returns the jobs of a whole answer, and reports its unreadable records. Jobs of another cluster are a fault.
func (s *Slurm) whole(list *jobs) ([]run.Job, error) {
	if list.unread > 0 && s.cfg.Unread != nil {
		s.cfg.Unread(list.of.name, list.unread, list.firstWhy, list.example)
	}
	if list.lost && list.readable == 0 {
		return nil, fault.Wrap(fault.Transport, halfAnswer, "nothing in the answer of "+list.of.name+" can be read", errors.New(list.firstWhy))
	}
	for _, j := range list.found {
		if s.cfg.Cluster != "" && j.Cluster != "" && !slurm.SameCluster(j.Cluster, s.cfg.Cluster) {
			return nil, s.client.compare(j.Cluster)
		}
	}
	if list.lost {
		return append(list.found, run.Job{Class: run.ClassUnread, Why: list.firstWhy}), nil
	}
	return list.found, nil
}
