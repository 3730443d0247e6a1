package toolpack

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/fault"
)

// axManifest returns the manifest of the AX documents, with parts removed to make its other forms.
func axManifest(t testing.TB, less ...string) map[string]string {
	t.Helper()
	out := map[string]string{PacksDir + "/a.tool.yaml": "", LockFile: ""}
	for _, name := range []string{ManifestFile, "schemas/firecrawl_crawl_input.json", "schemas/firecrawl_crawl_output.json"} {
		data, err := os.ReadFile(filepath.Join("testdata/ax", name))
		must(t, err)
		out[name] = string(data)
	}
	for _, part := range less {
		text := strings.Replace(out[ManifestFile], part, "", 1)
		if text == out[ManifestFile] {
			t.Fatalf("the manifest has no %q", part)
		}
		out[ManifestFile] = text
	}
	return out
}

// The manifests load as the AX documents print them: those of the core specification, of the v0.1 specification and of the repository,
// without a toolpack, an image lock or a folder of toolpacks. proves SRC-01 AX-09
func TestAXManifestsLoadAsPrinted(t *testing.T) {
	const words = "    display_name: \"Firecrawl Crawl\"\n" +
		"    description: \"Fetches a page, or a site from a page on, and returns its text\"\n"
	const purposes = "    capabilities:\n      - \"web_crawl\"\n      - \"web_scrape\"\n      - \"extract\"\n"
	const schemas = "    input_schema_ref: \"schemas/firecrawl_crawl_input.json\"\n" +
		"    output_schema_ref: \"schemas/firecrawl_crawl_output.json\"\n"
	full := Service{ID: "firecrawl.crawl", Name: "firecrawl_crawl", Kind: ServiceWorker, Version: "0.1.0", ContractVersion: "v1",
		Title: "Firecrawl Crawl", Description: "Fetches a page, or a site from a page on, and returns its text",
		Purposes: []string{"extract", "web_crawl", "web_scrape"}, TimeoutSec: 60, URL: "http://tool-firecrawl:8080/run",
		Headers: map[string]string{}, Egress: []string{"api.firecrawl.dev:443"}}
	bare := full
	bare.Title, bare.Description, bare.Purposes = bare.ID, "", nil
	noPurposes := full
	noPurposes.Purposes = nil
	seen := map[string]bool{}
	for _, c := range []struct {
		name string
		less []string
		want Service
	}{
		{"repository", nil, full},
		{"core specification", []string{words, purposes, schemas}, bare},
		{"v0.1 specification", []string{"    kind: \"service_worker\"\n", purposes}, noPurposes},
	} {
		d, err := openDir(domainDir(t, axManifest(t, c.less...)))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if d.ID() != "example_domain" || d.Version() != "0.1" || !strings.HasPrefix(d.CatalogVersion(), "0.1+") || len(d.Packs().List()) != 0 {
			t.Error(c.name, d.ID(), d.Version(), d.CatalogVersion())
		}
		list := d.Services()
		if len(list) != 1 {
			t.Fatal(c.name, list)
		}
		got := list[0]
		judged := cmpopts.IgnoreFields(Service{}, "Input", "Output", "Hash", "Definition")
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Service{}), judged); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		if seen[got.Hash] || !strings.HasPrefix(got.Hash, "sha256:") {
			t.Error(c.name, got.Hash)
		}
		seen[got.Hash] = true
		if len(c.less) == 3 {
			if string(got.Input) != `{"additionalProperties":true,"type":"object"}` || string(got.Output) != string(got.Input) {
				t.Errorf("%s: %s %s", c.name, got.Input, got.Output)
			}
			continue
		}
		if _, err := got.Arguments(json.RawMessage(`{"url":"https://example.com","mode":"scrape","formats":["markdown"]}`)); err != nil {
			t.Error(c.name, err)
		}
		wrong := json.RawMessage(`{"url":"https://example.com","mode":"scrape","max_pages":3}`)
		if _, err := got.Arguments(wrong); !fault.Is(err, fault.Validation) {
			t.Error(c.name, err)
		}
	}
}

// Answers are judged by the entry's schema, also as it is stored.
func TestServiceContract(t *testing.T) {
	d, err := openDir(domainDir(t, axManifest(t)))
	must(t, err)
	s := d.Services()[0]
	stored, err := ReadContract(s.Definition)
	must(t, err)
	for answer, ok := range map[string]bool{
		`{"source_url":"https://example.com","items":[{"url":"u","title":"t","content":"c","format":"markdown"}],"stats":{"pages":3}}`: true,
		`{"source_url":"https://example.com","items":[],"stats":{"pages":0},"more":1}`:                                                 true,
		`{"source_url":"https://example.com","items":[],"stats":{}}`:                                                                   false,
		`{}`: false,
	} {
		for _, c := range []*Contract{s.Contract(), stored} {
			if err := c.CheckOutput(json.RawMessage(answer)); (err == nil) != ok {
				t.Errorf("%s: %v", answer, err)
			}
		}
	}
}

