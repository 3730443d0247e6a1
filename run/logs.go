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
	"slurmgate/visible"
)

// takeLogs creates the log artifacts of an ended attempt: log (everything, with headings), and stdout and stderr if the
// program wrote any. These roles are the gateway's own (ABI-16).
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
		data, err := ReadControl(ctx, e.Workspace, v.Run.ID, v.Attempt.N, part.file, e.cfg.LogBytes+margin, true)
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

// lastBytes returns at most the last limit bytes of a log, unchanged. A log that is cut begins with a whole line, and
// never within a secret: half of one would not be found later.
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

// LogsAnswer is the end of one stream, or the part that follows an earlier answer.
type LogsAnswer struct {
	CallRunID
	TargetRunID string `json:"target_run_id"`
	Stream      string `json:"stream" enum:"stdout,stderr,log"`
	State       State  `json:"state"`
	Attempt     int    `json:"attempt"` // the attempt that wrote the stream; each stream begins with byte 0
	Text        string `json:"text"`
	Truncated   bool   `json:"truncated"` // text before this part is left out
	NextByte    *int64 `json:"next_byte"` // where the next part begins; null if the call asked for no part
	Final       bool   `json:"final"`     // nothing will be added
}

// LogPart asks for a part of a stream.
type LogPart struct {
	Limit int64  // bytes, at most
	From  *int64 // the first byte; a negative number counts from the end; nil: the end of the stream
}

// Logs reads the end of a stream: of a finished run from its artifact, of a live one from its workspace. A part that
// begins at a byte is read from the workspace as long as that exists, and ends with a whole line as long as more may
// come.
func (e *Engine) Logs(ctx context.Context, runID, stream string, part LogPart) (LogsAnswer, error) {
	v, err := e.Store.View(ctx, runID)
	if err == nil && e.calls != nil {
		err = fault.New(fault.NotFound, "no_log", "the run is a call of a service worker, which writes its own log; the gateway has none of it").
			WithSteps(fault.Do("run.show", "run_id", runID))
	}
	if err != nil {
		return LogsAnswer{}, err
	}
	v, outputs, err := e.read(ctx, v, 0)
	if err != nil {
		return LogsAnswer{}, err
	}
	a := LogsAnswer{TargetRunID: v.Run.ID, Stream: stream, State: v.Run.State, Attempt: v.Attempt.N, Final: v.Run.State.Terminal()}
	if part.From != nil {
		return a, e.logFrom(ctx, v, *part.From, part.Limit, &a)
	}
	limit := part.Limit
	var data []byte
	if i := slices.IndexFunc(outputs, func(o Output) bool { return o.Role == stream }); i >= 0 {
		data, err = e.storedTail(ctx, outputs[i].Artifact.SHA256, limit+margin)
	} else {
		data, err = ReadControl(ctx, e.Workspace, v.Run.ID, v.Attempt.N, streamFiles[stream], limit+margin, true)
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
	}
	if err != nil {
		return LogsAnswer{}, err
	}
	text := string(data)
	at := visible.Tail(text, int(limit))
	a.Text, a.Truncated = strings.ToValidUTF8(e.cfg.Secrets.Tail(text, len(text)-at), "\uFFFD"), at > 0
	return a, nil
}

// streamFiles has the control files of the streams.
var streamFiles = map[string]string{"stdout": StdoutFile, "stderr": StderrFile, "log": JobLogFile}

// logFrom reads a part of a stream from the workspace. Without a file the part is empty. The text before the part is
// searched for secrets that reach into it, and an incomplete line is left to the next part, so that half a secret is
// never shown.
func (e *Engine) logFrom(ctx context.Context, v View, from, limit int64, a *LogsAnswer) error {
	before := min(from, margin)
	if from < 0 {
		from, before = max(from, -limit), margin
	}
	p, err := e.Workspace.ReadControlFrom(ctx, v.Run.ID, v.Attempt.N, streamFiles[a.Stream], from-before, limit+before)
	if fault.Is(err, fault.NotFound) {
		a.NextByte = new(max(0, from))
		return nil
	}
	if err != nil {
		return err
	}
	size := int64(len(p.Data))
	begin := min(size, max(0, from-p.From))
	if from < 0 { // near the beginning of the file, fewer bytes precede the part
		begin = max(0, size+from)
	}
	end := size
	if last := int64(bytes.LastIndexByte(p.Data, '\n')) + 1; !a.Final || size >= limit+before {
		if end = max(begin, last); end == begin && size-begin >= limit {
			end = size // a line longer than the part
		}
	}
	a.Final = a.Final && end == size && size < limit+before
	a.Text = strings.ToValidUTF8(e.cfg.Secrets.Part(string(p.Data), int(begin), int(end)), "\uFFFD")
	a.NextByte = new(p.From + end)
	return nil
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
