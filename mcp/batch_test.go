package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// post sends a body to the endpoint in a version of the protocol.
func post(t *testing.T, url, version, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if version != "" {
		req.Header.Set("Mcp-Protocol-Version", version)
	}
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// A batch of 16 messages is carried out; of one that is longer, nothing is, and its sender learns why.
func TestBatches(t *testing.T) {
	w := newWorld()
	w.on("slurm.job.get", map[string]any{"target_run_id": runID, "state": "running", "artifacts_by_role": map[string]string{},
		"poll_after_seconds": 3}, nil)
	srv := httptest.NewServer(Handler(w.server(), slog.New(slog.DiscardHandler)))
	defer srv.Close()
	batch := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slurm_job_get","arguments":{"run_id":"%s","wait_seconds":30}}}`,
				i, runID))
		}
		return " \n[" + strings.Join(all, ",") + "]"
	}
	for _, c := range []struct{ n, status, calls int }{{1, 200, 1}, {maxBatch, 200, maxBatch}, {maxBatch + 1, 400, 0}, {8000, 400, 0}} {
		w.mu.Lock()
		before := len(w.calls)
		w.mu.Unlock()
		status, answer := post(t, srv.URL, "", batch(c.n))
		w.mu.Lock()
		calls := len(w.calls) - before
		w.mu.Unlock()
		if status != c.status || calls != c.calls {
			t.Errorf("%d messages: %d, %d calls: %.300s", c.n, status, calls, answer)
		}
		if c.status == 200 {
			continue
		}
		var e struct {
			ID    any `json:"id"`
			Error struct {
				Code    int
				Message string
				Data    struct{ Code string }
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(answer), &e); err != nil || e.Error.Code != -32600 || e.Error.Data.Code != "batch_too_long" ||
			!strings.Contains(e.Error.Message, "more than 16 messages") {
			t.Errorf("%d messages: %s %v", c.n, answer, err)
		}
	}
	for _, bad := range []string{"[", `[{"jsonrpc":"2.0"`, "[1,2,"} {
		if status, answer := post(t, srv.URL, "", bad); status != 400 {
			t.Errorf("%s: %d %s", bad, status, answer)
		}
	}
	if status, answer := post(t, srv.URL, "2025-06-18", batch(2)); status != 400 {
		t.Errorf("a version without batches: %d %s", status, answer)
	}
}

// A client that listens for changes gets no stream that stays open: no list changes while the server runs.
func TestListenEndsAtOnce(t *testing.T) {
	w := newWorld()
	srv := httptest.NewServer(Handler(w.server(), slog.New(slog.DiscardHandler)))
	defer srv.Close()
	start := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,`+
			`"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["artifact://`+artID+`"]},`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"} {
		req.Header.Set(k, v)
	}
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if took := time.Since(start); err != nil || res.StatusCode != 200 || took > 5*time.Second || !strings.Contains(string(b), `"id":1`) {
		t.Errorf("%d after %s: %s %v", res.StatusCode, took, b, err)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(`[]`)
	f.Add(`[1, {"a":[2]} , null]`)
	f.Add("[" + strings.Repeat("0,", 40) + "0]")
	f.Add(`[1,`)
	f.Fuzz(func(t *testing.T, body string) {
		var all []json.RawMessage
		if !strings.HasPrefix(body, "[") || json.Unmarshal([]byte(body), &all) != nil {
			return
		}
		if n, err := messages([]byte(body)); err != nil || n != min(len(all), maxBatch+1) {
			t.Errorf("%d of %d, %v", n, len(all), err)
		}
	})
}