const httpPack = "execution: {kind: http, url: \"http://h:9000/v2/ask\", headers: {X-Team: lab}}\n"

// askPack returns a toolpack demo.ask with this execution.
func askPack(execution string) string {
	return strings.Replace(base[:strings.Index(base, "container:")], "id: demo.count", "id: demo.ask", 1) + execution
}

// A toolpack of kind http describes the tool; the manifest has the address of its worker.
func TestServiceOfPack(t *testing.T) {
	for entry, want := range map[string]string{
		`base_url: "http://h:9000"`:                           "/v2/ask 60 []",
		`base_url: "http://H:9000/v2/"`:                       "/ask 60 []",
		`base_url: "http://h:9000/v2", endpoint: /ask`:        "/ask 60 []",
		`base_url: "http://h:9000"}, sensitive: [text, bam`:   "MANIFEST-SENSITIVE tools[1].sensitive",
		`base_url: "http://h:9001"`:                           "MANIFEST-TRANSPORT tools[1].transport.base_url",
		`base_url: "https://h:9000"`:                          "MANIFEST-TRANSPORT tools[1].transport.base_url",
		`base_url: "http://h:9000/v"`:                         "MANIFEST-TRANSPORT tools[1].transport.base_url",
		`base_url: "http://h:9000", endpoint: /run`:           "MANIFEST-TRANSPORT tools[1].transport.endpoint",
		`base_url: "http://h:9000"}, description: "Other", k`: "MANIFEST-OWN-FIELD tools[1].description",
	} {
		entry = strings.TrimSuffix(entry, ", k")
		close := "}"
		if strings.Contains(entry, "sensitive") {
			close = "]"
		} else if strings.Contains(entry, "description") {
			close = ""
		}
		text := manifestText + "  - {tool_id: demo.ask, kind: service_worker, transport: {type: http, " + entry + close + "}\n"
		d, err := openDir(domainDir(t, map[string]string{ManifestFile: text, PacksDir + "/b.tool.yaml": askPack(httpPack)}))
		if err != nil {
			p := fault.ProblemsOf(err)[0]
			if got := p.Code + " " + p.Field; got != want || p.Line != 5 || p.File == "" {
				t.Errorf("%s: %s, want %s: %v", entry, got, want, err)
			}
			continue
		}
		s, p := d.Services()[0], d.Packs().List()[0]
		if got := fmt.Sprint(d.Tools()[1].Transport.Endpoint, " ", s.TimeoutSec, " ", s.Sensitive); got != want {
			t.Errorf("%s: %s, want %s", entry, got, want)
		}
		if s.URL != "http://h:9000/v2/ask" || s.Headers["X-Team"] != "lab" || s.Hash != p.Hash() || s.Version != p.Version() ||
			string(s.Input) != string(p.InputSchema()) || string(s.Output) != string(p.OutputSchema()) {
			t.Errorf("%s: the service has the URL %s, headers %v, version %s, hash %s; want the pack's", entry, s.URL,
				s.Headers, s.Version, s.Hash)
		}
	}
}

// A hybrid tool has the arguments of its toolpack; its worker's answer has a separate schema.
func TestServiceOfHybrid(t *testing.T) {
	d, err := openDir(domainDir(t, map[string]string{
		ManifestFile: strings.Replace(manifestText, "kind: job_worker", `kind: hybrid, transport: {type: http, base_url: "http://h"}, `+
			`output_schema_ref: out.json`, 1),
		"out.json": `{"type":"object","required":["n"]}`}))
	must(t, err)
	s, p := d.Services()[0], d.Packs().List()[0]
	if s.Kind != Hybrid || s.URL != "http://h/run" || string(s.Input) != string(p.InputSchema()) ||
		string(s.Output) != `{"required":["n"],"type":"object"}` {
		t.Errorf("the service is %s at %s with the output %s; want hybrid at http://h/run with the entry's schema", s.Kind,
			s.URL, s.Output)
	}
}

