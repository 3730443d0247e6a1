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
	"slurmgate/plan"
	"slurmgate/run"
)

// exporter collects the record of a run.
type exporter struct {
	*Gateway
	v    run.View
	p    plan.Params
	hide func(string) string // names for the site's folders
	rec  export.Record
}

func (x *exporter) collect(ctx context.Context) (err error) {
	r := x.v.Run
	if x.rec.Params, err = x.Ledger.Params(ctx, r.ParamsHash); err != nil {
		return err
	}
	if x.p, err = plan.DecodeParams(x.rec.Params); err != nil {
		return err
	}
	x.rec.Run = export.Run{RunID: r.ID, ToolID: r.ToolID, ToolName: r.ToolName, ToolVersion: r.ToolVersion, ContractVersion: r.ContractVersion,
		PolicyHash: r.PolicyHash, ParamsHash: r.ParamsHash, PlanHash: r.PlanHash, PackHash: r.PackHash, Project: r.ProjectID, Site: r.Site,
		ExecutedAs: r.ExecutedAs, Principal: r.Principal.Name, State: string(r.State), Reason: r.Reason, Attempt: r.AttemptN,
		CreatedAt: r.CreatedAt, StartedAt: x.v.Attempt.StartedAt, FinishedAt: *r.FinishedAt, Kind: export.KindSlurm,
		Image:  x.p.Spec.Execution.Container.Image,
		Inputs: []export.Artifact{}, Outputs: []export.Artifact{}, Logs: []export.Artifact{}, Missing: []string{}, Redacted: []string{}}
	switch {
	case x.p.Docker:
		x.rec.Run.Kind = export.KindDocker
	case x.p.Worker != nil:
		x.rec.Run.Kind = export.KindWorker
		end, err := run.EndOf(x.v)
		if err != nil {
			return err
		}
		if end.OutputRef == "" && end.Error == nil {
			x.rec.Output = end.Output
		}
	}
	if x.rec.Run.Warnings, err = x.forgeable(ctx, r); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{x.script, x.documents, x.artifacts, x.attempts, x.events, x.receipt} {
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

// clean is a text without secrets and without the site's folders.
func (x *exporter) clean(s string) string { return x.hide(x.scanner().Redact(s)) }

// runFolder is where a job script has the run's folder, as the shell word that it is there.
var runFolder = regexp.MustCompile(`(?m)^run='?(/.+)/run_[0-9A-Z]{26}'?$`)

// script takes the job script, in which names stand for folders. The runs folder is read from it: where it ends with {user} the site file
// does not have it as it is.
func (x *exporter) script(ctx context.Context) error {
	if x.v.Run.ScriptArtifactID == "" {
		return nil
	}
	a, err := x.Ledger.Artifact(ctx, x.v.Run.ScriptArtifactID)
	if fault.Is(err, fault.NotFound) {
		x.missing("job-script.sh", err)
		return nil
	}
	if err != nil {
		return err
	}
	data, err := x.bytesOf(a.SHA256)
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

// missing notes a document that the gateway no longer has.
func (x *exporter) missing(file string, err error) {
	x.rec.Run.Missing = append(x.rec.Run.Missing, file+" is not in the archive: "+x.hide(fault.Prose(err)))
}

// documents takes policy and pack.
func (x *exporter) documents(ctx context.Context) error {
	for _, d := range []struct {
		file, hash string
		read       func(context.Context, string) (json.RawMessage, error)
		to         *[]byte
	}{{"policy.json", x.v.Run.PolicyHash, x.Ledger.Policy, &x.rec.Policy}, {"pack.json", x.v.Run.PackHash, x.Ledger.Pack, &x.rec.Pack}} {
		if d.hash == "" {
			continue
		}
		doc, err := d.read(ctx, d.hash)
		switch {
		case fault.Is(err, fault.NotFound):
			x.missing(d.file, err)
		case err != nil:
			return err
		default:
			*d.to = doc
		}
	}
	var pack struct {
		Image string `json:"image"`
	}
	if err := json.Unmarshal(x.rec.Pack, &pack); err == nil {
		x.rec.Run.ImageName = pack.Image
	}
	return nil
}

// artifacts takes the inputs, the declared outputs and the logs.
func (x *exporter) artifacts(ctx context.Context) error {
	inputs, err := x.Ledger.Inputs(ctx, x.v.Run.ID)
	if err != nil {
		return err
	}
	outputs, err := x.Ledger.Outputs(ctx, x.v.Run.ID)
	if err != nil {
		return err
	}
	for _, in := range inputs {
		x.rec.Run.Inputs = append(x.rec.Run.Inputs, x.artifact(in))
	}
	for _, o := range outputs {
		switch {
		case x.p.Worker != nil && o.Role == run.OutputRole:
			o.Relpath = "out/output.json" // a worker has no workspace
			x.rec.Run.Outputs = append(x.rec.Run.Outputs, x.artifact(o))
		case o.Relpath != "":
			x.rec.Run.Outputs = append(x.rec.Run.Outputs, x.artifact(o))
		case slices.Contains([]string{"log", "stdout", "stderr"}, o.Role):
			if err := x.log(o); err != nil {
				return err
			}
		}
	}
	return x.references(ctx, inputs)
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

// log takes a log, without secrets and paths.
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

// attempts takes how the attempts ended.
func (x *exporter) attempts(ctx context.Context) error {
	list, err := x.Ledger.Attempts(ctx, x.v.Run.ID)
	if err != nil {
		return err
	}
	for _, a := range list {
		d := export.Attempt{Attempt: a.N, Ending: string(a.Ending), ExitCode: a.ExitCode, SlurmState: a.SlurmState, Node: a.Node,
			Resources: a.Resources, CreatedAt: a.CreatedAt, StartedAt: a.StartedAt, EndedAt: a.EndedAt, Usage: a.Usage}
		if d.Usage == nil {
			d.Usage = json.RawMessage("null")
		}
		if a.Token != "" {
			d.JobName = run.JobName(a.RunID, a.N, a.Token)
		}
		if a.N == x.v.Attempt.N {
			d.JobID, d.Cluster = x.v.Submission.JobID, x.v.Submission.Cluster
		}
		x.rec.Exit.Attempts = append(x.rec.Exit.Attempts, d)
	}
	return nil
}

// receipt takes the receipt of the run's end, and the key that it names.
func (x *exporter) receipt(ctx context.Context) error {
	r, err := x.Ledger.Receipt(ctx, x.v.Run.ID, x.v.Run.AttemptN)
	if fault.Is(err, fault.NotFound) {
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
	x.rec.Receipt = r.Envelope
	x.rec.Keys, err = export.Keys(slices.DeleteFunc(keys, func(k receipt.Key) bool { return k.ID != r.KeyID }))
	return err
}

// events takes the history up to the run's end.
func (x *exporter) events(ctx context.Context) error {
	all, err := x.Ledger.Events(ctx, x.v.Run.ID)
	if err != nil {
		return err
	}
	var end int64
	for _, e := range all {
		if e.Type == "run."+string(x.v.Run.State) {
			end = e.Seq
		}
	}
	chained, err := x.Ledger.History(ctx, x.v.Run.ID, end)
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
