package convert

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
)

// helixFiles returns the examples of HelixMCP, with the file of a name replaced; empty text leaves it out.
func helixFiles(t *testing.T, replace map[string]string) (in []File) {
	t.Helper()
	dir := "testdata/helixmcp"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		text, given := replace[e.Name()]
		if filepath.Ext(e.Name()) == ".md" || given && text == "" {
			continue
		}
		data := []byte(text)
		if !given {
			if data, err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		in = append(in, File{e.Name(), data})
	}
	for name, text := range replace {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			in = append(in, File{name, []byte(text)})
		}
	}
	return in
}

func textOf(r Result, name string) string {
	for _, f := range r.Files {
		if f.Path == name {
			return string(f.Data)
		}
	}
	return ""
}

func noted(list []Note, text string) bool {
	return slices.ContainsFunc(list, func(n Note) bool { return strings.Contains(n.File+": "+n.Field+": "+n.Text, text) })
}

// HelixMCP's own example tools and policy become a domain.
//
// proves SRC-01 SRC-02
func TestFromHelixMCP(t *testing.T) {
	r, err := Convert("helixmcp", helixFiles(t, nil))
	if err != nil || len(r.Refused) > 0 {
		t.Fatal(r.Refused, err)
	}
	for file, lines := range map[string][]string{
		"manifest.yaml": {"  - {tool_id: helixmcp.fastqc, kind: job_worker}", "  - {tool_id: samtools.flagstat.slurm, kind: job_worker}"},
		"toolpacks/helixmcp.fastqc.tool.yaml": {`toolName: "fastqc"`, `contractVersion: "v1"`, `container: {"image":"fastqc"}`,
			`placement: {"account":"bio","constraint":"[rack1|rack2]","partition":"short"}`, `env: {"set":{"LC_ALL":"C"}}`,
			`limits: {"maxInputBytes":10737418240,"maxOutputBytes":1048576}`},
		"toolpacks/samtools.flagstat.slurm.tool.yaml": {`container: {"image":"samtools"}`,
			`execution: {"cmd":["samtools","flagstat","/work/in/input.bam"],"kind":"cli","stdout":"out/samtools_flagstat.txt"}`,
			`  - {"destRelpath":"in/input.bam","param":"bam_artifact_id","role":"bam","types":["BAM"]}`},
		"policies.yaml": {`  partitions_allowlist: ["short"]`, `  qos_allowlist: []`, `  gpu_types_allowlist: []`,
			`  constraints_allowlist: ["[rack1|rack2]","avx512"]`, `  kinds: ["text","path"]`, "  max_bytes: 10737418240",
			`images_allowlist: ["sha256:` + strings.Repeat("1", 64) + `"]`,
			`  raw_plans: {"allowed":true,"entry_programs":{"fastqc":["fastqc"],"samtools":["samtools"]}}`,
			`tool_allowlist: ["artifact_import","artifact_get","slurm_submit","slurm_job_get","slurm_job_collect","fastqc","samtools_flagstat_slurm"]`},
	} {
		for _, line := range lines {
			if !slices.Contains(strings.Split(textOf(r, file), "\n"), line) {
				t.Errorf("%s has no line %s\n%s", file, line, textOf(r, file))
			}
		}
	}
	if text := textOf(r, "toolpacks/samtools.flagstat.slurm.tool.yaml"); strings.Contains(text, "toolName") || strings.Contains(text,
		"helixmcp:") {
		t.Error(text)
	}
	for _, text := range []string{"tool_allowlist[6]: left out: no toolpack", "properties.backend: left out",
		"properties.threads: has no effect",
		"execution.command.argv: the shell is left out", "local_path_prefix_allowlist[2]: ${GATEWAY_IMPORT_ROOT} goes into the site file",
		"image_allowlist[1]: left out", "docker.image_allowlist[0]: left out", "slurm.qos_allowlist: absent",
		"runtime.instance_id: left out"} {
		if !noted(r.Changed, text) {
			t.Errorf("no note has %q: %v", text, r.Changed)
		}
	}
	if !noted(r.Kept, "slurm_submit.v1.schema.json: : an operation of the gateway") {
		t.Error(r.Kept)
	}
}

