package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"slurmgate/gate"
)

// A gateway without a port ends the event streams on its socket when it stops: it does not wait for their clients.
func TestStopEndsStreamsOnTheSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := gate.NewRegistry(gate.Tool{ID: "slurm.job.get", Version: "1.0.0", SideEffect: gate.Read, Idempotency: gate.Idempotent,
		Determinism: gate.BestEffort, Availability: gate.OfflineOK,
		Capabilities: []string{gate.CapRead}, Bindings: []gate.Transport{gate.Local}, Input: json.RawMessage(`{"type":"object"}`),
		Handle: func(context.Context, gate.Call) (any, error) { return map[string]any{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	stopping, path := make(chan struct{}), filepath.Join(dir, "s")
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: owner{}, Events: func(context.Context, string, int64) ([]Event, bool,
		error) {
		return []Event{{Seq: 1, Type: "run.created"}}, false, nil
	}}, stopping)
	s, err := Listen(SocketConfig{Path: path, Mode: 0o600}, h, sync.OnceFunc(func() { close(stopping) }), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway/v1/runs/run_x/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || lines.Text() != "id: 1" {
		t.Fatal(lines.Text(), lines.Err())
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := s.Shutdown(ctx); err != nil {
		t.Error("a stream holds up the stop:", err)
	}
}
