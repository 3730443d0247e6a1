package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/run"
)

// probeExits explains the exit statuses of a probe that could not write its answer. The first is the code of the check
// that failed.
var probeExits = map[int]struct{ check, found string }{
	94: {nodeWrites, "a job cannot write to storage.runs_dir"},
	95: {sharedFiles, "storage.runs_dir is there, but it is another filesystem: the gateway's folder is not in it"},
	96: {nodeWrites, "a job cannot write to storage.runs_dir: its disk is full, or a quota is used up"},
	97: {sharedFiles, "storage.runs_dir cannot be reached: the mount is stale, or the service user may not enter it"},
	98: {sharedFiles, "storage.runs_dir is missing: it is not mounted"},
	99: {sharedFiles, "storage.runs_dir has a folder of the same name, but not the gateway's files"},
}

// stuck lists beginnings of Slurm's reasons for which a job never starts.
var stuck = []string{"PartitionDown", "PartitionInactive", "BadConstraints", "ReqNodeNotAvail", "JobHeld", "PartitionNodeLimit",
	"PartitionTimeLimit", "Account", "InvalidAccount", "InvalidQOS", "launch failed"}

// wait reads answers until each job has one, has ended, or time is up.
func (r *round) wait(ctx context.Context) {
	deadline := time.Now().Add(probeWait + time.Duration(len(r.targets))*time.Second)
	ask := time.Now().Add(time.Second)
	ended := map[string]time.Time{}
	states := map[string]run.Job{}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for r.waits() && ctx.Err() == nil && time.Now().Before(deadline) {
		r.read(ctx, states)
		if now := time.Now(); now.After(ask) {
			ask = now.Add(max(2*time.Second, time.Duration(len(r.targets))*20*time.Millisecond))
			if answer := r.jobs(ctx); answer != nil {
				states = answer
			}
		}
		r.giveUp(states, ended)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	for _, t := range r.targets {
		if !t.seen && t.job != "" {
			j, known := states[t.job]
			r.notReached(t, j, known)
		}
	}
}

func (r *round) waits() bool {
	for _, t := range r.targets {
		if !t.seen && t.job != "" {
			return true
		}
	}
	return false
}

// read takes the answers that have arrived. Listing the folder makes a network filesystem refresh it.
func (r *round) read(ctx context.Context, states map[string]run.Job) {
	names, err := r.shared.names(ctx)
	if err != nil {
		return // what was not read is not reached
	}
	for _, t := range r.targets {
		if t.seen || t.job == "" || !slices.Contains(names, t.answerFile()) {
			continue
		}
		t.seen = true
		text, err := r.shared.read(ctx, t.answerFile())
		value, parsed := parseAnswer(string(text), r.token)
		if err != nil || parsed != nil {
			r.report(probeJob, t.Name, unknown("", "the answer of job %s (%s) cannot be read: %v", t.job, t.name(), cmp.Or(err, parsed)))
			continue
		}
		s := &Seen{Node: value["node"], Job: strings.TrimPrefix(t.answerFile(), "answer."), Read: time.Now(), Start: r.began, Value: value}
		if j, is := states[t.job]; is && j.Started != nil {
			s.Start = *j.Started
			if j.Ended != nil {
				s.End = *j.Ended
			}
		}
		if t.Name != "" && t.Name != s.Node {
			r.report(probeJob, t.Name, unknown("", "not looked at: Slurm sent job %s to %s instead", t.job, s.Node))
			continue
		}
		r.report(probeJob, s.Node, ok("job %s ran and wrote its answer (%s)", t.job, t.Partition))
		r.seen = append(r.seen, s)
	}
}

// giveUp stops waiting for jobs that ended without an answer, as long ago as a network filesystem may take to show it, and for those that
// will not start.
func (r *round) giveUp(states map[string]run.Job, ended map[string]time.Time) {
	for _, t := range r.targets {
		j, known := states[t.job]
		if t.seen || !known {
			continue
		}
		if _, first := ended[t.job]; !first && (j.Class == run.ClassEnded || j.Class == run.ClassPending && isStuck(j.Why)) {
			ended[t.job] = time.Now()
		}
		since, over := ended[t.job]
		knownExit := j.ExitCode != nil && probeExits[*j.ExitCode].check != ""
		if over && (knownExit || j.Class == run.ClassPending && time.Since(since) > 4*time.Second || time.Since(since) > lateFile) {
			r.notReached(t, j, true)
		}
	}
}

func isStuck(why string) bool {
	for _, begins := range stuck {
		if strings.HasPrefix(why, begins) {
			return true
		}
	}
	return false
}

// notReached reports that there is no answer, and why.
func (r *round) notReached(t *target, j run.Job, known bool) {
	t.seen = true
	node := cmp.Or(t.Name, j.Node)
	switch {
	case !known:
		r.report(probeJob, node, unknown("look for the job: squeue --states=all --jobs="+t.job, "%s was not looked at: Slurm shows no job %s",
			t.name(),
			t.job))
	case j.Class == run.ClassEnded && j.ExitCode != nil && probeExits[*j.ExitCode].check != "":
		e := probeExits[*j.ExitCode]
		r.report(e.check, node, bad("", "%s (probe job %s ended with status %d)", e.found, t.job, *j.ExitCode))
		r.report(probeJob, node, unknown("mend "+e.check+" first", "the node was not looked at any further: its job could not write an answer"))
	case j.Class == run.ClassEnded:
		r.report(probeJob, node, bad("look into the node's slurmd.log for job "+t.job, "job %s ended as %s (%s, status %s) without an answer",
			t.job, j.State,
			cmp.Or(j.Why, "no reason"), status(j)))
	case j.Class == run.ClassPending:
		r.report(probeJob, node, unknown("see what Slurm says of the job's partition and node: sinfo --Node --long",
			"%s was not looked at: job %s did not start "+
				"(%s)", t.name(), t.job, cmp.Or(j.Why, "no reason")))
	default:
		r.report(probeJob, node, unknown("look at the node: scontrol show node "+cmp.Or(node, "NAME"),
			"%s was not looked at: job %s is %s and has not answered",
			t.name(), t.job, j.State))
	}
}

func status(j run.Job) string {
	if j.ExitCode == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d:%d", *j.ExitCode, j.Signal)
}

// jobs returns Slurm's records of the jobs of the round, by id; nil without an answer.
func (r *round) jobs(ctx context.Context) map[string]run.Job {
	list, err := r.Slurm.Jobs(ctx, nil)
	if err != nil {
		return nil
	}
	found := map[string]run.Job{}
	for _, j := range list {
		if j.Name == r.name {
			found[j.ID] = j
		}
	}
	return found
}
