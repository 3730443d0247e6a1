package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/artifact"
	"slurmgate/ledger"
	"slurmgate/run"
)

// attempt is one attempt of a run: its row of the ledger, and the files of its workspace.
type attempt struct {
	n      int
	token  string
	ending run.Ending
	exit   *int
	record []string // one line for each execution
	claim  *run.Claim
	left   *run.Exit
}

// ended is a case's run after the case, which must not change any more.
type ended struct {
	t        *trial
	state    run.State
	executed map[int]int // executions by attempt
}

// collect asks the gateway for the run's story once more and writes it down.
func (t *trial) collect(ctx context.Context) {
	r, err := outcome(t.s.program(ctx, user, nil, "--site", t.s.file, "runs", "show", t.runID))
	fmt.Fprintf(t.log, "%s%s%v\n", r.stdout, r.stderr, err)
	t.story = r.stdout
}

// judge holds everything a run left against what was planned for it. The gateway is down.
func (t *trial) judge(ctx context.Context, copyDir string) (ended, error) {
	e := ended{t: t, executed: map[int]int{}}
	l, db, err := t.s.copyLedger(ctx, copyDir)
	if err != nil {
		t.find("broken", "the ledger cannot be opened: %v", err)
		return e, nil
	}
	defer l.Close()
	defer db.Close()
	if err := l.Integrity(ctx); err != nil {
		t.find("broken", "the ledger: %v", err)
	}
	v, err := l.View(ctx, t.runID)
	if err != nil {
		t.find("lost", "an answered submit has no row: %v", err)
		return e, nil
	}
	e.state, t.array, t.ended = v.Run.State, v.Submission.Array, string(v.Run.State)
	attempts, err := t.s.attempts(ctx, db, t.runID)
	if err != nil {
		return e, err
	}
	for _, a := range attempts {
		e.executed[a.n] = len(a.record)
		t.judgeAttempt(v, a)
	}
	t.judgeEnd(v, attempts[len(attempts)-1])
	if err := t.replay(ctx, l, v, attempts); err != nil {
		return e, err
	}
	if v.Run.ExecutedAs != t.owner {
		t.find("misattributed", "the run is executed as %q, not %q", v.Run.ExecutedAs, t.owner)
	}
	if err := t.judgeNamesake(ctx, v); err != nil {
		return e, err
	}
	return e, t.judgeOutputs(ctx, l, v)
}

// judgeAttempt checks an attempt: one execution at most, none where the ledger rules it out, and none forgotten.
func (t *trial) judgeAttempt(v run.View, a attempt) {
	void := a.claim != nil && a.claim.Void
	never := a.ending == run.EndedAbsent || a.ending == run.EndedRejected || a.ending == run.EndedStaging || a.ending == run.EndedBootFail ||
		a.ending == run.EndedProlog
	said := map[string]run.Ending{"ok": run.EndedOK, "tool_failed": run.EndedToolFailed}
	var own run.Ending // as the job itself left it
	if a.left != nil {
		own = said[a.left.Reason]
	}
	switch n := len(a.record); {
	case n > 1:
		t.find("duplicate", "attempt %d was executed %d times", a.n, n)
	case n == 1 && (void || never):
		t.find("duplicate", "attempt %d was executed, and the ledger says %s (claim %+v)", a.n, a.ending, a.claim)
	case n == 1 && t.cancels && a.ending == run.EndedCancelled: // it may have come to its end before Slurm stopped it
	case n == 1 && own != "" && own != a.ending && (v.Run.CancelAt == nil || a.n < v.Run.AttemptN):
		t.find("lost", "attempt %d ran to its end (%s), and the ledger says %q", a.n, own, a.ending)
	case n == 0 && own != "", n == 0 && a.ending == run.EndedOK:
		t.find("misattributed", "attempt %d was never executed, the job says %q and the ledger %q", a.n, own, a.ending)
	}
	for _, line := range a.record {
		if !strings.HasPrefix(line, t.token+" ") {
			t.find("misattributed", "attempt %d holds the record of another run: %s", a.n, line)
		}
	}
}

// judgeEnd holds the run's end against the plan.
func (t *trial) judgeEnd(v run.View, last attempt) {
	end := string(v.Run.State)
	if v.Run.State == run.Failed {
		end += ":" + v.Run.Reason
	}
	if !t.mayEnd(end) {
		t.find("misattributed", "it ended as %s (%s)", end, v.Run.Detail)
	}
	if v.Run.State == run.Cancelled && v.Run.CancelAt == nil && !slices.Contains(t.may, endCancelled) {
		t.find("misattributed", "cancelled, and nobody asked for it")
	}
	if (v.Run.State == run.Succeeded || end == endTool) && (v.Run.ExitCode == nil || *v.Run.ExitCode != t.scenario.exit) {
		t.find("misattributed", "exit code %s, not %d", optional(v.Run.ExitCode), t.scenario.exit)
	}
	if v.Run.State == run.Succeeded || end == endTool {
		if last.claim == nil || last.claim.Void || last.claim.Holder.Job != v.Submission.JobID || last.claim.Token != v.Submission.Token {
			t.find("misattributed", "the ledger names job %q, the claim is %+v", v.Submission.JobID, last.claim)
		}
	}
}

