package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Bounds of what is read from an attempt's control files, in bytes.
const (
	maxControlBytes  = 1 << 20
	maxValueBytes    = 16 << 10 // a JSON output up to this size stands in result_json as value
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
	d := e.judge(ctx, v, exit)
	if exit != nil {
		v.Attempt.Usage = usage(*exit)
		v.Attempt.Node = orElse(v.Attempt.Node, exit.Node)
	}
	if d.ending == EndedOK {
		if again, err := e.takeOutputs(ctx, v, p, &d); err != nil || again {
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
	if v.Attempt.SlurmState != "COMPLETED" && v.Attempt.SlurmState != "" {
		return false
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

// judge says how the job ended, from Slurm's state and the exit file. Success needs both (promise 4);
// a tool's failure needs the exit file, because Slurm cannot tell a tool's status from the script's.
func (e *Engine) judge(ctx context.Context, v View, x *Exit) verdict {
	slurm := v.Attempt.SlurmState
	byState := Job{State: slurm}.EndingOf()
	if x == nil {
		return e.judgeWithoutExit(ctx, v, byState)
	}
	code := x.Code
	d := verdict{exit: &code}
	switch x.Reason {
	case "ok":
		d.ending = EndedOK
		if slurm != "" && slurm != "COMPLETED" {
			d.ending, d.detail = byState, "the program ended well, but Slurm says "+slurm
			if byState == EndedOK || byState == EndedToolFailed {
				d.ending = EndedLost
			}
		}
	case "image_mismatch":
		d = verdict{ending: EndedImageMismatch, detail: "the image on the compute node is not the pinned one; nothing ran. Next: slurmgate image verify"}
	case "input_mismatch":
		d = verdict{ending: EndedInputMismatch, detail: "an input on the compute node is not the pinned one; nothing ran"}
	case "runtime_missing":
		d = verdict{ending: EndedNoRuntime, detail: "Apptainer was not found on node " + x.Node + ". Next: slurmgate doctor"}
	case "time_limit":
		d.ending, d.detail = EndedTimeLimit, "the program reached the plan's time limit"
	case "runtime_failed":
		d.ending, d.detail = EndedNoRuntime, "Apptainer could not start the program: "+e.tail(ctx, v)
	case "tool_failed":
		d.ending, d.detail = EndedToolFailed, fmt.Sprintf("the program exited with status %d: %s", code, e.tail(ctx, v))
	default: // terminated, killed: Slurm knows why
		d.ending = byState
		if byState == EndedOK || byState == EndedToolFailed {
			d.ending, d.detail = EndedToolFailed, fmt.Sprintf("the program was ended by a signal (status %d): %s", code, e.tail(ctx, v))
		}
	}
	switch {
	case d.ending == EndedOutOfMemory:
		d.detail = "the job used more memory than the plan's mem_mb"
	case d.ending == EndedCancelled && v.Run.CancelAt == nil:
		d.detail = "the job was cancelled in Slurm, not through slurmgate"
	case d.ending == EndedCancelled:
		d.detail = v.Run.CancelReason
	}
	if d.ending == EndedToolFailed && slurm == "OUT_OF_MEMORY" {
		d.ending, d.detail = EndedOutOfMemory, "the job used more memory than the plan's mem_mb"
	}
	return d
}

// judgeWithoutExit: the script left no exit file, so the program's own ending is not known.
func (e *Engine) judgeWithoutExit(ctx context.Context, v View, byState Ending) verdict {
	claim, err := e.readClaim(ctx, v)
	switch {
	case err == nil && claim.Void:
		return verdict{ending: EndedAbsent, detail: "the gateway holds the claim: nothing was executed"}
	case byState == EndedOK, byState == EndedToolFailed:
		if fault.Is(err, fault.NotFound) {
			return verdict{ending: EndedBootFail, detail: "the job ended (" + orElse(v.Attempt.SlurmState, "unknown") + ") before its script took the claim; nothing was executed: " + e.tail(ctx, v)}
		}
		return verdict{ending: EndedLost, detail: "the job took the claim and left no exit file; Slurm says " + orElse(v.Attempt.SlurmState, "nothing")}
	case byState == EndedOutOfMemory:
		return verdict{ending: byState, detail: "the job used more memory than the plan's mem_mb"}
	case byState == EndedCancelled && v.Run.CancelAt == nil:
		return verdict{ending: byState, detail: "the job was cancelled in Slurm, not through slurmgate"}
	case byState == EndedCancelled:
		return verdict{ending: byState, detail: v.Run.CancelReason}
	}
	return verdict{ending: byState, detail: "Slurm says " + v.Attempt.SlurmState + " " + v.Attempt.SlurmWhy}
}

func (e *Engine) readClaim(ctx context.Context, v View) (Claim, error) {
	data, err := e.Control.ReadControl(ctx, v.Run.ID, v.Attempt.N, ClaimFile, maxControlBytes, false)
	if err != nil {
		return Claim{}, err
	}
	return ParseClaim(data)
}

// takeOutputs checks every declared output against the manifest and stores the bytes. It may ask for
// another round (later), or turn the verdict into a failure.
func (e *Engine) takeOutputs(ctx context.Context, v View, p plan.Params, d *verdict) (later bool, err error) {
	reject := func(ending Ending, reason, detail string) (bool, error) {
		d.ending, d.reason, d.detail, d.artifacts, d.outputs, d.output = ending, reason, detail, nil, nil, nil
		return false, nil
	}
	data, err := e.Control.ReadControl(ctx, v.Run.ID, v.Attempt.N, ManifestFile, maxControlBytes, false)
	if fault.Is(err, fault.NotFound) {
		if e.mayCome(v) {
			return true, e.note(ctx, v, "outputs_late", "the job ended and its manifest does not show yet")
		}
		return true, e.block(ctx, v, OutputsLate, "the job exited 0 and its manifest does not show up. Next: slurmgate collect once the filesystem is well, or slurmgate cancel")
	}
	if err != nil {
		return false, err
	}
	m, err := ParseManifest(data)
	if err != nil {
		return reject(EndedOutputs, "OUTPUT-MANIFEST", err.Error())
	}
	seen := map[string]ManifestEntry{}
	for _, entry := range m.Entries {
		seen[entry.Relpath] = entry
	}
	limit := e.cfg.OutputBytes
	if p.Tool != nil && p.Tool.MaxOutputBytes > 0 {
		limit = min(limit, p.Tool.MaxOutputBytes)
	}
	d.output = map[string]outputDoc{}
	left := limit
	var declared []string
	for _, out := range p.Spec.IO.Outputs {
		declared = append(declared, out.SrcRelpath)
		entry, ok := seen[out.SrcRelpath]
		switch {
		case !ok, entry.Kind == "missing":
			return reject(EndedOutputs, "OUTPUT-MISSING", fmt.Sprintf("the program exited 0 and did not write %s (role %s)", out.SrcRelpath, out.Role))
		case entry.Kind == "irregular":
			return reject(EndedOutputs, "OUTPUT-IRREGULAR", fmt.Sprintf("%s (role %s) is not a plain file of its own: a link, a pipe, a folder, or a file with a second name", out.SrcRelpath, out.Role))
		case entry.Size > left:
			return reject(EndedOutputs, "OUTPUT-SIZE", fmt.Sprintf("%s (role %s) has %d bytes; the outputs together may have %d", out.SrcRelpath, out.Role, entry.Size, limit))
		}
		left -= entry.Size
		sum, size, head, err := e.storeOutput(ctx, v, out, entry.Size)
		switch {
		case err == nil && sum == entry.SHA256 && size == entry.Size:
		case fault.Is(err, fault.Transport), ctx.Err() != nil:
			return true, err
		case e.mayCome(v):
			return true, e.note(ctx, v, "outputs_late", fmt.Sprintf("%s does not show the manifest's bytes yet", out.SrcRelpath))
		case err != nil:
			return reject(EndedOutputs, fault.CodeOf(err), fmt.Sprintf("%s (role %s): %v", out.SrcRelpath, out.Role, err))
		default:
			return reject(EndedOutputs, "OUTPUT-CHANGED", fmt.Sprintf("%s (role %s) is not what the job's manifest recorded", out.SrcRelpath, out.Role))
		}
		a, err := e.artifact(v, sum, size, out.Type, out.Label)
		if err != nil {
			return false, err
		}
		d.artifacts = append(d.artifacts, a)
		d.outputs = append(d.outputs, Link{Role: out.Role, ArtifactID: a.ID, Relpath: out.SrcRelpath})
		doc := outputDoc{ArtifactID: a.ID, Type: a.Type, Label: a.Label, SizeBytes: size, ChecksumSHA256: sum}
		if out.Type == outputTypeJSON && size <= maxValueBytes {
			if plan.Check(head) == nil {
				doc.Value = json.RawMessage(head)
			}
		}
		d.output[out.Role] = doc
	}
	return e.checkContract(ctx, v, p, d, declared)
}

// checkContract holds the outputs against the tool's schema and looks for undeclared files.
func (e *Engine) checkContract(ctx context.Context, v View, p plan.Params, d *verdict, declared []string) (bool, error) {
	extra, err := e.Control.Undeclared(ctx, v.Run.ID, v.Attempt.N, declared, maxUndeclared)
	if err != nil {
		return false, err
	}
	if len(extra) > 0 {
		msg := "files in out/ that the tool does not declare were not collected: " + strings.Join(extra, ", ")
		if p.Tool != nil && p.Tool.StrictOutputs {
			d.ending, d.reason, d.detail, d.artifacts, d.outputs, d.output = EndedOutputs, "OUTPUT-UNDECLARED", msg, nil, nil, nil
			return false, nil
		}
		d.warnings = append(d.warnings, msg)
	}
	doc, err := plan.Marshal(d.output)
	if err != nil {
		return false, err
	}
	if err := e.Contracts.CheckOutput(v.Run.ToolID, doc); err != nil {
		d.ending, d.reason, d.detail, d.artifacts, d.outputs, d.output = EndedContract, fault.CodeOf(err), err.Error(), nil, nil, nil
	}
	return false, nil
}

// storeOutput copies one output into the store. head holds the bytes of a small JSON output.
func (e *Engine) storeOutput(ctx context.Context, v View, out plan.Output, want int64) (sum string, size int64, head []byte, err error) {
	f, _, err := e.Control.OpenOutput(ctx, v.Run.ID, v.Attempt.N, out.SrcRelpath)
	if err != nil {
		return "", 0, nil, err
	}
	defer f.Close()
	var r io.Reader = f
	keep := &headWriter{}
	if out.Type == outputTypeJSON {
		r = io.TeeReader(f, keep)
	}
	sum, size, err = e.Objects.Put(ctx, r, want)
	return sum, size, keep.b, err
}

// headWriter keeps the first bytes and counts none of the rest.
type headWriter struct{ b []byte }

func (h *headWriter) Write(p []byte) (int, error) {
	if room := maxValueBytes - len(h.b); room > 0 {
		h.b = append(h.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func usage(x Exit) json.RawMessage {
	b, err := plan.Marshal(map[string]any{"elapsed_seconds": x.Elapsed, "user_seconds": x.User, "system_seconds": x.Sys, "max_rss_kib": x.MaxRSS, "node": x.Node})
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
