package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The verb lists an upstream's tools, and writes entries with which a domain passes its check. proves ARC-10
func TestAdapter(t *testing.T) {
	up := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
	up.AddTool(&sdk.Tool{Name: "get-sum", Description: "Adds.\nSlowly.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	s := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return up }, nil))
	defer s.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "adapter.yaml")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("adapter.yaml", "upstream: {url: \""+s.URL+"\"}\ntools: [{tool: get-sum, tool_id: up.sum}]\n")
	if code, out, said := verb(t, "adapter", "--config", config, "--list"); code != 0 || !strings.HasSuffix(out, "  get-sum  Adds.\n") {
		t.Error(code, out, said)
	}
	code, out, said := verb(t, "adapter", "--config", config, "--entries", dir)
	if code != 0 {
		t.Fatal(code, out, said)
	}
	put("manifest.yaml", "domain_id: up\nversion: 1.0.0\ntools:\n"+out)
	put("policies.yaml", "version: 1\n")
	if code, out, said := verb(t, "domain", "check", dir); code != 0 || !strings.Contains(out, "up.sum") {
		t.Error(code, out, said)
	}
	put("adapter.yaml", "upstream: {url: \""+s.URL+"\"}\ntools: [{tool: get-sums, tool_id: up.sum}]\n")
	if code, _, said := verb(t, "adapter", "--config", config, "--entries", dir); code != 3 || !strings.Contains(said, "get-sum") {
		t.Error(code, said)
	}
	put("adapter.yaml", "upstream: {}\n")
	if code, _, said := verb(t, "adapter", "--config", config); code != 78 || !strings.Contains(said, "adapter.yaml:1:1: upstream") {
		t.Error(code, said)
	}
}
