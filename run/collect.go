package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Bounds of what is read from an attempt's control files, in bytes.
const (
	maxControlBytes  = 1 << 20
	maxValueBytes    = 16 << 10  // a JSON output up to this size stands in result_json as value
	maxValuesBytes   = 256 << 10 // and all of a run together
	maxUndeclared    = 20
	maxTailInDetail  = 400
	outputTypeJSON   = "JSON"
	logArtifactLabel = "log"
)

// collect judges an ended job and registers what it made. It is repeated until it commits; nothing is
// registered before that.
func (e *Engine) collect(ctx context.Context, v View) (again bool, err error) {
	if !e.due(v.Run.ID) {
		return false, nil
	}
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	exit, err := e.readExit(ctx, v)
	if fault.Is(err, fault.NotFound) && e.mayCome(v) {
		return false, e.note(ctx, v, "outputs_late", "the job ended and its exit file does not show yet")
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Validation) {
		return false, err // the filesystem, not the job
	}
	var claim Claim
	never := false
	if exit == nil {
		// The job we know left no exit file: the claim says whether it executed, a second one of its name did, or nobody.
		claim, err = e.readClaim(ctx, v)
		if never = fault.Is(err, fault.NotFound); never {
			claim, never, err = e.takeClaim(ctx, v) // nobody did, and with this nobody ever will
		}
		switch {
		case isGone(err) && v.Run.CancelAt != nil:
			return false, e.giveUpGone(ctx, v)
		case isGone(err):
			return false, e.folderGone(ctx, v)
		case err != nil && !fault.Is(err, fault.Validation):
			return false, err
		case claim.Token != v.Submission.Token:
			return false, e.foreignClaim(ctx, v)
		case !claim.Void && claim.Holder.Job != v.Submission.JobID:
			_, err := e.adopt(ctx, v, claim)
			e.poke()
			return false, err
		}
	}
	d := e.judge(ctx, v, exit, claim, never)
	if exit != nil {
		v.Attempt.Usage = usage(*exit)
		v.Attempt.Node = orElse(v.Attempt.Node, exit.Node)
	}
	if d.ending == EndedOK {
		if again, err := e.takeOutputs(ctx, v, p, exit.Holder, &d); err != nil || again {
			return false, err
		}
	}
	if err := e.takeLogs(ctx, v, p, &d); err != nil {
		return false, err
	}
	return false, e.finish(ctx, v, d)
}

// readExit reads the exit file if the job's own execution wrote it. NotFound while there is none.
func (e *Engine) readExit(ctx context.Context, v View) (*Exit, error) {
	data, err := e.Control.ReadControl(ctx, v.Run.ID, v.Attempt.N, ExitFile, maxControlBytes, false)
	if err != nil {
		return nil, err
	}
	x, err := ParseExit(data)
	if err != nil {
		return nil, err
	}
	if v.Submission.JobID != "" && x.Holder.Job != v.Submission.JobID {
		return nil, fault.New(fault.Validation, "run.readExit", "exit_of_another_job", fmt.Sprintf("the exit file is job %s's, not job %s's", x.Holder.Job, v.Submission.JobID))
	}
	return &x, nil
}

// mayCome tells whether a file that is missing may only be late: for a bounded time after the job's end.
func (e *Engine) mayCome(v View) bool {
	switch v.Attempt.SlurmState {
	case "", "COMPLETED", "FAILED":
	default:
		return false // Slurm's word is enough
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	since, ok := e.lateSince[v.Run.ID]
	if !ok {
		since = e.Now()
		e.lateSince[v.Run.ID] = since
	}
	return e.Now().Sub(since) < e.cfg.LateOutputs
}

func (e *Engine) readClaim(ctx context.Context, v View) (Claim, error) {
	data, err := e.Control.ReadControl(ctx, v.Run.ID, v.Attempt.N, ClaimFile, maxControlBytes, false)
	if err != nil {
		return Claim{}, err
	}
	return ParseClaim(data)
}

func usage(x Exit) json.RawMessage {
	doc := map[string]any{"elapsed_seconds": x.Elapsed, "user_seconds": x.User, "system_seconds": x.Sys, "max_rss_kib": nil, "node": x.Node}
	if x.MaxRSS > 0 {
		doc["max_rss_kib"] = x.MaxRSS
	}
	b, err := plan.Marshal(doc)
	if err != nil {
		return nil
	}
	return b
}

// tail is the end of what the program, or else the script, said; bounded, on one line, printable.
func (e *Engine) tail(ctx context.Context, v View) string {
	for _, name := range []string{StderrFile, JobLogFile} {
		b, err := e.Control.ReadControl(ctx, v.Run.ID, v.Attempt.N, name, maxTailInDetail, true)
		if s := strings.TrimSpace(string(b)); err == nil && s != "" {
			q := strconv.QuoteToGraphic(strings.ToValidUTF8(s, "?"))
			return strings.ReplaceAll(q[1:len(q)-1], `\n`, " / ")
		}
	}
	return "it said nothing"
}

func orTime(t *time.Time, other time.Time) *time.Time {
	if t != nil {
		return t
	}
	return &other
}
