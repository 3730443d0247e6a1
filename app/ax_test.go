package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/adapter"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/worker"
)

func (v visitor) post(path, body string) *httptest.ResponseRecorder {
	v.t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer x")
	req.Header.Set("Content-Type", "application/json")
	res := httptest.NewRecorder()
	v.h.ServeHTTP(res, req)
	return res
}

// visitServices starts a gateway over a folder with a domain, for a visitor who may do everything.
func visitServices(t *testing.T, domain string) (*Gateway, visitor) {
	t.Helper()
	policy, err := os.ReadFile(filepath.Join(domain, "policies.yaml"))
	must(t, err)
	g := gatewayOver(t, t.TempDir(), domain, string(policy))
	if _, err := g.Sites.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g, visitor{t, httpapi.Handler(httpapi.Config{Gate: g.Gate, Auth: fixedCaller{gate.All}, DomainID: g.Domain.ID(),
		Version: g.CatalogVersion}, nil)}
}

// The steps of AX's onboarding with its own example: the entry in the manifest, the catalogue with every field its README shows, and a call
// that the worker answers.
//
// proves SRC-01 AX-03 AX-04 AX-11
func TestAXDomainAnswers(t *testing.T) {
	var got worker.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
		says(w, got, true, `"output":{"source_url":"https://example.com","items":[{"url":"https://example.com","title":"Example","content":"# Hello",`+
			`"format":"markdown"}],"stats":{"pages":1}}`)
	}))
	defer s.Close()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../toolpack/testdata/ax")))
	edit(t, filepath.Join(dir, "manifest.yaml"), "http://tool-firecrawl:8080", s.URL)
	_, v := visitServices(t, dir)
	var domain struct {
		DomainID string `json:"domain_id"`
		Version  string
	}
	if v.get("/v1/domain", &domain); domain.DomainID != "example_domain" || !strings.HasPrefix(domain.Version, "0.1+") {
		t.Error(domain)
	}
	var tools struct{ Tools []map[string]any }
	v.get("/v1/tools", &tools)
	if diff := cmp.Diff([]map[string]any{{"tool_id": "firecrawl.crawl", "kind": "service_worker", "display_name": "Firecrawl Crawl",
		"description":  "Fetches a page, or a site from a page on, and returns its text",
		"capabilities": []any{"extract", "web_crawl", "web_scrape"}, "timeout_sec": 60.0, "egress_allowlist": []any{"api.firecrawl.dev:443"},
		"transport_type": "http", "transport_endpoint": "/run", "input_schema_ref": "/v1/tools/firecrawl.crawl/input_schema",
		"output_schema_ref": "/v1/tools/firecrawl.crawl/output_schema"}}, tools.Tools); diff != "" {
		t.Error(diff)
	}
	res := v.post("/v1/tools/firecrawl.crawl:run", `{"input":{"url":"https://example.com","mode":"scrape","formats":["markdown"]}}`)
	var answer struct {
		OK        bool
		ToolID    string `json:"tool_id"`
		ToolRunID string `json:"tool_run_id"`
		Output    struct{ Stats struct{ Pages int } }
		Meta      struct {
			TraceID string `json:"trace_id"`
		}
	}
	if err := json.Unmarshal(res.Body.Bytes(), &answer); err != nil || res.Code != http.StatusOK || !answer.OK ||
		answer.Output.Stats.Pages != 1 ||
		answer.ToolRunID != got.Meta.ToolRunID || answer.Meta.TraceID != got.Meta.TraceID || got.Meta.DomainID != "example_domain" {
		t.Errorf("%d %s %+v", res.Code, res.Body, got)
	}
	if res := v.post("/v1/tools/firecrawl.crawl:run", `{"input":{"url":"https://example.com","mode":"scrape","max_pages":3}}`); res.Code != 400 ||
		!strings.Contains(res.Body.String(), `"VALIDATION_ERROR"`) {
		t.Errorf("%d %s", res.Code, res.Body)
	}
}

// The tools of a third-party MCP server are called through the gate under our names; one whose schemas have changed
// is refused, with a code.
//
// proves ARC-10
func TestAdapterThroughTheGate(t *testing.T) {
	up := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
	offer := func(schema string) {
		up.AddTool(&sdk.Tool{Name: "get-sum", Description: "Adds two numbers.", InputSchema: json.RawMessage(schema)},
			func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				var in struct{ A, B int }
				err := json.Unmarshal(req.Params.Arguments, &in)
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(in.A + in.B)}}}, err
			})
	}
	offer(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`)
	server := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return up }, nil))
	defer server.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "adapter.yaml")
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	put("adapter.yaml", "upstream: {url: \""+server.URL+"\"}\ntools: [{tool: get-sum, tool_id: lab.sum}]\n")
	c, err := adapter.Load(config, os.LookupEnv)
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	client := adapter.NewClient(c, "1", log)
	defer client.Close()
	front := httptest.NewServer(adapter.NewServer(c, client, log).Handler())
	defer front.Close()
	tools, err := client.Tools(t.Context())
	must(t, err)
	c.BaseURL = front.URL
	entries, files, err := c.Entries(tools)
	must(t, err)
	put("domain/manifest.yaml", "domain_id: lab\nversion: 1.0.0\ntools:\n"+entries)
	put("domain/policies.yaml", "version: 1\n")
	for name, data := range files {
		put("domain/"+name, string(data))
	}
	_, v := visitServices(t, filepath.Join(dir, "domain"))
	if res := v.post("/v1/tools/lab.sum:run", `{"input":{"a":1,"b":2}}`); res.Code != http.StatusOK ||
		!strings.Contains(res.Body.String(), `"output":{"text":"3"}`) {
		t.Errorf("%d %s", res.Code, res.Body)
	}
	if res := v.post("/v1/tools/lab.sum:run", `{"input":{"a":"one","b":2}}`); !strings.Contains(res.Body.String(), `"VALIDATION_ERROR"`) {
		t.Errorf("%d %s", res.Code, res.Body)
	}
	offer(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"send_to":{"type":"string"}},"required":["a","b"]}`)
	if res := v.post("/v1/tools/lab.sum:run", `{"input":{"a":1,"b":2}}`); !strings.Contains(res.Body.String(), `"UPSTREAM_ERROR"`) ||
		!strings.Contains(res.Body.String(), `"schema_changed"`) || !strings.Contains(res.Body.String(), `"retryable":false`) {
		t.Errorf("%d %s", res.Code, res.Body)
	}
}