func (t *trial) mayEnd(end string) bool {
	if end == "cancelled" && t.blocked {
		return true
	}
	return slices.Contains(t.scenario.end, end) || slices.Contains(t.may, end)
}

// judgeOutputs hashes every object of the run again; the result must be this run's own.
func (t *trial) judgeOutputs(ctx context.Context, l *ledger.Ledger, v run.View) error {
	store, err := artifact.Open(t.s.path(t.s.state() + "/artifacts"))
	if err != nil {
		return err
	}
	defer store.Close()
	store.Consult(l)
	outputs, err := l.Outputs(ctx, t.runID)
	if err != nil {
		return err
	}
	ids := []string{v.Run.LogArtifactID, v.Run.ScriptArtifactID}
	found := false
	for _, o := range outputs {
		ids = append(ids, o.ArtifactID)
		if o.Role != "result" {
			continue
		}
		found = true
		want := resultText(t.token, cmp.Or(t.seed, seedText), t.scenario.exit)
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(want))); got != o.Artifact.SHA256 {
			t.find("misattributed", "the output is not this run's: %s", o.Artifact.SHA256)
		}
	}
	if v.Run.State == run.Succeeded && !found {
		t.find("lost", "succeeded without its output")
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		a, err := l.Artifact(ctx, id)
		if err == nil {
			err = store.Verify(ctx, a.SHA256)
		}
		if err != nil {
			t.find("broken", "artifact %s: %v", id, err)
		}
	}
	return nil
}

// resultText returns what the program writes.
func resultText(token, input string, code int) string {
	return fmt.Sprintf("token %s\ninput %x\ncode %d\n", token, sha256.Sum256([]byte(input)), code)
}

func optional(n *int) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}

// copyLedger opens a copy of the site's ledger; its gateway must be down.
func (s *site) copyLedger(ctx context.Context, dir string) (*ledger.Ledger, *sql.DB, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(s.path(s.state()+"/ledger.db"+suffix), filepath.Join(dir, "ledger.db"+suffix)); err != nil && !(os.IsNotExist(err) &&
			suffix != "") {
			return nil, nil, err
		}
	}
	l, err := ledger.Open(ctx, filepath.Join(dir, "ledger.db"), ledger.Options{})
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite3", filepath.Join(dir, "ledger.db"))
	if err != nil {
		l.Close()
		return nil, nil, err
	}
	return l, db, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// attempts reads a run's attempts from the ledger and the workspace.
func (s *site) attempts(ctx context.Context, db *sql.DB, runID string) ([]attempt, error) {
	rows, err := db.QueryContext(ctx, "SELECT n, token, ending, exit_code FROM attempts WHERE run_id = ? ORDER BY n", runID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []attempt
	for rows.Next() {
		var a attempt
		if err := rows.Scan(&a.n, &a.token, &a.ending, &a.exit); err != nil {
			return nil, err
		}
		if err := s.leftBy(&a, runID); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// leftBy reads what the attempt left in the workspace.
func (s *site) leftBy(a *attempt, runID string) (err error) {
	dir := s.path(fmt.Sprintf("%s/a%d", s.dir(runID), a.n))
	if a.record, err = records(dir); err != nil {
		return err
	}
	if data, err := os.ReadFile(dir + "/ctl/claim"); err == nil {
		c, err := run.ParseClaim(data)
		if err != nil {
			return err
		}
		a.claim = &c
	}
	if data, err := os.ReadFile(dir + "/ctl/exit"); err == nil {
		x, err := run.ParseExit(data)
		if err != nil {
			return err
		}
		a.left = &x
	}
	return nil
}

// records reads the program's own record of its executions in an attempt, a line each. A program that was killed before
// it wrote its line leaves none: its file may exist, and is empty.
func records(attemptDir string) ([]string, error) {
	data, err := os.ReadFile(attemptDir + "/out/record")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(data), func(c rune) bool { return c == '\n' }), nil
}

// again checks an ended run at the end of the campaign, when no job is left: nothing may have changed, and no job may
// have ended without its run's knowledge.
func (e ended) again(ctx context.Context, l *ledger.Ledger, db *sql.DB) ([]finding, error) {
	t := e.t
	before := t.trouble
	t.trouble = nil
	v, err := l.View(ctx, t.runID)
	if err != nil {
		t.find("lost", "the run has gone: %v", err)
		return t.trouble, nil
	}
	if e.state.Terminal() && v.Run.State != e.state {
		t.find("misattributed", "it was %s and is %s now", e.state, v.Run.State)
	}
	attempts, err := t.s.attempts(ctx, db, t.runID)
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		if e.state.Terminal() && len(a.record) != e.executed[a.n] {
			t.find("lost", "attempt %d was executed after the end of the run", a.n)
		}
		t.judgeAttempt(v, a)
	}
	return slices.DeleteFunc(t.trouble, func(f finding) bool { return slices.Contains(before, f) }), nil
}