// A list that is absent in HelixMCP's policy allows nothing there, and so it does here.
//
// proves SRC-01
func TestHelixMCPPolicyNeverWidens(t *testing.T) {
	least := "version: 1\ntool_allowlist: []\nquotas: {max_import_bytes: 1}\n"
	lists := []string{"  partitions_allowlist: []", "  accounts_allowlist: []", "  qos_allowlist: []", "  gpu_types_allowlist: []",
		"  constraints_allowlist: []", "tool_allowlist: []", "images_allowlist: []", "  kinds: []", `  raw_plans: {"allowed":false}`}
	for what, text := range map[string]string{"no sections": least, "empty sections": least +
		"imports: {}\nslurm: {network_mode_required: none, " +
		"max_collect_output_bytes: 1, max_collect_log_bytes: 1}\n"} {
		r, err := Convert("helixmcp", []File{{"p.yaml", []byte(text)}})
		got := textOf(r, "policies.yaml")
		if err != nil || len(r.Refused) > 0 {
			t.Fatal(what, r.Refused, err)
		}
		for _, line := range lists {
			if !slices.Contains(strings.Split(got, "\n"), line) {
				t.Errorf("%s: no line %q in\n%s", what, line, got)
			}
		}
		if strings.Contains(got, "local") {
			t.Errorf("%s: runs on the gateway's host\n%s", what, got)
		}
	}
	// A path is no way in where no folder was allowed; slurm_submit allows no program that no plan shows.
	r, err := Convert("helixmcp", []File{{"p.yaml", []byte("version: 1\ntool_allowlist: [slurm_submit]\nquotas: {max_import_bytes: 1}\n" +
		"imports: {allow_source_kinds: [local_path, inline_text]}\n")}})
	if got := textOf(r, "policies.yaml"); err != nil || !strings.Contains(got, `kinds: ["text"]`) ||
		!strings.Contains(got, `raw_plans: {"allowed":false}`) {
		t.Error(got, err)
	}
}

