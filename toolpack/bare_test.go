package toolpack

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"slurmgate/fault"
	"slurmgate/policy/yamldoc"
)

// bare has the fields that ragx's loader requires, and no other.
const bare = `id: tool.echo
version: 1.0.0
deterministic: true
timeoutMs: 1500
limits: {maxInputBytes: 4096, maxOutputBytes: 8192}
inputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
execution: {kind: python, module: "packs.echo:run"}
`

const bareManifest = `domain_id: ragx
version: 1.0.0
tools: [{tool_id: tool.echo, kind: job_worker}]
defaults:
  images: {python: py, node: js, php: php, cli: tools}
  resources: {cpus: 1, mem_mb: 256, time_limit_seconds: 60}
`

func defaultsOf(t testing.TB, manifest string) *Defaults {
	t.Helper()
	r := &yamldoc.Reader{File: ManifestFile, Prefix: "MANIFEST"}
	m := parseManifest(r, []byte(manifest))
	m.Defaults.check(r, []string{"JSON", "TEXT"})
	if found := r.Problems(); len(found) > 0 || m.Defaults == nil {
		t.Fatal(found)
	}
	return m.Defaults
}

func loadBare(t testing.TB, files map[string]string) (*Set, []fault.Problem) {
	t.Helper()
	set, _, found := loadAll(packFiles(files), "dom", ".", []string{"JSON", "TEXT"}, options{defaults: defaultsOf(t, bareManifest)})
	return set, found
}

func bareWith(t testing.TB, pairs ...string) string {
	t.Helper()
	return replaced(t, bare, pairs)
}

func barePack(t testing.TB, pairs ...string) *Pack {
	t.Helper()
	set, found := loadBare(t, map[string]string{"a.tool.yaml": bareWith(t, pairs...)})
	if len(found) > 0 {
		t.Fatal(found)
	}
	return set.List()[0]
}

// A toolpack with the required fields of ragx's loader alone takes the rest from the manifest: image by kind, resources, output, contract.
// proves LOAD-02 SRC-01
func TestBarePack(t *testing.T) {
	p := barePack(t)
	if p.Image() != "py" || p.PlanKind() != KindSlurm || p.ContractVersion() != "v1" || p.Timeout().Seconds() != 60 ||
		p.def.Resources.TimeLimitSeconds != 60 || len(p.Outputs()) != 1 || p.Outputs()[0] != (OutputInfo{"result", "JSON", "result"}) {
		t.Errorf("the pack has image %q, plan kind %s, contract %s, timeout %s, resources %+v, outputs %+v; want the defaults", p.Image(),
			p.PlanKind(), p.ContractVersion(), p.Timeout(), p.def.Resources, p.Outputs())
	}
	c, err := p.Canonicalize(json.RawMessage(`{"text":"hi"}`), testEnv())
	must(t, err)
	// Its function gets the arguments alone: they are the whole file.
	if len(c.Made) != 1 || string(c.Made[0].Bytes) != `{"text":"hi"}` {
		t.Errorf("%s", c.Made[0].Bytes)
	}
	want := "python3 -B -s /opt/slurmgate/run.py packs.echo:run /work/in/args.json /work/out/result.json"
	if got := strings.Join(c.Spec.Execution.Command.Argv, " "); got != want {
		t.Error(got)
	}
	// A tool that may take longer than the defaults' time gets more of it.
	if slow := barePack(t, "timeoutMs: 1500", "timeoutMs: 90500"); slow.def.Resources.TimeLimitSeconds != 91 || slow.def.TimeoutMs != 91000 {
		t.Errorf("a slow tool has %d s and timeoutMs %d, want 91 and 91000", slow.def.Resources.TimeLimitSeconds,
			slow.def.TimeoutMs)
	}
	cli := barePack(t, `{kind: python, module: "packs.echo:run"}`, `{kind: cli, cmd: [jq, "-n", "{}"]}`)
	if cli.Image() != "tools" || *cli.def.Execution.Stdout != "out/result.json" {
		t.Errorf("a cli tool has the image %q and stdout %q, want tools and out/result.json", cli.Image(),
			*cli.def.Execution.Stdout)
	}
	_, err = p.Canonicalize(json.RawMessage(`{"text":"`+strings.Repeat("x", 4096)+`"}`), testEnv())
	if fault.CodeOf(err) != "ARGS-INPUT-BYTES" {
		t.Error(err)
	}
}

