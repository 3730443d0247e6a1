package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/gate"
)

// movedEvery is how often a client is notified of the bytes that a call moves.
const movedEvery = 500 * time.Millisecond

// moving is the progress of a call, from call.progress.
type moving struct {
	What           string `json:"what"`
	DoneBytes      int64  `json:"done_bytes"`
	TotalBytes     int64  `json:"total_bytes"`
	BytesPerSecond int64  `json:"bytes_per_second"`
	SecondsLeft    *int64 `json:"seconds_left"`
}

// asking is the operation that reports the progress of a call. No chat is offered it: the server calls it.
const asking = "call.progress"

// moved returns the progress of a call; nil: it moves nothing, or its progress is unknown.
func (s *server) moved(ctx context.Context, toolCallID string) *moving {
	asks := s.now().asks
	if asks == nil {
		return nil
	}
	args, err := json.Marshal(map[string]string{"tool_call_id": toolCallID})
	if err != nil {
		return nil
	}
	res, err := s.cfg.Gateway.Call(ctx, gate.NewRequest(asks.ID, asks.Version, args))
	var p struct {
		Moving *moving `json:"moving"`
	}
	if err != nil || res.Error != nil || json.Unmarshal(res.Result, &p) != nil {
		return nil
	}
	return p.Moving
}

func (m moving) text() string {
	text := fmt.Sprintf("%s: %d of %d bytes, %d bytes/s", m.What, m.DoneBytes, m.TotalBytes, m.BytesPerSecond)
	if m.SecondsLeft != nil {
		text += fmt.Sprintf(", %d s left", *m.SecondsLeft)
	}
	return text
}

// progress notifies a client that asked for it while its call is open: of the bytes that the call copies, of the files that are imported
// for it, or of the seconds that it has waited. The returned function ends it.
func (s *server) progress(ctx context.Context, t gate.Tool, r *sdk.CallToolRequest, req gate.Request, f *files) (stop func()) {
	token := r.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	every := progressEvery
	if t.Moves || len(f.ids) > 0 {
		every = movedEvery
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last, n := 0.0, 1; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			var p *sdk.ProgressNotificationParams
			switch {
			case len(f.ids) > 0:
				p = s.far(ctx, f)
			case !t.Moves:
				p = s.waited(ctx, t, req, n*int(progressEvery/time.Second))
			default:
				if m := s.moved(ctx, req.ToolCallID); m != nil {
					p = &sdk.ProgressNotificationParams{Progress: float64(m.DoneBytes), Total: float64(m.TotalBytes), Message: m.text()}
				}
			}
			if p == nil || p.Progress <= last { // the protocol requires that it grows
				continue
			}
			last, p.ProgressToken = p.Progress, token
			_ = r.Session.NotifyProgress(ctx, p)
		}
	}()
	return func() { cancel(); <-done }
}

// waited returns the progress of a wait, in seconds, with what moves meanwhile of the run that is waited for.
func (s *server) waited(ctx context.Context, t gate.Tool, req gate.Request, seconds int) *sdk.ProgressNotificationParams {
	var a struct {
		RunID       string `json:"run_id"`
		WaitSeconds int    `json:"wait_seconds"`
	}
	_ = json.Unmarshal(req.Args, &a) // what cannot be read the gate refuses
	out := &sdk.ProgressNotificationParams{Progress: float64(seconds), Total: float64(a.WaitSeconds), Message: t.Name() + " is still waiting"}
	var run struct {
		Moving *moving `json:"moving"`
	}
	if a.RunID != "" && s.call(ctx, "slurm.job.get", map[string]any{"run_id": a.RunID}, &run) == nil && run.Moving != nil {
		out.Message = run.Moving.text()
	}
	return out
}
