package run

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// takeLogs creates the log artifacts of an ended attempt: log (everything, with headings), and stdout and
// stderr where the program wrote any. Their roles are the gateway's own (ABI-16).
func (e *Engine) takeLogs(ctx context.Context, v View, d *verdict) error {
	var log bytes.Buffer
	fmt.Fprintf(&log, "run %s attempt %d job %s node %s\nslurm state %s, ended %s\n", v.Run.ID, v.Attempt.N, v.Submission.JobID,
		v.Attempt.Node, cmp.Or(v.Attempt.SlurmState, "unknown"), d.ending)
	add := func(role string, data []byte) error {
		sum, size, err := e.Objects.Put(ctx, bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return err
		}
		a, err := e.artifact(v, sum, size, "LOG", role)
		if err != nil {
			return err
		}
		d.artifacts = append(d.artifacts, a)
		d.outputs = append(d.outputs, Link{Role: role, ArtifactID: a.ID})
		if role == logArtifactLabel {
			d.logID = a.ID
		}
		return nil
	}
	for _, part := range []struct{ file, title, role string }{{JobLogFile, "job script", ""}, {StderrFile, "standard error", "stderr"},
		{StdoutFile, "standard output", "stdout"}} {
		data, err := e.Workspace.ReadControl(ctx, v.Run.ID, v.Attempt.N, part.file, e.cfg.LogBytes+margin, true)
		if fault.Is(err, fault.NotFound) || err == nil && len(data) == 0 {
			continue
		}
		if err != nil {
			return err
		}
		data = e.lastBytes(data, e.cfg.LogBytes)
		fmt.Fprintf(&log, "\n--- %s (the last %d bytes at most)\n%s", part.title, e.cfg.LogBytes, data)
		if part.role != "" {
			if err := add(part.role, data); err != nil {
				return err
			}
		}
	}
	if err := add(logArtifactLabel, log.Bytes()); err != nil {
		return err
	}
	if v.Run.ScriptArtifactID != "" {
		d.outputs = append(d.outputs, Link{Role: "slurm_script", ArtifactID: v.Run.ScriptArtifactID})
	}
	return nil
}

// lastBytes gives at most the last bytes of a log as they are. A log that is cut begins with a line, and not within a secret: half of one
// would not be found later.
func (e *Engine) lastBytes(data []byte, limit int64) []byte {
	if int64(len(data)) <= limit {
		return data
	}
	at := e.cfg.Secrets.Outside(string(data), len(data)-int(limit))
	if n := bytes.IndexByte(data[at:], '\n'); n >= 0 && n < margin {
		at += n + 1
	}
	return data[at:]
}

// LogsAnswer is the end of one stream.
type LogsAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	TargetRunID     string `json:"target_run_id"`
	Stream          string `json:"stream"`
	State           State  `json:"state"`
	Text            string `json:"text"`
	Final           bool   `json:"final"` // nothing will be added
}

// Logs reads the end of a stream: of a finished run from its artifact, of a live one from its workspace.
func (e *Engine) Logs(ctx context.Context, runID, stream string, limit int64, which Identify) (LogsAnswer, error) {
	v, err := e.Store.View(ctx, runID)
	if err == nil && e.calls != nil {
		err = fault.New(fault.NotFound, "no_log", "the run is a call of a service worker, which writes its own log; the gateway has none of it").
			WithSteps(fault.Do("run.show", "run_id", runID))
	}
	if err != nil {
		return LogsAnswer{}, err
	}
	v, outputs, params, err := e.read(ctx, v, 0)
	if err != nil {
		return LogsAnswer{}, err
	}
	a := LogsAnswer{TargetRunID: runID, Stream: stream, State: v.Run.State, Final: v.Run.State.Terminal()}
	var data []byte
	if i := slices.IndexFunc(outputs, func(o Output) bool { return o.Role == stream }); i >= 0 {
		data, err = e.storedTail(ctx, outputs[i].Artifact.SHA256, limit+margin)
	} else {
		file := map[string]string{"stdout": StdoutFile, "stderr": StderrFile, "log": JobLogFile}[stream]
		if data, err = e.Workspace.ReadControl(ctx, runID, v.Attempt.N, file, limit+margin, true); fault.Is(err, fault.NotFound) {
			err = nil
		}
	}
	if err != nil {
		return LogsAnswer{}, err
	}
	a.Text = strings.ToValidUTF8(e.cfg.Secrets.Tail(string(data), int(limit)), "\uFFFD")
	// A running job writes its log without an event in the ledger: what was read is part of the snapshot.
	params["stream"], params["log_hash"] = stream, plan.Hash(data[max(0, len(data)-int(limit)):])
	a.ProvenanceRunID, err = which(ctx, params)
	return a, err
}

func (e *Engine) storedTail(ctx context.Context, sha256 string, limit int64) ([]byte, error) {
	r, size, err := e.Objects.Reader(ctx, sha256)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, max(0, size-limit)); err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