// The output schema of a bare toolpack judges the JSON that its function returns, also from its stored definition; the catalogue's schema
// is that of the run's output, with the JSON as value of the role.
func TestResultIsJudged(t *testing.T) {
	p := barePack(t, "outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}",
		`outputSchema: {type: object, properties: {text: {$ref: "#/$defs/t"}}, required: [text], $defs: {t: {type: string}}}`)
	def, err := p.Definition()
	must(t, err)
	stored, err := ReadContract(def)
	must(t, err)
	for _, c := range []*Contract{p.Contract(), stored} {
		if !c.Asks("result") || c.Asks("other") || c.CheckOutput(json.RawMessage(`{"result":{"artifact_id":"x"}}`)) != nil {
			t.Error("it judges something else")
		}
		if err := c.CheckValue("result", json.RawMessage(`{"text":"hi"}`)); err != nil {
			t.Error(err)
		}
		for of, code := range map[string]string{`{"text":1}`: "OUTPUT-TYPE", `{}`: "OUTPUT-REQUIRED", `["text"]`: "OUTPUT-TYPE",
			`{`: "OUTPUT-JSON"} {
			if err := c.CheckValue("result", json.RawMessage(of)); fault.CodeOf(err) != code || fault.KindOf(err) != fault.Tool {
				t.Error(of, err)
			}
		}
	}
	run, msg := compile(decodedSchema(t, p.OutputSchema()), false)
	if msg != "" {
		t.Fatal(msg)
	}
	for of, ok := range map[string]bool{`{"result":{"value":{"text":"x"}}}`: true, `{"result":{}}`: true,
		`{"result":{"value":{"text":1}}}`: false, `{}`: false} {
		var v any
		must(t, json.Unmarshal([]byte(of), &v))
		if got := run.validate(run.schema, v) == nil; got != ok {
			t.Error(of, got)
		}
	}
}

func decodedSchema(t testing.TB, raw json.RawMessage) (tree map[string]any) {
	t.Helper()
	must(t, json.Unmarshal(raw, &tree))
	return tree
}

// A bare toolpack's version may have the suffixes of Python's packaging. The envelope gets the three numbers; the
// whole version distinguishes runs. A toolpack with abiVersion has none.
func TestBareVersions(t *testing.T) {
	for version, number := range map[string]string{"1.0.0": "1.0.0", "v1.2.3": "1.2.3", "1.0.0rc1": "1.0.0", "1.0.0-beta.2": "1.0.0",
		"01.002.0": "1.2.0", "1.2.3.post4.dev5+linux-x86.64": "1.2.3", "1.2.3-4": "1.2.3"} {
		p := barePack(t, "1.0.0", `"`+version+`"`)
		c, err := p.Canonicalize(json.RawMessage(`{"text":""}`), testEnv())
		if p.Version() != number || err != nil || c.Extra.Version != version {
			t.Error(version, p.Version(), c.Extra.Version, err)
		}
	}
	for _, version := range []string{"1.0", "2024.1", "1!1.0.0", "1.0.0-next", "1.0.0.0", "one", "1.0.0+" + strings.Repeat("x", 200)} {
		if _, found := loadBare(t, map[string]string{"a.tool.yaml": bareWith(t, "1.0.0", `"`+version+`"`)}); len(found) != 1 ||
			found[0].Code != "PACK-VERSION" {
			t.Error(version, found)
		}
	}
	_, found := loadText(map[string]string{"a.tool.yaml": with(t, "1.2.3", "1.2.3rc1")})
	if len(found) != 1 || found[0].Hint != "write 1.2.3" {
		t.Error(found)
	}
}

