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
	"slurmgate/plan/tree"
)

// takeOutputs checks every declared output against the manifest and stores the bytes. It may ask for another round
// (later), or turn the verdict into a failure.
func (e *Engine) takeOutputs(ctx context.Context, v View, p plan.Params, job Holder, d *verdict) (later bool, err error) {
	listed, later, err := e.takeManifest(ctx, v, job, d)
	if err != nil || later || d.ending != EndedOK {
		return later, err
	}
	contract, unchecked, err := e.contract(ctx, v)
	if err != nil {
		return false, err
	}
	failure, warnings, err := e.checkStderr(ctx, v, contract)
	switch {
	case err != nil:
		return false, err
	case failure != "":
		d.refuse(EndedContract, "STDERR-FAILURE", failure)
		d.disowned = true
	}
	d.warnings = append(d.warnings, warnings...)
	if unchecked != "" {
		d.warnings = append(d.warnings, unchecked)
	}
	docs := map[string]outputDoc{}
	limit := e.outputLimit(p)
	left, values := limit, maxValuesBytes
	var declared []string
	ctx, end := e.moves.begin(ctx, e.Watch, v.Run.ID, "collecting", sizeOf(listed), e.Now())
	defer end()
	for _, out := range p.Spec.IO.Outputs {
		declared = append(declared, out.SrcRelpath)
		entry := listed[out.SrcRelpath]
		if reason, detail := refuseEntry(out, entry, left, limit); reason != "" {
			d.refuse(EndedOutputs, reason, detail)
			continue
		}
		left -= entry.Size
		before := d.refused
		take := e.takeOutput
		if out.Type == plan.Directory {
			take = e.takeFolder
		}
		got, later, err := take(ctx, v, out, entry, contract, d)
		if err != nil || later {
			return later, err
		}
		if d.refused > before {
			if err := e.keepRefused(v, out, got, d); err != nil {
				return false, err
			}
			continue
		}
		a, err := e.artifact(v, got.sum, got.size, out.Type, out.Label)
		if err != nil {
			return false, err
		}
		d.artifacts = append(d.artifacts, a)
		d.outputs = append(d.outputs, Link{Role: out.Role, ArtifactID: a.ID, Relpath: out.SrcRelpath})
		doc := outputDoc{ArtifactID: a.ID, Type: a.Type, Label: a.Label, SizeBytes: got.size, ChecksumSHA256: got.sum}
		if out.Type == outputTypeJSON && len(got.head) <= values && fitsInResult(got.head, got.size) {
			doc.Value = json.RawMessage(got.head)
			values -= len(got.head)
		}
		docs[out.Role] = doc
	}
	if err := e.checkContract(ctx, v, p, d, declared, docs, contract); err != nil {
		return false, err
	}
	if d.disowned {
		d.doubt(nil)
	}
	return false, nil
}

// keepRefused registers the bytes of a refused output, marked as rejected by its role. Bytes that are incomplete for
// their type are registered without the type, so no tool takes them as input of that type.
func (e *Engine) keepRefused(v View, out plan.Output, got storedOutput, d *verdict) error {
	if got.sum == "" {
		return nil
	}
	typ := out.Type
	if got.changed || got.wrong != nil {
		typ = plan.UnknownType
	}
	a, err := e.artifact(v, got.sum, got.size, typ, out.Label)
	if err == nil {
		d.artifacts = append(d.artifacts, a)
		d.outputs = append(d.outputs, Link{Role: plan.Rejected(out.Role), ArtifactID: a.ID})
	}
	return err
}

func sizeOf(list map[string]ManifestEntry) (bytes int64) {
	for _, entry := range list {
		bytes += max(0, entry.Size)
	}
	return bytes
}

const manifestLate = "the job has ended, but its manifest is not visible yet"

func (e *Engine) readManifest(ctx context.Context, v View) ([]byte, error) {
	return ReadControl(ctx, e.Workspace, v.Run.ID, v.Attempt.N, ManifestFile, maxManifestBytes, false)
}

// takeManifest reads the job's manifest of its outputs, by path. Without a manifest the run waits for it.
func (e *Engine) takeManifest(ctx context.Context, v View, job Holder, d *verdict) (list map[string]ManifestEntry, later bool, err error) {
	data, err := e.readManifest(ctx, v)
	switch late := fault.Is(err, fault.NotFound); {
	case late && e.outputsMayCome(v):
		return nil, true, e.note(ctx, v, string(OutputsLate), manifestLate)
	case late && v.Run.CancelAt != nil:
		d.refuse(EndedCancelled, "", "given up: the outputs never appeared")
		return nil, false, nil
	case late:
		return nil, true, e.block(ctx, v, OutputsLate, "the job exited 0, but its manifest is not visible on the shared filesystem. "+
			"The run continues by itself when the manifest appears")
	case err != nil:
		return nil, false, err
	}
	m, err := ParseManifest(data)
	if err == nil && m.Holder != job {
		err = broken("the manifest and the exit file must be from the same execution")
	}
	if err != nil {
		d.refuse(EndedOutputs, "OUTPUT-MANIFEST", fault.Prose(err))
		return nil, false, nil
	}
	list = map[string]ManifestEntry{}
	for _, entry := range m.Entries {
		list[entry.Relpath] = entry
	}
	return list, false, nil
}

