package rest

import (
	"context"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// accountingMember reads a member of a record from slurmdbd.
func (j *jobs) accountingMember(name string) (err error) {
	f := &j.now
	switch name {
	case "job_id":
		f.id, err = j.number()
	case "array":
		err = j.arrayMember()
	case "name":
		err = j.nameMember()
	case "user":
		f.user, err = j.word()
	case "working_directory":
		err = j.workDirMember()
	case "cluster":
		f.job.Cluster, err = j.word()
	case "nodes":
		f.job.Node, err = j.word()
	case "state":
		err = j.nested(func(name string) (err error) {
			switch name {
			case "current":
				return j.stateMember()
			case "reason":
				f.why, err = j.word()
				return err
			}
			return j.SkipValue()
		})
	case "kill_request_user":
		f.ender, err = j.word()
	case "restart_cnt":
		err = j.restarts()
	case "exit_code":
		f.exit, err = j.exitMember()
	case "time":
		err = j.timeMember()
	case "sluid":
		f.job.SLUID, err = j.word()
	default:
		err = j.SkipValue()
	}
	return err
}

func (j *jobs) arrayMember() error {
	f := &j.now
	return j.nested(func(name string) (err error) {
		switch name {
		case "job_id":
			f.array, err = j.number()
		case "task_id":
			f.task, err = j.number()
		case "task":
			f.tasks, err = j.word()
		default:
			err = j.SkipValue()
		}
		return err
	})
}

// timeMember reads when a job was submitted, began and ended, and what it used.
func (j *jobs) timeMember() error {
	f := &j.now
	return j.nested(func(name string) (err error) {
		switch name {
		case "submission":
			f.job.Submitted, err = j.time()
		case "start":
			f.job.Started, err = j.time()
		case "end":
			f.job.Ended, err = j.time()
		case "elapsed":
			f.used.elapsed, err = j.number()
		case "total":
			f.used.cpu, err = j.cpuMember()
		default:
			err = j.SkipValue()
		}
		return err
	})
}

// cpuMember reads a CPU time in seconds.
func (j *jobs) cpuMember() (sum float64, err error) {
	err = j.nested(func(name string) error {
		switch name {
		case "seconds", "microseconds":
			n, err := j.number()
			if n.n < 0 || n.n > 1<<40 {
				j.odd("%s is no CPU time", name)
			}
			if name == "microseconds" {
				sum += float64(n.n) / 1e6
			} else {
				sum += float64(n.n)
			}
			return err
		}
		return j.SkipValue()
	})
	return sum, err
}

// used holds what a job used, from its own record and those of its steps.
type used struct {
	elapsed number
	cpu     float64 // from the job's own record
	steps   float64 // from the records of its steps
	rss     int64
	cpus    int64
}

// Usage returns what ended jobs of this user, submitted since a time, used; run.Accounting has the contract. It costs
// one RPC to slurmdbd for any number of jobs.
func (s *Slurm) Usage(ctx context.Context, since time.Time, _ ...run.JobKey) ([]run.Usage, error) {
	list := newJobs(measured, s.cfg.User, nil, 0)
	if err := s.accounted(ctx, since, list); err != nil {
		return nil, err
	}
	_, err := s.whole(list)
	return list.usage, err
}

// usageMember reads the members of accountingMember and those about what the job used.
func (j *jobs) usageMember(name string) error {
	f := &j.now
	switch name {
	case "steps":
		return j.elements(j.step)
	case "tres":
		return j.nested(func(name string) error {
			if name == "allocated" {
				return j.resource("cpu", &f.used.cpus)
			}
			return j.SkipValue()
		})
	}
	return j.accountingMember(name)
}

// step adds what one step used. The memory of Slurm's own step for the outside of a job ("extern") is ignored.
func (j *jobs) step() error {
	var rss int64
	var cpu float64
	var name string
	err := j.members(func(member string) (err error) {
		switch member {
		case "time":
			return j.nested(func(member string) (err error) {
				if member == "total" {
					cpu, err = j.cpuMember()
					return err
				}
				return j.SkipValue()
			})
		case "step":
			return j.nested(func(member string) (err error) {
				if member == "name" {
					name, err = j.word()
					return err
				}
				return j.SkipValue()
			})
		case "tres":
			return j.nested(func(member string) error {
				if member != "requested" { // the member requested of a step also has its usage
					return j.SkipValue()
				}
				return j.nested(func(member string) error {
					if member == "max" {
						return j.resource("mem", &rss)
					}
					return j.SkipValue()
				})
			})
		}
		return j.SkipValue()
	})
	u := &j.now.used
	if u.steps += cpu; name != "extern" {
		u.rss = max(u.rss, rss)
	}
	return err
}

// resource reads the count of one resource of a list.
func (j *jobs) resource(kind string, to *int64) error {
	return j.elements(func() error {
		var is string
		var n number
		err := j.members(func(name string) (err error) {
			switch name {
			case "type":
				is, err = j.word()
			case "count":
				n, err = j.number()
			default:
				err = j.SkipValue()
			}
			return err
		})
		if is == kind && n.set && n.n > 0 {
			*to = n.n
		}
		return err
	})
}

// measure appends what the record's job used.
func (j *jobs) measure() {
	f := &j.now
	u := run.Usage{JobID: f.job.ID, Submitted: f.job.Submitted, ElapsedSeconds: f.used.elapsed.n, MaxRSSBytes: f.used.rss,
		CPUSeconds: max(f.used.cpu, f.used.steps), AllocCPUs: int(min(f.used.cpus, 1<<31-1))}
	j.usage = append(j.usage, u)
}

// foundNothing reports whether the only warning is that slurmdbd has no such record.
func foundNothing(warnings []problem) bool {
	return len(warnings) == 1 && strings.Contains(warnings[0].Description, "found nothing")
}

// noAccounting returns the fault AccountingDisabled if slurmrestd serves no accounting, and err otherwise. On a cluster
// without slurmdbd slurmrestd starts only without the calls for it.
func noAccounting(err error) error {
	if fault.CodeOf(err) == NoPath {
		return fault.New(fault.NotFound, run.AccountingDisabled, "slurmrestd serves no accounting").WithNext(
			"if the cluster has slurmdbd, start slurmrestd with its plugin: slurmrestd -s slurmctld,slurmdbd")
	}
	return err
}