// Without defaults a bare toolpack is refused, with the remedy; so is one of a kind that they name no image for, and defaults that no plan
// could have.
func TestBareRefused(t *testing.T) {
	_, found := loadText(map[string]string{"a.tool.yaml": bare})
	if len(found) == 0 || found[0].Field != "abiVersion" || !strings.Contains(found[0].Hint, "defaults of manifest.yaml") {
		t.Error(found)
	}
	open := func(manifest, pack string) []fault.Problem {
		_, found := openDomain(fstest.MapFS{ManifestFile: {Data: []byte(manifest), Mode: 0o644},
			LockFile:       {Data: []byte("version: 1\nimages: []\n"), Mode: 0o644},
			PolicyFileName: {Data: []byte("version: 1\n"), Mode: 0o644}, PacksDir + "/a.tool.yaml": {Data: []byte(pack), Mode: 0o644}},
			"dom", func(string, []byte) error { return nil }, options{missingImages: true})
		return found
	}
	if found := open(bareManifest, bare); len(found) > 0 {
		t.Error(found)
	}
	for edit, want := range map[[2]string]string{
		{"images: {python: py, ", "images: {"}:                                "PACK-REQUIRED container",
		{"  resources: {cpus: 1, mem_mb: 256, time_limit_seconds: 60}\n", ""}: "PACK-REQUIRED resources",
		{"cpus: 1", "cpus: 100000"}:                                           " defaults.resources.cpus",
		{"mem_mb", "memMb"}:                                                   "MANIFEST-UNKNOWN-FIELD defaults.resources.memMb",
		{"{python: py,", "{ruby: py,"}:                                        "MANIFEST-DEFAULTS defaults.images.ruby",
		{"  images:", "  outputs: [{role: log, type: JSON, label: x, src_relpath: out/x}]\n  images:"}: "MANIFEST-ROLE-RESERVED " +
			"defaults.outputs[0].role",
		{"  images:", "  outputs: [{role: result, type: TEXT, label: x, src_relpath: out/x}]\n  images:"}: "PACK-EXECUTION execution.result",
	} {
		found := open(strings.Replace(bareManifest, edit[0], edit[1], 1), bare)
		var all []string
		for _, p := range found {
			all = append(all, p.Code+" "+p.Field)
		}
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("%q: want %s, got %v", edit[1], want, found)
		}
	}
}

// A bare http toolpack is a worker's tool: the shorter timeout counts, and its output schema judges the worker's answer.
func TestBareHTTP(t *testing.T) {
	manifest := strings.Replace(bareManifest, "kind: job_worker", `kind: service_worker, transport: {type: http, base_url: "http://h:1"}`, 1)
	pack := bareWith(t, `{kind: python, module: "packs.echo:run"}`, `{kind: http, url: "http://h:1/run", timeoutMs: 1000, headers: null}`,
		"version: 1.0.0", "version: 1.0.0rc1")
	d, found := openDomain(fstest.MapFS{ManifestFile: {Data: []byte(manifest), Mode: 0o644},
		LockFile:       {Data: []byte("version: 1\nimages: []\n"), Mode: 0o644},
		PolicyFileName: {Data: []byte("version: 1\n"), Mode: 0o644}, PacksDir + "/a.tool.yaml": {Data: []byte(pack), Mode: 0o644}},
		"dom", func(string, []byte) error { return nil }, options{})
	if len(found) > 0 {
		t.Fatal(found)
	}
	list := d.Services()
	if len(list) != 1 || list[0].URL != "http://h:1/run" || list[0].TimeoutSec != 1 || list[0].Version != "1.0.0" {
		t.Fatalf("the domain has the services %+v, want one at http://h:1/run of 1 s and version 1.0.0", list)
	}
	stored, err := ReadContract(list[0].Definition)
	must(t, err)
	for _, c := range []*Contract{list[0].Contract(), stored} {
		if c.CheckOutput(json.RawMessage(`{"text":"x"}`)) != nil || c.CheckOutput(json.RawMessage(`{"text":1}`)) == nil {
			t.Error("the worker's answer is not judged by the output schema")
		}
	}
}
