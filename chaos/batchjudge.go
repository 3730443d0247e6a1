package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/ledger"
)

// judge holds what the rows of a batch became against what was asked for when. The gateway is down.
func (t *batchTrial) judge(ctx context.Context, copyDir string) (runs []ended, err error) {
	l, db, err := t.s.copyLedger(ctx, copyDir)
	if err != nil {
		t.find("broken", "the ledger cannot be opened: %v", err)
		return nil, nil
	}
	defer l.Close()
	defer db.Close()
	if err := l.Integrity(ctx); err != nil {
		t.find("broken", "the ledger: %v", err)
	}
	batches, err := t.stored(ctx, l)
	if err != nil {
		return nil, err
	}
	t.fits = true
	for _, b := range batches {
		rows, err := l.BatchRows(ctx, b.ID, ledger.RowFilter{Limit: 1000})
		if err != nil {
			return nil, err
		}
		if len(rows) != t.batch.rows {
			t.find("lost", "%s has %d rows, the sheet has %d", b.Name, len(rows), t.batch.rows)
		}
		for _, row := range rows {
			sourceCancelled := t.batch.again != 0 && b.Step == "b" && row.Code == "input_failed" // it was still being cancelled at the retry
			if row.Todo != "" || row.State == "waiting" || row.State == "refused" && !sourceCancelled {
				t.find("stuck", "row %s of %s is %s, left to do: %q (%s)", row.Sample, b.Name, row.State, row.Todo, row.Message)
			}
			if row.RunID == "" {
				continue
			}
			o := t.of(row, b.Step == "b")
			e, err := t.judgeRow(ctx, l, db, o, row)
			if err != nil {
				return nil, err
			}
			t.fits = t.fits && o.fits
			for _, f := range o.trouble {
				t.trouble = append(t.trouble, finding{f.kind, "run " + o.runID + " of row " + row.Sample + ": " + f.text})
			}
			runs = append(runs, e)
		}
	}
	return runs, nil
}

// stored reads the batch from the ledger, or those of the steps.
func (t *batchTrial) stored(ctx context.Context, l *ledger.Ledger) ([]ledger.Batch, error) {
	if t.batch.steps {
		return l.ChainNamed(ctx, nil, t.name)
	}
	b, err := l.BatchNamed(ctx, nil, t.name)
	if fault.Is(err, fault.NotFound) {
		t.find("lost", "an answered batch is not there")
		return nil, nil
	}
	return []ledger.Batch{b}, err
}

// of returns a row's run as a trial.
func (t *batchTrial) of(row ledger.BatchRow, second bool) *trial {
	c := *t.testCase
	c.batch, c.scenario.end = nil, []string{endOK, endCancelled}
	o := &trial{testCase: &c, s: t.s, log: t.log, token: t.tokens[row.Sample], runID: row.RunID, isTwin: true, cancels: true}
	if second {
		o.seed = resultText(o.token, seedText, 0)
	}
	return o
}

// judgeRow holds a row's run against the ledger, the workspace, the model, and the times in which the batch was to be submitted.
func (t *batchTrial) judgeRow(ctx context.Context, l *ledger.Ledger, db *sql.DB, o *trial, row ledger.BatchRow) (ended, error) {
	e := ended{t: o, executed: map[int]int{}}
	v, err := l.View(ctx, o.runID)
	if err != nil {
		o.find("lost", "the row's run is not in the ledger: %v", err)
		return e, nil
	}
	if e.state = v.Run.State; row.State != string(v.Run.State) {
		o.find("misattributed", "the row is %s, its run %s", row.State, v.Run.State)
	}
	events, err := l.Events(ctx, o.runID)
	if err != nil {
		return e, err
	}
	for _, x := range events {
		if (x.Type == "run.created" || x.Type == "run.retry" || x.Type == "run.intent") && !t.wasAsked(x.At) {
			o.find("late", "%s at %s, after the cancel was acknowledged", x.Type, x.At.Format("15:04:05.000"))
		}
	}
	attempts, err := o.s.attempts(ctx, db, o.runID)
	if err != nil {
		return e, err
	}
	for _, a := range attempts {
		e.executed[a.n] = len(a.record)
		o.judgeAttempt(v, a)
		t.judgeStart(o, a)
	}
	o.judgeEnd(v, attempts[len(attempts)-1])
	if err := o.replay(ctx, l, v, attempts); err != nil {
		return e, err
	}
	return e, o.judgeOutputs(ctx, l, v)
}

// judgeStart checks that nothing of the batch starts after cancel-all has answered, except where the answer reported
// it.
func (t *batchTrial) judgeStart(o *trial, a attempt) {
	for _, line := range a.record {
		words := strings.Fields(line)
		at, err := time.Parse(time.RFC3339Nano, words[len(words)-1])
		if err != nil || t.batch.everyone && !t.maybe[o.runID] && !t.wasAsked(at) {
			o.find("late", "attempt %d was started at %s, after cancel-all had answered (%v)", a.n, words[len(words)-1], err)
		}
	}
}

// wasAsked reports whether the batch was to be submitted at a time.
func (t *batchTrial) wasAsked(at time.Time) bool {
	return slices.ContainsFunc(t.asked, func(p period) bool { return !at.Before(p.from) && !at.After(p.to) })
}

// batchCounter counts the batches, their rows and their runs.
type batchCounter struct {
	cases, rows, runs, executed int
}

func (b *batchCounter) add(t *batchTrial, runs []ended) {
	b.cases++
	b.rows += t.batch.rows
	if t.batch.steps {
		b.rows += t.batch.rows
	}
	b.runs += len(runs)
	for _, e := range runs {
		for _, n := range e.executed {
			b.executed += n
		}
	}
}

func (b *batchCounter) String() string {
	if b.cases == 0 {
		return ""
	}
	return fmt.Sprintf("batches: %d cases with %d rows; %d became runs, %d executed", b.cases, b.rows, b.runs, b.executed)
}
