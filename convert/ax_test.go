package convert

import (
	"strings"
	"testing"

	"slurmgate/policy"
)

// The package of the AX documents becomes a domain that loads, with its limits written out. proves SRC-02
func TestFromAX(t *testing.T) {
	in := testFiles(t, "../toolpack/testdata/ax")
	for i := range in { // as in AX's repository
		in[i].Path = "domain/example_domain/" + in[i].Path
	}
	in = append(in, File{"docker-compose.yml", []byte("services: {}\n")})
	r, err := Convert("ax", in)
	if err != nil || len(r.Refused) > 0 || len(r.Changed) > 0 {
		t.Fatal(r, err)
	}
	files := map[string]string{}
	for _, f := range r.Files {
		files[f.Path] = string(f.Data)
	}
	if len(files) != 4 || !strings.Contains(files["manifest.yaml"], `tool_id: "firecrawl.crawl"`) ||
		files["schemas/firecrawl_crawl_input.json"] == "" {
		t.Error(files)
	}
	if _, err := policy.Parse("policies.yaml", []byte(files["policies.yaml"]), noEnv); err != nil {
		t.Error(err)
	}
}

func noEnv(string) (string, bool) { return "", false }

const axEntry = "domain_id: d\nversion: v0.1\nauthor: me\ntools:\n  - tool_id: web.get\n    icon: x\n    capabilities: [Web Crawl, get]\n" +
	"    timeout_sec: 0\n    transport: {type: http, base_url: \"http://w:1\", endpoint: /run}\n    input_schema_ref: gone.json\n" +
	"    output_schema_ref: null\n"

// What AX's gateway ignores is removed, what it does implicitly is written out, and each change is named.
func TestFromAXChanges(t *testing.T) {
	r, err := Convert("ax", []File{{"manifest.yaml", []byte(axEntry)}, {"policies.yaml", []byte("concurrency: {max_inflight: 4}\n" +
		"logging: {level: CRITICAL, include_request_body: true}\nnetwork: {default_egress_policy: allow}\nquota: 3\n")}})
	if err != nil || len(r.Refused) > 0 || len(r.Files) != 2 {
		t.Fatal(r, err)
	}
	var changed []string
	for _, n := range r.Changed {
		changed = append(changed, n.Field)
	}
	want := "author version tools[0].icon tools[0].input_schema_ref tools[0].output_schema_ref tools[0].timeout_sec " +
		"tools[0].capabilities[0] quota concurrency.per_tool_max_inflight.web.get network.default_egress_policy logging.level " +
		"logging.include_request_body"
	if got := strings.Join(changed, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p, err := policy.Parse("policies.yaml", r.Files[1].Data, noEnv)
	if err != nil || p.Concurrency.PerTool["web_get"] != 1 || p.Concurrency.Global != 4 || p.Logging.Level != "error" {
		t.Errorf("the policy is %+v, %v; want 1 call of web_get, 4 calls in all and the log level error\n%s", p, err,
			r.Files[1].Data)
	}
	if !strings.Contains(string(r.Files[0].Data), `version: "0.1"`) || !strings.Contains(string(r.Files[0].Data), "[web_crawl, get]") {
		t.Errorf("%s", r.Files[0].Data)
	}
	if r, err := Convert("ax", []File{{"manifest.yaml", []byte(axEntry)}}); err != nil || len(r.Files) != 2 ||
		!strings.Contains(string(r.Files[1].Data), "default_tool_timeout_sec: 60") {
		t.Error(r, err)
	}
}

// What cannot be kept is refused with the reason and the remedy, all at once, and nothing is written.
func TestFromAXRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files []File
		want  []string
	}{
		"two domains": {[]File{{"a/manifest.yaml", []byte(axEntry)}, {"b/manifest.yaml", []byte(axEntry)}},
			[]string{"CONVERT-DOMAINS b/manifest.yaml"}},
		"no YAML": {[]File{{"manifest.yaml", []byte("[")}}, []string{"CONVERT-YAML manifest.yaml"}},
		"entries": {[]File{{"d/manifest.yaml", []byte(strings.NewReplacer("web.get", "Web Get", "http://w:1", "grpc://w").Replace(axEntry) +
			"    egress_allowlist: [example.org]\n")}}, []string{"MANIFEST-EGRESS d/manifest.yaml", "MANIFEST-TOOL-ID d/manifest.yaml",
			"MANIFEST-TRANSPORT d/manifest.yaml"}},
	} {
		r, err := Convert("ax", c.files)
		if err != nil || len(r.Files) > 0 {
			t.Error(name, r, err)
		}
		for _, want := range c.want {
			found := false
			for _, p := range r.Refused {
				found = found || p.Code+" "+p.File == want && (p.Hint != "" || p.Code == "CONVERT-YAML")
			}
			if !found {
				t.Errorf("%s: refused are %+v, want %s", name, r.Refused, want)
			}
		}
	}
}
