package app

import (
	"context"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"

	"slurmgate/export"
	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// exporter collects the record of a run.
type exporter struct {
	*Gateway
	of   ledger.RunRecord
	p    plan.Params
	hide func(string) string // replaces the site's folders by names
	rec  export.Record

	signed receipt.Statement // the statement of the receipt
}

func (x *exporter) collect(ctx context.Context) (err error) {
	r := x.of.Run
	x.rec.Params = x.of.Params
	if x.p, err = plan.DecodeParams(x.rec.Params); err != nil {
		return err
	}
	x.rec.Run = export.Run{RunID: r.ID, ToolID: r.ToolID, ToolName: r.ToolName, ToolVersion: r.ToolVersion, ContractVersion: r.ContractVersion,
		PolicyHash: r.PolicyHash, ParamsHash: r.ParamsHash, PlanHash: r.PlanHash, PackHash: r.PackHash, Project: r.ProjectID, Site: r.Site,
		ExecutedAs: r.ExecutedAs, Principal: r.Principal.Name, State: string(r.State), Reason: r.Reason, Attempt: r.AttemptN,
		CreatedAt: r.CreatedAt, StartedAt: x.of.Attempt.StartedAt, FinishedAt: *r.FinishedAt, Image: x.p.Spec.Execution.Container.Image,
		Rows: []export.Row{}, Inputs: []export.Artifact{}, Outputs: []export.Artifact{}, Logs: []export.Artifact{},
		Missing: []string{}, Redacted: []string{}, Warnings: forgeable(x.of)}
	if x.p.Worker != nil {
		end, err := run.EndOf(x.of.View)
		if err != nil {
			return err
		}
		if end.OutputRef == "" && end.Error == nil {
			x.rec.Output = end.Output
		}
	}
	for _, part := range []func(context.Context) error{x.script, x.documents, x.receipt, x.artifacts, x.events} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	x.rec.Run.Detail = x.clean(run.PlainDetail(r.Detail))
	for i, w := range x.rec.Run.Warnings {
		x.rec.Run.Warnings[i] = x.clean(w)
	}
	return nil
}

// clean removes secrets and the site's folders from a text.
func (x *exporter) clean(s string) string { return x.hide(x.scanner().Redact(s)) }

// runFolder matches the line of a job script that sets the run's folder, as a shell word.
var runFolder = regexp.MustCompile(`(?m)^run='?(/.+)/run_[0-9A-Z]{26}'?$`)

// script adds the job script, with names in place of folders. It reads the runs folder from the script: where that
// ends with {user} the site file has only the pattern.
func (x *exporter) script(ctx context.Context) error {
	if x.of.Run.ScriptArtifactID == "" {
		return nil
	}
	a, err := x.Ledger.Artifact(ctx, x.of.Run.ScriptArtifactID)
	var data []byte
	if err == nil {
		data, err = x.bytesOf(a.SHA256)
	}
	if lost(err) {
		x.missing("job-script.sh", err)
		return nil
	}
	if err != nil {
		return err
	}
	if m := runFolder.FindSubmatch(data); m != nil {
		folder, named := string(m[1]), x.hide
		x.hide = func(s string) string { return named(strings.ReplaceAll(s, folder+"/", "[runs_dir]/")) }
	}
	text := x.clean(string(data))
	if text != string(data) {
		x.rec.Run.Redacted = append(x.rec.Run.Redacted, "job-script.sh")
	}
	x.rec.Script, x.rec.Run.Script = []byte(text), &export.ScriptNote{ArtifactID: a.ID, SHA256: a.SHA256}
	return nil
}

func (x *exporter) bytesOf(sha256 string) ([]byte, error) {
	f, err := x.Store.Open(sha256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// missing records a document that the gateway no longer has.
func (x *exporter) missing(file string, err error) {
	x.rec.Run.Missing = append(x.rec.Run.Missing, file+" is not in the archive: "+x.hide(fault.Prose(err)))
}

// lost reports whether an error means that the gateway no longer has the data: removed, or erased because it held a
// secret.
func lost(err error) bool { return fault.Is(err, fault.NotFound) || fault.CodeOf(err) == "erased" }

// documents adds policy and pack.
func (x *exporter) documents(ctx context.Context) error {
	for _, d := range []struct {
		file, hash string
		read       func(context.Context, string) (json.RawMessage, error)
		to         *[]byte
	}{{"policy.json", x.of.Run.PolicyHash, x.Ledger.Policy, &x.rec.Policy}, {"pack.json", x.of.Run.PackHash, x.Ledger.Pack, &x.rec.Pack}} {
		if d.hash == "" {
			continue
		}
		doc, err := d.read(ctx, d.hash)
		switch {
		case lost(err):
			x.missing(d.file, err)
		case err != nil:
			return err
		default:
			*d.to = doc
		}
	}
	return nil
}

// artifacts adds the inputs, the declared outputs and the logs.
func (x *exporter) artifacts(ctx context.Context) error {
	for _, in := range x.of.Inputs {
		x.rec.Run.Inputs = append(x.rec.Run.Inputs, x.artifact(in))
	}
	for _, o := range x.of.Outputs {
		switch {
		case x.p.Worker != nil && o.Role == run.OutputRole:
			o.Relpath = "out/output.json" // a worker has no workspace
			x.rec.Run.Outputs = append(x.rec.Run.Outputs, x.artifact(o))
		case o.Relpath != "":
			x.rec.Run.Outputs = append(x.rec.Run.Outputs, x.artifact(o))
		case plan.WasRejected(o.Role):
			x.rec.Run.Rejected = append(x.rec.Run.Rejected, x.artifact(o))
		case slices.Contains([]string{"log", "stdout", "stderr"}, o.Role):
			if err := x.log(o); err != nil {
				return err
			}
		}
	}
	return x.references(ctx)
}

func (x *exporter) artifact(o run.Output) export.Artifact {
	a := export.Artifact{Role: o.Role, Relpath: o.Relpath, ArtifactID: o.ArtifactID, Type: o.Artifact.Type, Label: o.Artifact.Label,
		SizeBytes: o.Artifact.SizeBytes, SHA256: o.Artifact.SHA256}
	switch {
	case o.Artifact.Erased != "":
		a.Why = "it held a secret and was erased (" + o.Artifact.Erased + ")"
	case !x.Store.Has(a.SHA256):
		a.Why = "the gateway no longer has its bytes"
	}
	return a
}

// log adds a log, without secrets and paths.
func (x *exporter) log(o run.Output) error {
	data, err := x.bytesOf(o.Artifact.SHA256)
	if o.Artifact.Erased != "" || fault.Is(err, fault.NotFound) {
		x.rec.Run.Missing = append(x.rec.Run.Missing, "logs/"+o.Role+".txt is not in the archive: the gateway no longer has it")
		return nil
	}
	if err != nil {
		return err
	}
	text := x.clean(string(data))
	if text != string(data) {
		x.rec.Run.Redacted = append(x.rec.Run.Redacted, "logs/"+o.Role+".txt")
	}
	x.rec.Run.Logs = append(x.rec.Run.Logs, x.artifact(o))
	x.rec.Logs = append(x.rec.Logs, export.Log{Role: o.Role, Text: []byte(text)})
	return nil
}

// receipt adds the receipt of the run's end, the key that it names, and its facts about attempts and rows.
func (x *exporter) receipt(ctx context.Context) (err error) {
	if x.rec.Exit, err = x.Ledger.Exit(ctx, x.of.Run.ID, x.of.Run.AttemptN); err != nil {
		return err
	}
	r, err := x.Ledger.Receipt(ctx, x.of.Run.ID, x.of.Run.AttemptN)
	if lost(err) {
		x.missing(export.ReceiptFile, err)
		return nil
	}
	if err != nil {
		return err
	}
	keys, err := x.Ledger.ReceiptKeys(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(keys, func(k receipt.Key) bool { return k.ID == r.KeyID }); i >= 0 {
		x.rec.Key = keys[i]
	}
	x.rec.Receipt = r.Envelope
	x.signed, err = receipt.ParseStatement(r.Statement)
	if fault.CodeOf(err) == receipt.UnknownPredicate { // of an older slurmgate: verify reports that it cannot judge it
		return nil
	}
	x.rec.Exit, x.rec.Run.Rows = x.signed.Predicate.Exit, export.RowsOf(x.signed.Predicate.Rows)
	return err
}

// events adds the history up to the run's end.
func (x *exporter) events(ctx context.Context) error {
	var end int64
	for _, e := range x.of.Events {
		if e.Type == "run."+string(x.of.Run.State) {
			end = e.Seq
		}
	}
	chained, err := x.Ledger.History(ctx, x.of.Run.ID, end)
	if err != nil {
		return err
	}
	for _, e := range chained {
		d := export.Event{Seq: e.Seq, At: e.At.UnixMicro(), Type: e.Type, RunID: e.RunID, Data: e.Data, PrevHash: e.Prev, Hash: e.Hash}
		if e.Erased {
			d.Altered = export.AlteredErased
		}
		if hidden := x.clean(string(e.Data)); hidden != string(e.Data) {
			d.Data, d.Altered = json.RawMessage(hidden), export.AlteredPaths
		}
		x.rec.Events = append(x.rec.Events, d)
	}
	return nil
}
