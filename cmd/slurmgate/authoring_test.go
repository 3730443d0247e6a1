package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/app"
	"slurmgate/toolpack"
)

// verb runs one command line that needs no gateway.
func verb(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = realMain(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// fails requires that a verb fails with this exit status and says so on standard error.
func fails(t *testing.T, status int, says string, args ...string) {
	t.Helper()
	if code, _, said := verb(t, args...); code != status || !strings.Contains(said, says) {
		t.Errorf("%q ends with %d and says %q, want %d and %q", args, code, said, status, says)
	}
}

// prints requires that a verb succeeds and prints this among the rest.
func prints(t *testing.T, text string, args ...string) {
	t.Helper()
	if code, out, said := verb(t, args...); code != 0 || !strings.Contains(out, text) {
		t.Errorf("%q ends with %d, prints %q and says %q, want 0 and %q", args, code, out, said, text)
	}
}

func copyDomain(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	must(t, os.CopyFS(dir, os.DirFS("../../domains/"+name)))
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

// A first pack of each kind passes the check as it is, once the manifest has the line printed; nothing is overwritten.
func TestToolInit(t *testing.T) {
	dir := copyDomain(t, "genomics")
	for _, kind := range toolpack.StarterKinds() {
		id := "lab." + kind
		code, out, said := verb(t, "tool", "init", id, dir, "--kind", kind)
		line := "  - {tool_id: " + id + ", kind: job_worker}\n"
		if code != 0 || !strings.Contains(out, line) || !strings.Contains(out, "slurmgate tool check "+dir) {
			t.Fatal(code, out, said)
		}
		if code, _, said := verb(t, "tool", "check", dir); code != 2 || strings.Count(said, "\n  ") != 1 || !strings.Contains(said,
			"listed in manifest.yaml") {
			t.Error(code, said)
		}
		edit(t, filepath.Join(dir, "manifest.yaml"), "tools:\n", "tools:\n"+line)
		if code, out, said := verb(t, "tool", "check", dir); code != 0 || !strings.Contains(out, id) {
			t.Error(code, out, said)
		}
	}
	fails(t, 5, "already", "tool", "init", "lab.cli", dir)
	plainDir := t.TempDir()
	if code, out, said := verb(t, "tool", "init", "lab.cli", plainDir); code != 0 || strings.Contains(out, "tool_id") {
		t.Error(code, out, said)
	}
	prints(t, "", "tool", "check", plainDir)
	for _, bad := range [][]string{{"tool", "init", "Lab.x", plainDir}, {"tool", "init", "lab.x", plainDir, "--kind", "bash"},
		{"tool", "init", "lab.x", plainDir + "/gone"}, {"tool", "runner", "php"}} {
		if code, out, _ := verb(t, bad...); code != 2 && code != 3 || out != "" {
			t.Error(bad, code, out)
		}
	}
}

// The domain package of the AX documents passes, with what policy does not allow as a warning. proves SRC-01
func TestDomainCheckOfAX(t *testing.T) {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../../toolpack/testdata/ax")))
	code, out, said := verb(t, "domain", "check", dir, "--json")
	var got app.DomainAnswer
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || got.DomainID != "example_domain" || len(got.Warnings) != 0 ||
		len(got.Tools) != 1 || got.Tools[0].ToolID != "firecrawl.crawl" || got.Tools[0].Version != "0.1.0" || got.Tools[0].Execution != "http" {
		t.Error(code, out, said, err)
	}
	prints(t, "1 tools, no mistakes: firecrawl.crawl", "tool", "check", dir)
	edit(t, filepath.Join(dir, "policies.yaml"), "timeouts:", "tool_allowlist: [tool_list]\ntimeouts:")
	code, out, said = verb(t, "domain", "check", dir)
	if code != 0 || !strings.Contains(out+said, "firecrawl.crawl: policy does not allow it (tool_allowlist)") {
		t.Error(code, out, said)
	}
}

// Manifest, policy, packs and lock are reported together, with place and hint, for people and as data. proves LOAD-11 ABI-01 AX-02
func TestDomainCheck(t *testing.T) {
	dir := copyDomain(t, "examples")
	code, out, said := verb(t, "domain", "check", dir, "--json")
	var good app.DomainAnswer
	if err := json.Unmarshal([]byte(out), &good); code != 0 || err != nil || good.DomainID != "examples" || len(good.Tools) != 16 ||
		len(good.Warnings) != 0 || len(good.Missing) != 7 {
		t.Fatal(code, out, said, err)
	}
	edit(t, filepath.Join(dir, "policies.yaml"), "max_cpus: 8", "max_cpus: 1\n  gpus: 3")
	edit(t, filepath.Join(dir, "manifest.yaml"), "version: 1.3.0", "version: one")
	edit(t, filepath.Join(dir, "images.lock.yaml"), "version: 1", "version: 7")
	edit(t, filepath.Join(dir, "toolpacks/zip.bundle.tool.yaml"), "timeoutMs", "timeout_ms")
	for _, verbName := range []string{"domain", "tool"} {
		code, out, _ = verb(t, verbName, "check", dir, "--json")
		var bad struct {
			Error struct {
				Details struct {
					Problems []struct {
						Code, Field, Rule, Hint, File string
						Line                          int
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &bad); err != nil || code != 2 {
			t.Fatal(code, out, err)
		}
		want := map[string]bool{"MANIFEST-VERSION": true, "POLICY-UNKNOWN-FIELD": true, "LOCK-RANGE": true, "PACK-SNAKE-CASE": true}
		for _, p := range bad.Error.Details.Problems {
			delete(want, p.Code)
			if p.Line < 1 || p.Rule == "" || !strings.HasPrefix(p.File, dir) {
				t.Errorf("problem %+v", p)
			}
			if p.Code == "PACK-SNAKE-CASE" && p.Hint != "write timeoutMs" {
				t.Errorf("problem %+v", p)
			}
		}
		if len(want) > 0 {
			t.Errorf("%s check: not reported: %v\n%s", verbName, want, out)
		}
	}
	fails(t, 2, "manifest.yaml", "domain", "check", t.TempDir())
}

// domain check warns of calls that policy would always deny, before the first one.
func TestDomainWarnings(t *testing.T) {
	dir := copyDomain(t, "examples")
	edit(t, filepath.Join(dir, "policies.yaml"), "max_cpus: 8", "max_cpus: 1")
	edit(t, filepath.Join(dir, "policies.yaml"), "version: 1\n",
		"version: 1\ntool_allowlist: [samtools_sort, samtools_index]\nimages_allowlist: [\"sha256:"+strings.Repeat("1", 64)+"\"]\n")
	code, out, said := verb(t, "domain", "check", dir)
	for _, want := range []string{"samtools.sort: policy denies every call: resources.cpus: 2 is more than is allowed (policy " +
		"slurm.max_cpus: at most 1)", "zip.bundle: policy does not allow it (tool_allowlist)", "images_allowlist has sha256:111"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d: %s is missing in\n%s%s", code, want, out, said)
		}
	}
	if strings.Contains(out, "samtools.index: ") {
		t.Error(out)
	}
}

// The schema for editors is one JSON document.
func TestToolSchema(t *testing.T) {
	code, out, _ := verb(t, "tool", "schema")
	var doc map[string]any
	if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil || doc["$schema"] == nil {
		t.Error(code, err)
	}
	if code, out, said := verb(t, "tool", "runner", "python"); code != 0 || !strings.Contains(out, "import json") || !strings.Contains(said,
		"/opt/slurmgate/run.py") {
		t.Error(code, out, said)
	}
}

// A pack with the id, or only the tool name, of one of the gateway's own operations is refused by every check, with the place, as the
// gateway itself would refuse to start. proves LOAD-06
func TestPackNamedLikeAnOperation(t *testing.T) {
	for _, id := range []string{"slurm.submit", "artifact.preview.text", "run.list", "tool.show", "token.create"} {
		dir := copyDomain(t, "genomics")
		pack := filepath.Join(dir, "toolpacks/seqkit.stats.tool.yaml")
		edit(t, pack, "id: seqkit.stats", "id: "+id)
		edit(t, filepath.Join(dir, "manifest.yaml"), "seqkit.stats", id)
		for _, args := range [][]string{{"tool", "check", dir}, {"tool", "check", filepath.Dir(pack)}, {"domain", "check", dir}} {
			code, out, said := verb(t, args...)
			if code != 2 || out != "" || !strings.Contains(said, "seqkit.stats.tool.yaml:") || !strings.Contains(said,
				"is the name of the operation "+id) {
				t.Errorf("%v: %d %s %s", args, code, out, said)
			}
		}
	}
	if ids := app.OperationIDs(); len(ids) < 20 {
		t.Errorf("only %d operations: %v", len(ids), ids)
	}
}

// A policy that names a tool or a type the domain does not have is refused by the checks and at the start alike, with place and the name
// that was probably meant; what is merely of no use is a warning.
func TestPolicyNamesWhatIsThere(t *testing.T) {
	for _, c := range []struct{ add, place, want string }{
		{"tool_allowlist: [samtools_flagstat, samtools_flagstats]\n", "tool_allowlist[1]", `did you mean "samtools_flagstat"?`},
		{"consent: {tools: [slurm_submitt]}\n", "consent.tools[0]", `did you mean "slurm_submit"?`},
		{"concurrency: {per_tool: {seqkit: 2}}\n", "concurrency.per_tool.seqkit", "remove it"},
		{"local: {tools_allowlist: [text_words]}\n", "local.tools_allowlist[0]", "remove it"},
	} {
		dir := copyDomain(t, "genomics")
		edit(t, filepath.Join(dir, "policies.yaml"), "version: 1\n", "version: 1\n"+c.add)
		for _, args := range [][]string{{"tool", "check", dir}, {"domain", "check", dir}} {
			code, _, said := verb(t, args...)
			if code != 2 || !strings.Contains(said, "policies.yaml:5:") || !strings.Contains(said, c.place+": there is no tool") ||
				!strings.Contains(said, c.want) {
				t.Errorf("%v %s: %d %s", args, c.add, code, said)
			}
		}
		if _, _, err := app.ReadDomain(dir); err == nil {
			t.Error("the gateway starts with it")
		}
	}
	dir := copyDomain(t, "genomics")
	edit(t, filepath.Join(dir, "policies.yaml"), "import:\n", "import:\n  types_allowlist: [BAM, FASTQGZ]\n")
	if code, _, said := verb(t, "domain", "check", dir); code != 2 || !strings.Contains(said,
		`import.types_allowlist[1]: there is no type "FASTQGZ"`) || !strings.Contains(said, `did you mean "FASTQ_GZ"?`) {
		t.Error(code, said)
	}
	dir = copyDomain(t, "genomics")
	edit(t, filepath.Join(dir, "policies.yaml"), "version: 1\n", "version: 1\nenv: {LANG: C}\n")
	prints(t, "warning: policy: env has LANG, but no toolpack uses it", "domain", "check", dir)
}

// tool convert writes a domain that checks, reports its changes as text and as data, writes nothing when a file is
// refused, and overwrites nothing without --force. proves SRC-02
func TestToolConvert(t *testing.T) {
	from, to := "../../convert/testdata/ragx", filepath.Join(t.TempDir(), "domain")
	code, out, said := verb(t, "tool", "convert", "--from", "ragx", from, "--to", to)
	if code != 0 || !strings.Contains(out, "changed toolpacks/core/docs.fetch.tool.yaml: id: ") ||
		!strings.Contains(out, "slurmgate tool check "+to) {
		t.Fatal(code, out, said)
	}
	prints(t, "", "domain", "check", to)
	var made app.ConvertAnswer
	code, out, said = verb(t, "tool", "convert", "--from", "ragx", from, "--to", to, "--json")
	err := json.Unmarshal([]byte(out), &made)
	if code != 0 || err != nil || len(made.Files) != 13 || len(made.Changed) == 0 || len(made.Kept) == 0 {
		t.Error(code, out, said, err)
	}
	edit(t, filepath.Join(to, "manifest.yaml"), "version: 1.0.0", "version: 1.0.1")
	fails(t, 5, "--force", "tool", "convert", "--from", "ragx", from, "--to", to)
	if code, _, said := verb(t, "tool", "convert", "--from", "ragx", from, "--to", to, "--force"); code != 0 {
		t.Error(code, said)
	}
	bad, nowhere := t.TempDir(), filepath.Join(t.TempDir(), "none")
	must(t, os.WriteFile(filepath.Join(bad, "a.tool.yaml"), []byte("id: Bad\n"), 0o644))
	for _, args := range [][]string{{"--from", "ragx", bad}, {"--from", "word", from}, {"--from", "ragx", from, bad}} {
		if code, out, said := verb(t, append(append([]string{"tool", "convert"}, args...), "--to", nowhere)...); code != 2 || out != "" {
			t.Error(args, code, out, said)
		}
	}
	if _, err := os.Stat(nowhere); !os.IsNotExist(err) {
		t.Error("something was written", err)
	}
}

// The verb lists an upstream's tools, and writes entries with which a domain passes its check. proves ARC-10
func TestAdapter(t *testing.T) {
	up := sdk.NewServer(&sdk.Implementation{Name: "up", Version: "1"}, nil)
	up.AddTool(&sdk.Tool{Name: "get-sum", Description: "Adds.\nSlowly.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	up.AddTool(&sdk.Tool{Name: "clear\x1b[2J", Description: "Clears\x1b[2J the screen.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	s := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return up }, nil))
	defer s.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "adapter.yaml")
	put := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	put("adapter.yaml", "upstream: {url: \""+s.URL+"\"}\ntools: [{tool: get-sum, tool_id: up.sum}]\n")
	if code, out, said := verb(t, "adapter", "--config", config, "--list"); code != 0 || !strings.HasSuffix(out, "  get-sum  Adds.\n") ||
		strings.Contains(out, "\x1b") || !strings.Contains(out, `  clear\x1b[2J  Clears`) {
		t.Errorf("adapter --list exits with %d, prints %q and says %q, want 0, get-sum and clear with its escapes escaped", code, out, said)
	}
	code, out, said := verb(t, "adapter", "--config", config, "--entries", dir)
	if code != 0 {
		t.Fatal(code, out, said)
	}
	put("manifest.yaml", "domain_id: up\nversion: 1.0.0\ntools:\n"+out)
	put("policies.yaml", "version: 1\n")
	prints(t, "up.sum", "domain", "check", dir)
	put("adapter.yaml", "upstream: {url: \""+s.URL+"\"}\ntools: [{tool: get-sums, tool_id: up.sum}]\n")
	fails(t, 3, "get-sum", "adapter", "--config", config, "--entries", dir)
	put("adapter.yaml", "upstream: {}\n")
	fails(t, 78, "adapter.yaml:1:1: upstream", "adapter", "--config", config)
}
