package app

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/gate"
	"slurmgate/httpapi"
)

// shelfDomain returns a copy of the genomics domain with a tool of a service, and with changed files: name → from,
// to.
func shelfDomain(t *testing.T, change map[string][2]string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../domains/genomics")))
	service := "  - {tool_id: test.ask, kind: service_worker, timeout_sec: 90, egress_allowlist: [\"api.example.org:443\"], transport: " +
		"{type: http, base_url: \"http://h:9000\", endpoint: /ask}}\n"
	pack := "id: test.ask\nversion: 1.0.0\nabiVersion: v1\ncontractVersion: v1\nplanKind: slurm\ndeterministic: false\ntimeoutMs: " +
		"1001\nlimits: {maxInputBytes: 1, maxOutputBytes: 1}\n" +
		"inputSchema: {type: object, additionalProperties: false}\noutputSchema: {type: object}\ndeclaredOutputs: [{role: answer, type: JSON, " +
		"label: answer, srcRelpath: out/a.json}]\n" +
		"execution: {kind: http, url: \"http://h:9000/ask\"}\n"
	must(t, os.WriteFile(filepath.Join(dir, "toolpacks", "test.ask.tool.yaml"), []byte(pack), 0o600))
	edit(t, filepath.Join(dir, "manifest.yaml"), "tools:\n", "tools:\n"+service)
	lock := "version: 1\nimages:\n  - {name: samtools, digest: \"sha256:" + strings.Repeat("0",
		64) + "\", arch: amd64, size_bytes: 9, source: a file, added_at: 2026-01-02T03:04:05Z}\n"
	must(t, os.WriteFile(filepath.Join(dir, "images.lock.yaml"), []byte(lock), 0o600))
	for name, c := range change {
		edit(t, filepath.Join(dir, name), c[0], c[1])
	}
	return dir
}

func edit(t *testing.T, file, old, with string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q: %v", file, old, err)
	}
	must(t, os.WriteFile(file, []byte(strings.Replace(string(data), old, with, 1)), 0o644))
}

// visitor calls the HTTP interface of a gateway.
type visitor struct {
	t *testing.T
	h http.Handler
}

func (v visitor) get(path string, into any) *httptest.ResponseRecorder {
	v.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Header.Set("Authorization", "Bearer x")
	res := httptest.NewRecorder()
	v.h.ServeHTTP(res, req)
	if into != nil {
		if err := json.Unmarshal(res.Body.Bytes(), into); err != nil || res.Code != http.StatusOK {
			v.t.Fatalf("%s: %d %s", path, res.Code, res.Body)
		}
	}
	return res
}

// shelf is the answer of /v1/tools.
type shelf struct {
	Version string
	Total   int
	Tools   []struct {
		ToolID       string   `json:"tool_id"`
		Capabilities []string `json:"capabilities"`
		TimeoutSec   int64    `json:"timeout_sec"`
		Egress       []string `json:"egress_allowlist"`
		Type         string   `json:"transport_type"`
		Endpoint     string   `json:"transport_endpoint"`
		Input        string   `json:"input_schema_ref"`
		Output       string   `json:"output_schema_ref"`
	}
}

func (s shelf) ids() (ids []string) {
	for _, t := range s.Tools {
		ids = append(ids, t.ToolID)
	}
	return ids
}

// fixedCaller authenticates every caller as one with these capabilities.
type fixedCaller []string

func (c fixedCaller) Peer(int) (gate.Principal, error) { return c.Bearer(context.Background(), "") }

func (c fixedCaller) Bearer(context.Context, string) (gate.Principal, error) {
	return gate.Principal{Name: "token:guest", Method: gate.ByToken, Rights: gate.RightsOf(c, []string{gate.All})}, nil
}

// visit returns a gateway over a domain and a policy, and a visitor with these capabilities.
func visit(t *testing.T, domain, policyText string, capabilities ...string) (*Gateway, visitor) {
	t.Helper()
	g := gatewayOver(t, t.TempDir(), domain, policyText)
	return g, visitor{t, httpapi.Handler(httpapi.Config{Gate: g.Gate, Auth: fixedCaller(capabilities), DomainID: g.Domain.ID(),
		Version: g.CatalogVersion}, nil)}
}

const shelfPolicy = "version: 1\negress_allowlist: [\"b.example.org:443\"]\n"