// What cannot be kept is refused with the reason and the remedy, and nothing is written.
//
// proves SRC-02
func TestFromHelixMCPRefuses(t *testing.T) {
	flagstat := func(old, new string) string {
		data, err := os.ReadFile("testdata/helixmcp/samtools_flagstat_slurm.plan.json")
		if err != nil || !strings.Contains(string(data), old) {
			t.Fatal(old, err)
		}
		return strings.Replace(string(data), old, new, 1)
	}
	const plan, policy = "samtools_flagstat_slurm.plan.json", "default.policy.yaml"
	const head = "version: 1\ntool_allowlist: []\nquotas: {max_import_bytes: 1}\n"
	for what, c := range map[string]struct{ name, text, code string }{
		"two steps in a shell":  {plan, flagstat("samtools flagstat", "date; samtools flagstat"), "HELIXMCP-SHELL"},
		"a variable of a shell": {plan, flagstat("/work/in/input.bam >", "$HOME/input.bam >"), "HELIXMCP-SHELL"},
		"an undeclared output":  {plan, flagstat("> /work/out/samtools_flagstat.txt", "> /work/out/other.txt"), "HELIXMCP-SHELL"},
		"a template":            {plan, flagstat(`"sh", "-c", "set`, `"echo", "{{ a }}", "set`), "HELIXMCP-TEMPLATE"},
		"another " +
			"role": {plan, flagstat(`"inputs": [{`,
			`"inputs": [{"role": "x", "artifact_id": "art_01HZZZZZZZZZZZZZZZZZZZZZZZ", "checksum_sha256": "`+strings.Repeat("b",
				64)+`", "dest_relpath": "in/x.bam"}, {`), "HELIXMCP-INPUT"},
		"a plan of another form": {plan, flagstat(`"cpus": 1`, `"cpus": 0`), "PLAN-CPUS"},
		"more threads":           {plan, flagstat(`"cpus": 1`, `"cpus": 32`), "HELIXMCP-THREADS"},
		"no plan":                {plan, "", "HELIXMCP-PLAN"},
		"no contract":            {"samtools_flagstat_slurm.v1.schema.json", "", "HELIXMCP-CONTRACT"},
		"a list of " +
			"artifacts": {"fastqc.v1.schema.json",
			`{"$id":"helixmcp:tool:fastqc:v1","type":"object","properties":{"reads":{"type":"array",` +
				`"items":{"$ref":"helixmcp:common#/$defs/ArtifactId"}}}}`, "HELIXMCP-LIST"},
		"another " +
			"type": {"fastqc.v1.schema.json",
			`{"$id":"helixmcp:tool:fastqc:v1","type":"object","properties":{"reads":{"$ref":"helixmcp:common#` +
				`/$defs/ArtifactId"},"s":{"$ref":"helixmcp:common#/$defs/StudioState"}}}`, "HELIXMCP-REF"},
		"another file":     {"more.json", `{"a": 1}`, "CONVERT-UNKNOWN"},
		"another document": {"more.yaml", "a: 1\n", "CONVERT-UNKNOWN"},
		"two policies":     {"more.yaml", head, "CONVERT-TWICE"},
		"two keys":         {"more.json", `{"a":1,"a":2}`, "JSON-DUPLICATE-KEY"},
		"an unknown field": {policy, head + "colour: red\n", "HELIXMCP-UNKNOWN-FIELD"},
		"another version":  {policy, strings.Replace(head, "version: 1", "version: 2", 1), "HELIXMCP-RANGE"},
		"no collecting":    {policy, head + "slurm: {network_mode_required: none}\n", "HELIXMCP-REQUIRED"},
		"a network":        {policy, head + "slurm: {network_mode_required: host}\n", "HELIXMCP-NETWORK"},
		"no maximum at all": {policy, head + "slurm: {network_mode_required: none, max_cpus: 0, max_collect_output_bytes: 1, " +
			"max_collect_log_bytes: 1}\n", "HELIXMCP-RANGE"},
		"a constraint that is an option": {policy, head + "slurm: {constraints_allowlist: ['--wrap=x'], network_mode_required: none, " +
			"max_collect_output_bytes: 1, max_collect_log_bytes: 1}\n", "HELIXMCP-NAME"},
		"a tag": {policy, head + "slurm: {apptainer: {image_allowlist: ['docker://a/b:1']}, network_mode_required: none, " +
			"max_collect_output_bytes: 1, max_collect_log_bytes: 1}\n", "HELIXMCP-IMAGE"},
		"no quota of imports": {policy, "version: 1\ntool_allowlist: []\n", "HELIXMCP-REQUIRED"},
		"a lock that is none": {"images.lock.yaml", "version: 1\n", "LOCK-REQUIRED"},
	} {
		r, err := Convert("helixmcp", helixFiles(t, map[string]string{c.name: c.text}))
		has := slices.ContainsFunc(r.Refused, func(p fault.Problem) bool { return p.Code == c.code })
		if err != nil || !has || len(r.Files) > 0 {
			t.Errorf("%s: %v %v", what, r.Refused, err)
		}
	}
}

// Whatever is given, a conversion answers, and what it refuses has a reason.
func FuzzFromHelixMCP(f *testing.F) {
	for _, s := range []string{"version: 1\ntool_allowlist: [slurm_submit]\nquotas: {max_import_bytes: 1}\n",
		`{"$id":"helixmcp:tool:a_b:v1"}`,
		`{"job_spec":{"version":1}}`, "tool_allowlist: {}\nslurm: []\nimports: 1\n"} {
		f.Add("a_b.yaml", s)
		f.Add("a_b.plan.json", s)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		r, err := Convert("helixmcp", []File{{name, []byte(text)}})
		if err == nil && len(r.Files) == 0 && len(r.Refused) == 0 {
			t.Error("nothing made, nothing refused")
		}
		for _, p := range r.Refused {
			if p.Msg == "" {
				t.Error(p)
			}
		}
	})
}