// refuseEntry returns why an output cannot be accepted, by its entry in the manifest; no reason if it can.
func refuseEntry(out plan.Output, entry ManifestEntry, left, limit int64) (reason, detail string) {
	name := fmt.Sprintf("%s (role %s)", out.SrcRelpath, out.Role)
	switch {
	case entry.Kind == "", entry.Kind == "missing":
		return OutputMissing, "the program exited 0 but did not write " + name
	case entry.Kind == "irregular" && out.Type == plan.Directory:
		return OutputIrregular, name + " is not a folder of plain files: it, or something in it, is a link, a pipe, a file with a second hard " +
			"link, unreadable, too deep, or has a name with control characters or backslashes; the job's log names it"
	case entry.Kind == "irregular":
		return OutputIrregular, name + " is not a plain file: it is a link, a pipe, a folder, a file with a second hard link, or unreadable"
	case entry.Kind == "crowded":
		return OutputFiles, fmt.Sprintf("%s has more than %d files", name, tree.MaxFiles)
	case (entry.Kind == "directory") != (out.Type == plan.Directory) && entry.Kind != "oversize":
		return OutputIrregular, name + " is " + entry.Kind + " in the job's manifest"
	case entry.Size > left:
		return OutputSize, fmt.Sprintf("%s has %d bytes; the limit for all outputs together is %d", name, entry.Size, limit)
	case entry.Kind == "oversize": // the limit was raised after the job was sent
		return OutputSize, fmt.Sprintf("%s has %d bytes, more than the limit when the job was submitted; a new attempt uses the limit of today",
			name, entry.Size)
	}
	return "", ""
}

// takeOutput stores one output, if its bytes match the manifest and the contract.
func (e *Engine) takeOutput(ctx context.Context, v View, out plan.Output, entry ManifestEntry, contract Contract, d *verdict) (
	got storedOutput, later bool, err error) {
	name := fmt.Sprintf("%s (role %s)", out.SrcRelpath, out.Role)
	judges := e.lineJudges(contract, out.Role, out.SrcRelpath)
	got, err = e.storeOutput(ctx, v, out, entry.Size, contract, judges[""])
	switch {
	case err == nil && got.sum == entry.SHA256 && got.size == entry.Size:
		if code, what := got.broken(out, contract); code != "" {
			d.refuse(EndedContract, code, name+" "+what)
			break
		}
		judged(judges, func(string) bool { return true }, d)
	case fault.Is(err, fault.Transport), ctx.Err() != nil:
		return got, true, err
	case e.outputsMayCome(v):
		return got, true, e.note(ctx, v, string(OutputsLate), out.SrcRelpath+" does not have the manifest's checksum yet")
	case fault.Is(err, fault.Policy): // the file is longer
		d.refuse(EndedOutputs, "OUTPUT-CHANGED", fmt.Sprintf("%s has more than the %d bytes that it has in the job's manifest", name, entry.Size))
	case err != nil:
		d.refuse(EndedOutputs, fault.CodeOf(err), fmt.Sprintf("%s: %v", name, err))
	default:
		got.changed = true
		d.refuse(EndedOutputs, "OUTPUT-CHANGED", name+" does not match the job's manifest")
	}
	return got, false, nil
}

// maxRefusals bounds the detail about refused outputs, in bytes: no further refusal is added to a longer one.
const maxRefusals = 1000

// refuse turns a success into a failure. The first of several reasons counts; what was collected stays.
func (d *verdict) refuse(ending Ending, reason, detail string) {
	d.refused++
	switch {
	case d.ending == EndedOK:
		d.ending, d.reason, d.detail = ending, reason, detail
	case len(d.detail) < maxRefusals:
		d.detail += "; " + detail
	}
}

// outputLimit returns the bound on all outputs of a run together, in bytes.
func (e *Engine) outputLimit(p plan.Params) int64 {
	if p.Tool != nil && p.Tool.MaxOutputBytes > 0 {
		return min(e.cfg.OutputBytes, p.Tool.MaxOutputBytes)
	}
	return e.cfg.OutputBytes
}

// checkContract checks the outputs against the tool's schema and lists undeclared files.
func (e *Engine) checkContract(ctx context.Context, v View, p plan.Params, d *verdict, declared []string, docs map[string]outputDoc,
	contract Contract) error {
	extra, err := e.Workspace.Undeclared(ctx, v.Run.ID, v.Attempt.N, declared, maxUndeclared)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		msg := "files in out/ that the tool does not declare were not collected: " + strings.Join(extra, ", ")
		if p.Tool != nil && p.Tool.StrictOutputs {
			d.refuse(EndedOutputs, "OUTPUT-UNDECLARED", msg)
			return nil
		}
		d.warnings = append(d.warnings, msg)
	}
	doc, err := plan.Marshal(docs)
	if err != nil {
		return err
	}
	if contract != nil {
		err = contract.CheckOutput(doc)
	}
	roles := rolesIn(fault.ProblemsOf(err), docs)
	switch {
	case err != nil && (d.ending == EndedOK || len(roles) > 0): // otherwise the violation is only that outputs are missing
		d.refuse(EndedContract, fault.CodeOf(err), fault.Prose(err))
		d.doubt(roles)
	case d.ending == EndedOK:
		d.output = docs
	}
	return nil
}