// Whatever is wrong with an entry without a toolpack is reported with its file, line, field and rule.
func TestServicesFailClosed(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"schema missing", "crawl_input.json", "none.json", "manifest.yaml:19 MANIFEST-SCHEMA tools[0].input_schema_ref"},
		{"schema outside", "schemas/firecrawl_crawl_input", "../in", "manifest.yaml:19 MANIFEST-SCHEMA tools[0].input_schema_ref"},
		{"schema elsewhere", "schemas/firecrawl_crawl_input", "http://h/in", "manifest.yaml:19 MANIFEST-SCHEMA tools[0].input_schema_ref"},
		{"not text", `"schemas/firecrawl_crawl_output.json"`, "3", "manifest.yaml:20 MANIFEST-TYPE tools[0].output_schema_ref"},
		{"a field of nobody", "kind:", "x:", "manifest.yaml:7 MANIFEST-UNKNOWN-FIELD tools[0].x"},
		{"hybrid without toolpack", `"service_worker"`, "hybrid", "images.lock.yaml:0 DOMAIN-FILE , " +
			"manifest.yaml:6 MANIFEST-TOOL-MISSING tools[0].tool_id, toolpacks:0 PACK-FILE "},
		{"purpose", "web_scrape", "Web Scrape", "manifest.yaml:12 MANIFEST-CAPABILITY tools[0].capabilities[1]"},
		{"version of four parts", `"0.1"`, `"0.1.2.3"`, "manifest.yaml:4 MANIFEST-VERSION version"},
		{"version unquoted", `"0.1"`, "0.1", "manifest.yaml:4 MANIFEST-TYPE version"},
		{"deterministic and sensitive", "    timeout_sec: 60\n", "    deterministic: true\n    sensitive: [url]\n",
			"manifest.yaml:19 MANIFEST-SENSITIVE tools[0].sensitive"},
		{"sensitive unknown", "    timeout_sec: 60\n", "    sensitive: [ulr]\n", "manifest.yaml:18 MANIFEST-SENSITIVE tools[0].sensitive"},
		{"name of an operation", `"firecrawl.crawl"`, `"tool.list"`, "manifest.yaml:6 MANIFEST-TOOL-NAME tools[0].tool_id"},
	} {
		change := axManifest(t)
		text := strings.Replace(change[ManifestFile], c.old, c.new, 1)
		if text == change[ManifestFile] {
			t.Fatal(c.name)
		}
		change[ManifestFile] = text
		dir := domainDir(t, change)
		_, err := openDir(dir, Taken([]string{"tool.list"}))
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			rel, _ := filepath.Rel(dir, p.File)
			got = append(got, fmt.Sprintf("%s:%d %s %s", rel, p.Line, p.Code, p.Field))
			if p.Rule == "" || p.Msg == "" {
				t.Errorf("%s: the problem %s has the rule %q and the message %q, want both", c.name, p.Code, p.Rule, p.Msg)
			}
		}
		if s := strings.Join(got, ", "); s != c.want || !fault.Is(err, fault.Validation) {
			t.Errorf("%s:\ngot  %s\nwant %s\n%v", c.name, s, c.want, err)
		}
	}
	broken := axManifest(t)
	broken["schemas/firecrawl_crawl_input.json"] = "{\n \"type\": 3\n}"
	_, err := openDir(domainDir(t, broken))
	if p := fault.ProblemsOf(err); len(p) == 0 || !strings.HasSuffix(p[0].File, "schemas/firecrawl_crawl_input.json") || p[0].Line != 2 {
		t.Error(err)
	}
}

// The catalogue's version changes with an entry and with the schemas it names.
func TestCatalogVersionOfServices(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string][3]string{
		"nothing": {ManifestFile, "", ""}, "words": {ManifestFile, "Firecrawl Crawl", "Crawl"}, "url": {ManifestFile, ":8080", ":8081"},
		"a schema": {"schemas/firecrawl_crawl_output.json", `"required": ["pages"]`, `"required": []`},
	} {
		files := axManifest(t)
		files[change[0]] = strings.Replace(files[change[0]], change[1], change[2], 1)
		d, err := openDir(domainDir(t, files))
		if err != nil {
			t.Fatal(name, err)
		}
		if other, dup := seen[d.CatalogVersion()]; dup {
			t.Errorf("%s and %s: %s", name, other, d.CatalogVersion())
		}
		seen[d.CatalogVersion()] = name
	}
}

// Without a transport an entry needs a kind.
func TestNeitherKindNorTransport(t *testing.T) {
	_, err := openDir(domainDir(t, map[string]string{ManifestFile: strings.Replace(manifestText, ", kind: job_worker", "", 1)}))
	if p := fault.ProblemsOf(err); len(p) != 1 || p[0].Code != "MANIFEST-REQUIRED" || p[0].Field != "tools[0].kind" || p[0].Line != 4 {
		t.Error(err)
	}
}
