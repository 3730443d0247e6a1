package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slurmgate/run"
)

// submit repeats the submit of one caller until it is answered, as the errors direct.
func (t *trial) submit(ctx context.Context, file string) {
	for ctx.Err() == nil && !t.overdue() {
		if !t.awaitGateway(ctx) {
			continue
		}
		var a run.SubmitAnswer
		err := t.call(ctx, &a, "submit", file)
		if err == nil {
			t.mu.Lock()
			t.answers = append(t.answers, a.RunID)
			t.mu.Unlock()
			if a.RunID != t.runID {
				t.find("misattributed", "the submit answered with run %s, not %s", a.RunID, t.runID)
			}
			return
		}
		if !t.retryable(err) {
			t.find("stuck", "the submit was refused: %v", err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.find("stuck", "no submit was answered")
}

// retryable reports whether the trial repeats a call: after exit status 8, after 9, since each of its verbs is safe to
// repeat, and after 5 while another gateway starts.
func (t *trial) retryable(err error) bool {
	e, ok := errors.AsType[*cliError](err)
	return !ok || t.refusedUser(e.code) ||
		e.exit == 8 || e.exit == 9 || e.exit == -1 || e.code == "gateway_running" || e.code == "state_dir" ||
		e.code == "no_answer" || e.code == "canceled"
}

// call runs one verb of the command line, for a minute at most.
func (t *trial) call(ctx context.Context, out any, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	file := t.s.client
	if t.takeover && t.owner == "" {
		file = t.s.file
	}
	err := t.s.cli(ctx, t.who(), file, out, args...)
	fmt.Fprintf(t.log, "=== %s %s: %v\n", time.Now().Format("15:04:05.000"), strings.Join(args, " "), err)
	return err
}

// awaitGateway waits a moment for a gateway to answer: a verb would become one itself.
func (t *trial) awaitGateway(ctx context.Context) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if up, _ := t.keep.alive(); up {
			return true
		}
	}
	return false
}

// cancel repeats the cancel until it is answered or the run has ended.
func (t *trial) cancel(ctx context.Context) {
	for ctx.Err() == nil && !t.overdue() {
		if !t.awaitGateway(ctx) {
			continue
		}
		var a run.CancelAnswer
		err := t.call(ctx, &a, "cancel", t.runID)
		if err == nil {
			t.mu.Lock()
			t.cancelled = true
			t.mu.Unlock()
			return
		}
		if e, ok := errors.AsType[*cliError](err); ok && e.exit == 3 { // the submission is not there yet
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if !t.retryable(err) {
			t.find("stuck", "the cancel was refused: %v", err)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// retry requests another attempt until it is answered. The verb follows the latest attempt, so the trial reads the run
// before it repeats the call.
func (t *trial) retry(ctx context.Context) {
	var a run.SubmitAnswer
	err := t.call(ctx, &a, "retry", t.runID)
	var story struct{ Attempt int }
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		t.awaitGateway(ctx)
		if t.call(ctx, &story, "runs", "show", t.runID) != nil {
			return
		}
	}
	t.retried = err == nil || story.Attempt > 1
	if !t.retried && !t.retryable(err) {
		t.find("stuck", "the retry was refused: %v", err)
		t.retried = true
	}
}