// rolesIn returns the outputs that have problems.
func rolesIn(problems []fault.Problem, docs map[string]outputDoc) (roles []string) {
	for role := range docs {
		if slices.ContainsFunc(problems, func(p fault.Problem) bool { return p.Field == role || strings.HasPrefix(p.Field, role+".") }) {
			roles = append(roles, role)
		}
	}
	return roles
}

// doubt marks collected outputs as rejected: those of the roles, or all.
func (d *verdict) doubt(roles []string) {
	for i := range d.outputs {
		if o := &d.outputs[i]; o.Relpath != "" && (len(roles) == 0 || slices.Contains(roles, o.Role)) {
			o.Role, o.Relpath = plan.Rejected(o.Role), ""
		}
	}
}

// contract returns that of the pack the run was planned with, nil for a plan that was submitted directly. unchecked
// says why it is missing although it should exist.
func (e *Engine) contract(ctx context.Context, v View) (c Contract, unchecked string, err error) {
	if v.Run.PackHash == "" {
		return nil, "", nil
	}
	c, err = e.Contracts.Contract(ctx, v.Run.PackHash)
	const what = "the outputs were not checked against the tool's output schema: "
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, what + "the run was planned with another version of the pack (" + v.Run.PackHash + "), which this gateway did not store " +
			"then", nil
	case fault.Is(err, fault.Validation):
		return nil, what + fault.Prose(err), nil
	}
	return c, "", err
}

// storedOutput is an output whose bytes are stored, with the results of the checks on the way.
type storedOutput struct {
	sum   string
	size  int64
	head  []byte // the first bytes of a JSON output
	wrong error  // why the bytes are not of the type

	changed bool // it does not match the job's manifest
	rows    int64
}

// storeOutput copies one output into the store and checks it against its type on the way.
func (e *Engine) storeOutput(ctx context.Context, v View, out plan.Output, want int64, c Contract, lines *lineJudge) (got storedOutput,
	err error) {
	f, _, err := e.Workspace.OpenOutput(ctx, v.Run.ID, v.Attempt.N, out.SrcRelpath)
	if err != nil {
		return got, err
	}
	defer f.Close()
	keep := &headWriter{}
	least := int64(0)
	if c != nil {
		_, least = c.Least(out.Role)
	}
	if out.Type == outputTypeJSON {
		if keep.room = maxValueBytes; c != nil && c.Asks(out.Role) {
			keep.room = maxAskedBytes
		}
	}
	check := e.Formats.Check(out.Type, least > 0)
	defer check.Close()
	sinks := []io.Writer{keep, check}
	if lines != nil {
		sinks = append(sinks, lines)
	}
	got.sum, got.size, err = e.Objects.Put(ctx, io.TeeReader(f, io.MultiWriter(sinks...)), want)
	if err == nil {
		got.wrong, got.rows, got.head = check.Finish(), check.Lines(), keep.b
	}
	return got, err
}

// broken returns which check an output fails; no code when it passes all.
func (o storedOutput) broken(out plan.Output, c Contract) (code, what string) {
	var bytes, rows int64
	if c != nil {
		bytes, rows = c.Least(out.Role)
	}
	switch {
	case o.size < bytes:
		return "OUTPUT-BYTES", fmt.Sprintf("has %d bytes; the tool's contract requires at least %d", o.size, bytes)
	case o.wrong != nil:
		return "OUTPUT-FORMAT", fmt.Sprintf("is not a whole %s file: %v", out.Type, o.wrong)
	case o.rows < rows:
		return "OUTPUT-ROWS", fmt.Sprintf("has %d lines; the tool's contract requires at least %d", o.rows, rows)
	case c == nil || out.Type != outputTypeJSON || !c.Asks(out.Role):
		return "", ""
	case o.size > maxAskedBytes:
		return "OUTPUT-EXPR", fmt.Sprintf("has %d bytes; the contract's conditions are checked on at most %d", o.size, maxAskedBytes)
	}
	if err := c.CheckValue(out.Role, o.head); err != nil {
		return fault.CodeOf(err), "breaks the tool's contract: " + err.Error()
	}
	return "", ""
}

// headWriter keeps the first bytes, at most room.
type headWriter struct {
	b    []byte
	room int
}

func (h *headWriter) Write(p []byte) (int, error) {
	n := min(h.room, len(p))
	h.b = append(h.b, p[:n]...)
	h.room -= n
	return len(p), nil
}

// fitsInResult reports whether a JSON output can be nested in result_json, some levels deeper than in its own file.
func fitsInResult(head []byte, size int64) bool {
	return size <= maxValueBytes && plan.Check(slices.Concat([]byte("[[[["), head, []byte("]]]]"))) == nil && plan.Check(head) == nil
}