// The catalogue shows for each tool what it is for, how long its runs may take and where its schemas are; the schemas
// are those of its arguments and of its finished run's output.
//
// proves AX-03 AX-09
func TestCatalogue(t *testing.T) {
	g, v := visit(t, shelfDomain(t, nil), shelfPolicy, gate.All)
	var got shelf
	v.get("/v1/tools", &got)
	var want []string
	for _, p := range g.Domain.Packs().List() {
		want = append(want, p.ID())
	}
	if !slices.Equal(got.ids(), want) || got.Total != len(want) || !slices.Contains(want, "test.ask") || !slices.Contains(want, "bwa.mem") {
		t.Fatal(got)
	}
	for _, x := range got.Tools {
		tool := g.toolOf(t, x.ToolID)
		pack, err := g.Domain.Packs().Get(x.ToolID)
		must(t, err)
		for ref, want := range map[string]json.RawMessage{x.Input: tool.Input, x.Output: pack.OutputSchema()} {
			var schema any
			res := v.get(ref, &schema)
			var wanted any
			must(t, json.Unmarshal(want, &wanted))
			if d := cmp.Diff(wanted, schema); d != "" || res.Header().Get("Content-Type") != "application/schema+json" || res.Header().
				Get("ETag") == "" {
				t.Errorf("%s: %s %v", ref, d, res.Header())
			}
			c := jsonschema.NewCompiler()
			must(t, c.AddResource("schema.json", schema))
			if _, err := c.Compile("schema.json"); err != nil {
				t.Errorf("%s: %v", ref, err)
			}
		}
		job := x.ToolID != "test.ask" // the worker's answer is the answer of the call
		if job == (string(tool.Output) == string(tool.Result())) {
			t.Errorf("%s: output %s", x.ToolID, tool.Output)
		}
		if job && (len(x.Egress) > 0 || x.Type != "" || len(x.Capabilities) == 0) {
			t.Errorf("%s: egress %v, type %q, capabilities %v; want only capabilities for a job", x.ToolID, x.Egress, x.Type, x.Capabilities)
		}
		if !job && (!slices.Equal(x.Egress, []string{"api.example.org:443", "b.example.org:443"}) || x.Type != "http" || x.Endpoint != "/ask" ||
			x.Capabilities == nil || len(x.Capabilities) > 0) {
			t.Errorf("%s: egress %v, type %q, endpoint %q, capabilities %v of a service", x.ToolID, x.Egress, x.Type, x.Endpoint,
				x.Capabilities)
		}
		want := map[string]int64{"minimap2.map": 3600, "samtools.flagstat": 900, "seqkit.stats": 900, "test.ask": 90}
		if sec, ok := want[x.ToolID]; ok && x.TimeoutSec != sec {
			t.Errorf("%s: %d s", x.ToolID, x.TimeoutSec)
		}
	}
	for _, path := range []string{"/v1/tools/no.such/input_schema", "/v1/tools/seqkit_stats/output_schema"} {
		if res := v.get(path, nil); res.Code != http.StatusNotFound || !strings.Contains(res.Body.String(), "tool_not_found") {
			t.Errorf("%s: %d %s", path, res.Code, res.Body)
		}
	}
	var answer struct{ Properties map[string]any }
	if v.get("/v1/tools/slurm.job.get/output_schema", &answer); answer.Properties["target_run_id"] == nil {
		t.Error("an operation's output is its answer")
	}
}

// No list offers a tool that policy refuses, or that the caller may not call.
//
// proves AX-03
func TestRefusedToolsAreNotOffered(t *testing.T) {
	domain := shelfDomain(t, nil)
	g, v := visit(t, domain, "version: 1\ntool_allowlist: [samtools_flagstat, tool_list, tool_show]\n", gate.All)
	var got shelf
	if v.get("/v1/tools", &got); !slices.Equal(got.ids(), []string{"samtools.flagstat"}) {
		t.Error(got.ids())
	}
	if res := v.get("/v1/tools/seqkit.stats/input_schema", nil); res.Code != http.StatusNotFound {
		t.Error(res.Code, res.Body)
	}
	boss := everything("user:boss", gate.All)
	var list ToolList
	g.says(t, boss, "tool.list", map[string]any{}, "", &list)
	if list.Total != 1 || list.Tools[0].ToolID != "samtools.flagstat" || list.Version != g.CatalogVersion(boss) {
		t.Errorf("tool.list: %d tools, version %s; want samtools.flagstat only, %s", list.Total, list.Version, g.CatalogVersion(boss))
	}
	g.says(t, boss, "tool.show", map[string]any{"tool_id": "seqkit.stats"}, "POLICY-TOOL", nil)
	g, _ = visit(t, domain, shelfPolicy, gate.All)
	for transport, want := range map[gate.Transport]bool{gate.Other: true, gate.MCP: false} { // an operation that a chat does not have
		boss.Transport = transport
		g.says(t, boss, "tool.list", map[string]any{"all": true}, "", &list)
		has := func(id string) bool {
			return slices.ContainsFunc(list.Tools, func(x ToolRow) bool { return x.ToolID == id })
		}
		if !has("run.list") || has("run.show") != want {
			t.Errorf("tool.list has run.list and run.show for %s: %t %t, want true %t", transport, has("run.list"), has("run.show"), want)
		}
	}
	_, v = visit(t, domain, shelfPolicy, gate.CapRead, gate.CapGateway)
	if v.get("/v1/tools", &got); got.Total != 0 {
		t.Error(got.ids())
	}
}

