package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// takeOutputs checks every declared output against the manifest and stores the bytes. It may ask for
// another round (later), or turn the verdict into a failure.
func (e *Engine) takeOutputs(ctx context.Context, v View, p plan.Params, job Holder, d *verdict) (later bool, err error) {
	reject := func(ending Ending, reason, detail string) (bool, error) {
		d.ending, d.reason, d.detail, d.artifacts, d.outputs, d.output = ending, reason, detail, nil, nil, nil
		return false, nil
	}
	data, err := e.Control.ReadControl(ctx, v.Run.ID, v.Attempt.N, ManifestFile, maxControlBytes, false)
	if fault.Is(err, fault.NotFound) {
		if e.mayCome(v) {
			return true, e.note(ctx, v, "outputs_late", "the job has ended, but its manifest is not visible yet")
		}
		if v.Run.CancelAt != nil {
			return reject(EndedCancelled, "", "given up: the outputs never appeared")
		}
		return true, e.block(ctx, v, OutputsLate, "the job exited 0, but its manifest is not visible on the shared filesystem. "+
			"The run continues by itself when the manifest appears. Next: slurmgate recollect "+v.Run.ID+" to check now, or slurmgate cancel "+v.Run.ID)
	}
	if err != nil {
		return false, err
	}
	m, err := ParseManifest(data)
	if err == nil && m.Holder != job {
		err = broken("the manifest and the exit file must be from the same execution")
	}
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
	left, values := limit, maxValuesBytes
	var declared []string
	for _, out := range p.Spec.IO.Outputs {
		declared = append(declared, out.SrcRelpath)
		entry, ok := seen[out.SrcRelpath]
		switch {
		case !ok, entry.Kind == "missing":
			return reject(EndedOutputs, "OUTPUT-MISSING", fmt.Sprintf("the program exited 0 but did not write %s (role %s)", out.SrcRelpath, out.Role))
		case entry.Kind == "irregular":
			return reject(EndedOutputs, "OUTPUT-IRREGULAR", fmt.Sprintf("%s (role %s) is not a plain file: it is a link, a pipe, a folder, a file with a second hard link, or unreadable", out.SrcRelpath, out.Role))
		case entry.Size > left:
			return reject(EndedOutputs, "OUTPUT-SIZE", fmt.Sprintf("%s (role %s) has %d bytes; the limit for all outputs together is %d", out.SrcRelpath, out.Role, entry.Size, limit))
		}
		left -= entry.Size
		sum, size, head, err := e.storeOutput(ctx, v, out, entry.Size)
		switch {
		case err == nil && sum == entry.SHA256 && size == entry.Size:
		case fault.Is(err, fault.Transport), ctx.Err() != nil:
			return true, err
		case e.mayCome(v):
			return true, e.note(ctx, v, "outputs_late", fmt.Sprintf("%s does not have the manifest's checksum yet", out.SrcRelpath))
		case err != nil:
			return reject(EndedOutputs, fault.CodeOf(err), fmt.Sprintf("%s (role %s): %v", out.SrcRelpath, out.Role, err))
		default:
			return reject(EndedOutputs, "OUTPUT-CHANGED", fmt.Sprintf("%s (role %s) does not match the job's manifest", out.SrcRelpath, out.Role))
		}
		a, err := e.artifact(v, sum, size, out.Type, out.Label)
		if err != nil {
			return false, err
		}
		d.artifacts = append(d.artifacts, a)
		d.outputs = append(d.outputs, Link{Role: out.Role, ArtifactID: a.ID, Relpath: out.SrcRelpath})
		doc := outputDoc{ArtifactID: a.ID, Type: a.Type, Label: a.Label, SizeBytes: size, ChecksumSHA256: sum}
		if out.Type == outputTypeJSON && len(head) <= values && fitsInResult(head, size) {
			doc.Value = json.RawMessage(head)
			values -= len(head)
		}
		d.output[out.Role] = doc
	}
	return e.checkContract(ctx, v, p, d, declared)
}

// checkContract checks the outputs against the tool's schema and looks for undeclared files.
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
	contract, unchecked, err := e.contract(ctx, v)
	switch {
	case err != nil:
		return false, err
	case unchecked != "":
		d.warnings = append(d.warnings, unchecked)
	case contract != nil:
		if err := contract.CheckOutput(doc); err != nil {
			d.ending, d.reason, d.detail, d.artifacts, d.outputs, d.output = EndedContract, fault.CodeOf(err), err.Error(), nil, nil, nil
		}
	}
	return false, nil
}

// contract is that of the pack the run was planned with, nil for a plan that was submitted directly. unchecked says why there is none although
// there should be.
func (e *Engine) contract(ctx context.Context, v View) (c Contract, unchecked string, err error) {
	if v.Run.PackHash == "" {
		return nil, "", nil
	}
	c, err = e.Contracts.Contract(ctx, v.Run.PackHash)
	const what = "the outputs were not checked against the tool's output schema: "
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, what + "the run was planned with another version of the pack (" + v.Run.PackHash + "), which this gateway did not store then", nil
	case fault.Is(err, fault.Validation):
		return nil, what + err.Error(), nil
	}
	return c, "", err
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

// headWriter stores the first bytes and drops the rest.
type headWriter struct{ b []byte }

func (h *headWriter) Write(p []byte) (int, error) {
	if room := maxValueBytes - len(h.b); room > 0 {
		h.b = append(h.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// fitsInResult reports whether a JSON output can be nested in result_json, some levels deeper than in its own file.
func fitsInResult(head []byte, size int64) bool {
	return size <= maxValueBytes && plan.Check(slices.Concat([]byte("[[[["), head, []byte("]]]]"))) == nil && plan.Check(head) == nil
}
