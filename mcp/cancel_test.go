package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// A request that the client takes back is not waited for at the end of the input.
func TestTakenBackAtTheEnd(t *testing.T) {
	w := newWorld()
	reached := make(chan struct{})
	w.answers["artifact.get"] = func(ctx context.Context, _ json.RawMessage) (any, error) {
		close(reached)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	in, feed := io.Pipe()
	var out strings.Builder
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- Serve(t.Context(), w.server(), in, &out) }()
	fmt.Fprintln(feed, initialize)
	fmt.Fprintln(feed, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(feed, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"artifact_get","arguments":{}}}`)
	<-reached
	fmt.Fprintln(feed, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	feed.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > settleTime/3 {
		t.Errorf("it took %s; out: %s", d, out.String())
	}
}