// The version, and with it the ETag, changes with everything that a list depends on: the packs, the manifest, the images, the policy, and
// what the caller may call. It does not change otherwise.
//
// proves AX-03
func TestCatalogueVersion(t *testing.T) {
	seen := map[string]string{}
	look := func(name, policyText string, change map[string][2]string, capabilities ...string) string {
		t.Helper()
		_, v := visit(t, shelfDomain(t, change), policyText, capabilities...)
		var doc shelf
		tag := ""
		for _, path := range []string{"/v1/domain", "/v1/tools", "/v1/registry", "/v1/tools/test.ask/input_schema"} {
			into := any(&doc)
			if strings.HasSuffix(path, "_schema") {
				into = nil
			}
			res := v.get(path, into)
			if res.Code == http.StatusNotFound {
				continue // for a caller who may not call it
			}
			tag = res.Header().Get("ETag")
			if tag != `"genomics@`+doc.Version+`"` || !strings.HasPrefix(doc.Version, "1.4.0+") && name != "the version" {
				t.Errorf("%s: %s %s: %s", name, path, tag, doc.Version)
			}
			req := httptest.NewRequest(http.MethodGet, path, nil)
			req.Header.Set("Authorization", "Bearer x")
			req.Header.Set("If-None-Match", tag)
			again := httptest.NewRecorder()
			if v.h.ServeHTTP(again, req); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
				t.Errorf("%s again: %d", path, again.Code)
			}
		}
		return tag
	}
	first := look("nothing", shelfPolicy, nil, gate.All)
	if look("nothing", shelfPolicy, nil, gate.All) != first {
		t.Error("the version changes with nothing")
	}
	seen[first] = "nothing"
	for _, c := range []struct {
		name, policy string
		change       map[string][2]string
		caps         []string
	}{
		{"a pack", "", map[string][2]string{"toolpacks/seqkit.stats.tool.yaml": {"Read statistics", "Statistics"}}, nil},
		{"the version", "", map[string][2]string{"manifest.yaml": {"version: 1.4.0", "version: 1.5.0"}}, nil},
		{"an endpoint", "", map[string][2]string{"manifest.yaml": {"endpoint: /ask", "endpoint: /run"},
			"toolpacks/test.ask.tool.yaml": {":9000/ask", ":9000/run"}}, nil},
		{"a refused tool", shelfPolicy + "tool_allowlist: [test_ask]\n", nil, nil},
		{"the policy's egress list", "version: 1\n", nil, nil},
		{"the default timeout", shelfPolicy + "default_timeout_sec: 60\n", nil, nil},
		{"a caller that may call less", "", nil, []string{gate.CapGateway, gate.CapRead}},
		{"a caller that may call other tools", "", nil, []string{gate.CapSlurm}},
	} {
		if c.policy == "" {
			c.policy = shelfPolicy
		}
		if c.caps == nil {
			c.caps = []string{gate.All}
		}
		v := look(c.name, c.policy, c.change, c.caps...)
		if other, dup := seen[v]; dup {
			t.Errorf("%s and %s have the version %s", c.name, other, v)
		}
		seen[v] = c.name
	}
}

// tool.show returns the resources of the tool's runs; an operation of the gateway starts no run.
func TestToolShowsResources(t *testing.T) {
	g := batchGateway(t)
	var pack, operation ToolDoc
	g.does(t, "tool.show", map[string]any{"tool_id": "seqkit.stats"}, &pack)
	if r := pack.Resources; r == nil || r.CPUs != 2 || r.MemMB.Base != 1024 || r.TimeLimitSeconds.Base != 900 || r.Summary == "" {
		t.Errorf("tool.show of seqkit.stats has the resources %+v, want 2 CPUs, 1024 MiB, 900 s and a summary", pack.Resources)
	}
	if g.does(t, "tool.show", map[string]any{"tool_id": "run.list"}, &operation); operation.Resources != nil {
		t.Errorf("tool.show of run.list has the resources %+v, want none", operation.Resources)
	}
}
