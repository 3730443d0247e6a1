package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slurmgate/docs/model/protocol"
	"slurmgate/ledger"
	"slurmgate/run"
)

// replay holds what the case left against the model in docs/model: every attempt must be a path that the model allows.
func (t *trial) replay(ctx context.Context, l *ledger.Ledger, v run.View, attempts []attempt) error {
	events, err := l.Events(ctx, t.runID)
	if err != nil {
		return err
	}
	records, err := history(events)
	if err != nil {
		return err
	}
	if len(records) != len(attempts) {
		t.find("unmodelled", "the events open %d attempts, the ledger has %d", len(records), len(attempts))
		return nil
	}
	t.fits = true
	jobs := 0
	for i, a := range attempts {
		r := &records[i]
		in, err := sentIn(ctx, l, events, i+1)
		if err != nil {
			return err
		}
		if err := t.s.folder(r, t.runID, a, in); err != nil {
			return err
		}
		ids, err := t.jobsOf(ctx, run.JobName(t.runID, a.n, a.token), fmt.Sprintf("%s/a%d", t.s.dir(t.runID), a.n))
		if err != nil {
			return err
		}
		r.Jobs = len(ids)
		for _, s := range in {
			if s.array == "" {
				continue
			}
			of := s.leader
			if ids, err = t.jobsOf(ctx, s.array, fmt.Sprintf("%s/a%d/ctl", t.s.dir(of.RunID), of.N)); err != nil {
				return err
			}
			r.Jobs += tasksIn(ids, s.task)
		}
		jobs += r.Jobs
		if err := protocol.Replay(*r); err != nil {
			t.fits = false
			t.find("unmodelled", "%v", err)
		}
	}
	t.judgeJobs(jobs, v)
	return nil
}

// history divides the events of a run among its attempts: each begins with the event that opened it and has the one that ended it.
func history(events []ledger.Entry) (list []protocol.Record, err error) {
	for _, e := range events {
		var d struct {
			Attempt       int
			Ending, After string
			Phase         run.Phase
			Sent          *bool
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return nil, err
		}
		next := protocol.Event{At: e.At, Type: e.Type, Ending: d.Ending + d.After, Unsent: d.Sent != nil && !*d.Sent,
			Ahead: d.Phase == run.AheadOfLedger}
		if len(list) > 0 {
			last := &list[len(list)-1]
			last.Events = append(last.Events, next)
		}
		switch e.Type {
		case "run.created", "run.new_attempt", "run.retry":
			list = append(list, protocol.Record{N: len(list) + 1, Events: []protocol.Event{{At: e.At, Type: "run.created"}}})
		}
	}
	return list, nil
}

// dispatch is a send that an intent allowed: single, or as the task of an array, whose leader has its files.
type dispatch struct {
	array  string
	task   int
	leader run.ArrayRow
}

// sentIn returns the sends of the n-th attempt, by its intents.
func sentIn(ctx context.Context, l *ledger.Ledger, events []ledger.Entry, n int) (list []dispatch, err error) {
	for _, e := range events {
		var d struct {
			Attempt int
			Array   string
			Task    int
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return nil, err
		}
		if e.Type != "run.intent" || d.Attempt != n {
			continue
		}
		s := dispatch{array: d.Array, task: d.Task}
		if d.Array != "" {
			if s.leader, err = l.Array(ctx, d.Array); err != nil {
				return nil, err
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// folder adds what the attempt's folder shows, and the leader's about a send with others.
func (s *site) folder(r *protocol.Record, runID string, a attempt, in []dispatch) error {
	ctl := s.path(fmt.Sprintf("%s/a%d/ctl", s.dir(runID), a.n))
	token, err := os.ReadFile(ctl + "/token")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	r.Foreign = err == nil && strings.TrimSpace(string(token)) != a.token
	for k := 1; ; k++ {
		file := filepath.Join(ctl, run.SendFile(k, "err"))
		if k <= len(in) && in[k-1].array != "" {
			at := in[k-1].leader
			file = s.path(fmt.Sprintf("%s/a%d/ctl/%s", s.dir(at.RunID), at.N, run.SendFile(at.K, "err")))
		}
		st, err := os.Stat(file)
		if os.IsNotExist(err) && k <= len(in) {
			continue
		}
		if os.IsNotExist(err) {
			break
		}
		if err != nil {
			return err
		}
		r.Sends = append(r.Sends, atLatest(st.ModTime()))
	}
	for _, line := range a.record {
		words := strings.Fields(line)
		at, err := time.Parse(time.RFC3339Nano, words[len(words)-1])
		if err != nil {
			return err
		}
		r.Executions = append(r.Executions, at)
	}
	if a.claim != nil {
		r.Void, r.Holder, r.Restart = a.claim.Void, !a.claim.Void, a.claim.Holder.Restart
	}
	r.Exit = a.left != nil
	return nil
}

// atLatest returns the last moment at which a file with this time may have been written: some network filesystems store
// whole seconds.
func atLatest(t time.Time) time.Time {
	if t.Nanosecond() != 0 {
		return t
	}
	return t.Add(time.Second - 1)
}

// accounted returns the ids of a user's jobs of that name that Slurm's accounting has.
func (s *site) accounted(ctx context.Context, owner, name string) ([]string, error) {
	out, err := s.output(ctx, "root", nil, "env", "SLURM_BITSTR_LEN=0", "sacct", "-X", "-P", "-n", "--user="+owner, "--name="+name, "-S",
		"now-1days", "-o", "JobID")
	return strings.Fields(out), err
}
