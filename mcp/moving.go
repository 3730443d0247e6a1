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

// movesBytes are the tools whose calls may take long because of the bytes they copy or hash.
var movesBytes = map[string]bool{"artifact.import": true, "artifact.verify": true}

// moving is how far a call is, as call.progress says.
type moving struct {
	What           string `json:"what"`
	DoneBytes      int64  `json:"done_bytes"`
	TotalBytes     int64  `json:"total_bytes"`
	BytesPerSecond int64  `json:"bytes_per_second"`
	SecondsLeft    *int64 `json:"seconds_left"`
}

// moved asks how far a call is; nil: it moves nothing, or nobody can say.
func (s *server) moved(ctx context.Context, t gate.Tool, toolCallID string) *moving {
	asks, ok := s.now().tools["call_progress"]
	if !movesBytes[t.ID] || !ok {
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

func (m moving) params(token any) *sdk.ProgressNotificationParams {
	text := fmt.Sprintf("%s: %d of %d bytes, %d bytes/s", m.What, m.DoneBytes, m.TotalBytes, m.BytesPerSecond)
	if m.SecondsLeft != nil {
		text += fmt.Sprintf(", %d s left", *m.SecondsLeft)
	}
	return &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(m.DoneBytes), Total: float64(m.TotalBytes), Message: text}
}
