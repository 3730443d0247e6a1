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
func (t *trial) replay(ctx context.Context, l *ledger.Ledger, attempts []attempt) error {
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
	for i, a := range attempts {
		r := &records[i]
		if err := t.s.folder(r, t.runID, a); err != nil {
			return err
		}
		if r.Jobs, err = t.s.accounted(ctx, t.who(), run.JobName(t.runID, a.n, a.token)); err != nil {
			return err
		}
		if err := protocol.Replay(*r); err != nil {
			t.fits = false
			t.find("unmodelled", "%v", err)
		}
	}
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

// folder adds what the attempt's folder shows.
func (s *site) folder(r *protocol.Record, runID string, a attempt) error {
	ctl := s.path(fmt.Sprintf("%s/a%d/ctl", s.dir(runID), a.n))
	token, err := os.ReadFile(ctl + "/token")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	r.Foreign = err == nil && strings.TrimSpace(string(token)) != a.token
	for k := 1; ; k++ {
		st, err := os.Stat(filepath.Join(ctl, run.SendFile(k, "err")))
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

// atLatest is the last moment at which a file with this time may have been written: some network filesystems store whole seconds.
func atLatest(t time.Time) time.Time {
	if t.Nanosecond() != 0 {
		return t
	}
	return t.Add(time.Second - 1)
}

// accounted is how many jobs of a user's of that name Slurm's accounting has.
func (s *site) accounted(ctx context.Context, owner, name string) (int, error) {
	out, err := s.output(ctx, "root", nil, "sacct", "-X", "-P", "-n", "--user="+owner, "--name="+name, "-S", "now-1days", "-o", "JobID")
	return len(strings.Fields(out)), err
}
