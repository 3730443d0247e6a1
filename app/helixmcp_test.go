package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/convert"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/toolpack"
)

// An import in HelixMCP's form gives the same artifact as one in ours.
//
// proves SRC-01
func TestImportInHelixMCPsForm(t *testing.T) {
	root := t.TempDir()
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\n")
	g.Policy.Import.Roots = []string{root}
	importer, err := artifact.NewImporter(g.Store, artifact.ImportPolicy{Roots: []artifact.Root{{Folder: root}}, MaxBytes: 1 << 20})
	must(t, err)
	g.Importer = importer
	who := everything("token:helix", gate.All)
	who.Principal.Method = gate.ByToken
	project := plan.ProjectID("mine")
	file := filepath.Join(root, "reads.txt")
	must(t, os.WriteFile(file, []byte("@r1\nACGT\n"), 0o600))
	m := func(kv ...any) map[string]any {
		out := map[string]any{"project_id": project}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	is := func(args any) (id string) {
		var out ArtifactDoc
		g.says(t, who, "artifact.import", args, "", &out)
		return out.ArtifactID + " " + out.Type + " " + out.Label
	}
	for what, pair := range map[string][2]map[string]any{
		"text": {m("text", "@r1\n", "label", "a", "type", "TEXT"),
			m("source", map[string]any{"kind": "inline_text", "text": "@r1\n"}, "label", "a", "type_hint", "TEXT")},
		"path": {m("path", file), m("source", map[string]any{"kind": "local_path", "path": file})},
		"long": {m("text", "x", "label", strings.Repeat("é", 256)),
			m("source", map[string]any{"kind": "inline_text", "text": "x"}, "label", strings.Repeat("é", 256))},
		"both names of the type": {m("text", "x", "type", "MD"), m("text", "x", "type", "MD", "type_hint", "MD")},
	} {
		if ours, theirs := is(pair[0]), is(pair[1]); ours != theirs {
			t.Errorf("%s: %s and %s", what, ours, theirs)
		}
	}
	for code, args := range map[string][]map[string]any{"IMPORT-SOURCE": {
		m("source", map[string]any{"kind": "local_path"}), m("source", map[string]any{"kind": "inline_text"}),
		m("source", map[string]any{"kind": "inline_text", "text": "x", "path": file}),
		m("source", map[string]any{"kind": "local_path", "text": "x", "path": file}),
		m("source", map[string]any{"kind": "inline_text", "text": "x"}, "text", "x"),
		m("text", "x", "type", "MD", "type_hint", "TEXT"),
	}, "ARGS-SCHEMA": {
		m("source", map[string]any{"kind": "url", "text": "x"}), m("source", map[string]any{"kind": "inline_text", "text": "x", "more": 1}),
		m("source", "x"), m("text", "x", "label", strings.Repeat("a", 257)), m("text", "x", "type_hint", "bam")}} {
		for _, a := range args {
			g.says(t, who, "artifact.import", a, code, nil)
		}
	}
	// Without a root there is no import by path, in this form either.
	g = gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\nimport: {kinds: [text]}\n")
	g.says(t, who, "artifact.import", m("source", map[string]any{"kind": "local_path", "path": file}), "POLICY-IMPORT-KIND", nil)
}

// A preview shows at most the bytes asked for, and never more than policy allows.
func TestPreviewBytes(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\nlimits: {preview_bytes: 100}\n")
	who := everything("user:helix", gate.All)
	var made ArtifactDoc
	g.says(t, who, "artifact.import", map[string]any{"text": strings.Repeat("line\n", 100)}, "", &made)
	for asked, most := range map[int]int{10: 10, 1000: 100, 262144: 100, 0: 100} {
		args := map[string]any{"artifact_id": made.ArtifactID}
		if asked > 0 {
			args["max_bytes"] = asked
		}
		var shown PreviewAnswer
		g.says(t, who, "artifact.preview.text", args, "", &shown)
		if len(shown.Text) == 0 || len(shown.Text) > most || !shown.Truncated {
			t.Errorf("%d: %d bytes", asked, len(shown.Text))
		}
	}
}

// HelixMCP's example tools and policy open as a domain; its policy allows the same as before, and nothing where a
// list was absent.
//
// proves SRC-01 SRC-02
func TestConvertedFromHelixMCP(t *testing.T) {
	dir := t.TempDir()
	made, err := convertTools(t.Context(), gate.Call{}, ConvertArgs{From: "helixmcp", Files: []string{"../convert/testdata/helixmcp"},
		To: dir})
	if err != nil || len(made.Files) != 5 {
		t.Fatal(made, err)
	}
	d, p, err := ReadDomain(dir, toolpack.AllowMissingImages)
	must(t, err)
	pack, err := d.Packs().Get("helixmcp.fastqc")
	if err != nil || pack.ToolName() != "fastqc" || pack.ContractVersion() != "v1" || p.AllowTool("fastqc") != nil ||
		p.AllowTool("run_list") == nil {
		t.Error(pack, err)
	}
	digest, _ := d.Lock().Digest("samtools")
	flagstat, err := d.Packs().Get("samtools.flagstat.slurm")
	must(t, err)
	outline := flagstat.Outline(digest)
	if err := p.AllowPlan(outline, false, "samtools"); err != nil {
		t.Error(err)
	}
	qos := "high"
	for what, edit := range map[string]func(*plan.Placement){
		"another partition": func(p *plan.Placement) { p.Partition = "long" }, "another " +
			"account": func(p *plan.Placement) { p.Account = "x" },
		"a QOS": func(p *plan.Placement) { p.QOS = &qos },
	} {
		s := outline
		if edit(&s.Placement); p.AllowPlan(s, false, "samtools") == nil {
			t.Errorf("%s is allowed", what)
		}
	}
	for constraint, ok := range map[string]bool{"[rack1|rack2]": true, "avx512": true, "avx512*1": true, "rack1": false,
		"[rack1|rack2]&avx512": false} {
		s := outline
		if s.Placement.Constraint = &constraint; (p.AllowPlan(s, false, "samtools") == nil) != ok {
			t.Errorf("constraint %s: %v", constraint, !ok)
		}
	}
	// A policy without sections allows nothing at all.
	none := filepath.Join(t.TempDir(), "p.yaml")
	must(t, os.WriteFile(none, []byte("version: 1\ntool_allowlist: []\nquotas: {max_import_bytes: 1}\n"), 0o600))
	to := t.TempDir()
	if _, err := convertTools(t.Context(), gate.Call{}, ConvertArgs{From: "helixmcp", Files: []string{none}, To: to}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(to, toolpack.PolicyFileName))
	must(t, err)
	p, err = policy.Parse("p", data, os.LookupEnv)
	must(t, err)
	for _, kind := range policy.ImportKinds() {
		if p.AllowImport(kind, "TEXT", 1) == nil {
			t.Errorf("an import of kind %s is allowed", kind)
		}
	}
	if p.AllowTool("artifact_get") == nil || p.AllowPlan(outline, false, "samtools") == nil || p.Local.Allowed || p.Slurm.RawPlans.Allowed {
		t.Error("something is allowed")
	}
}

// The answer of Handshake's gate to tools/list becomes a domain that opens unchanged; a repeated conversion, even
// with force, keeps the policy that its administrator wrote meanwhile.
//
// proves SRC-02
func TestConvertedFromHandshake(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "tools.json"), t.TempDir()
	const list = `[{"tool_id":"photo.search","tool_version":"1.0.0","input_schema":{"type":"object"},"side_effect":"EXECUTE"}]`
	must(t, os.WriteFile(from, []byte(list), 0o600))
	again := func(force bool) ConvertAnswer {
		t.Helper()
		args := ConvertArgs{From: "handshake", Files: []string{from}, To: to, Force: force}
		made, err := convertTools(t.Context(), gate.Call{}, args)
		must(t, err)
		return made
	}
	again(false)
	if _, _, err := ReadDomain(to, toolpack.AllowMissingImages); err != nil {
		t.Errorf("the converted domain does not open: %v", err)
	}
	const policy = "version: 1\nconsent: {tools: [photo_search]}\n"
	must(t, os.WriteFile(filepath.Join(to, "policies.yaml"), []byte(policy), 0o600))
	for _, force := range []bool{false, true} {
		made := again(force)
		if !slices.ContainsFunc(made.Kept, func(n convert.Note) bool { return n.File == filepath.Join(to, "policies.yaml") }) {
			t.Errorf("converted again, force %v, the conversion says %v, want that the policy stayed", force, made.Kept)
		}
		if now, err := os.ReadFile(filepath.Join(to, "policies.yaml")); err != nil || string(now) != policy {
			t.Errorf("converted again, force %v, the policy is %q, %v; want what was written", force, now, err)
		}
	}
}

// Tools of HelixMCP without its policy become a domain that opens too, and the conversion reports what its policy
// allows.
//
// proves SRC-02
func TestConvertedWithoutPolicy(t *testing.T) {
	const from = "../convert/testdata/helixmcp/samtools_flagstat_slurm"
	to := t.TempDir()
	made, err := convertTools(t.Context(), gate.Call{}, ConvertArgs{From: "helixmcp", To: to, Files: []string{from + ".plan.json",
		from + ".v1.schema.json", "../convert/testdata/helixmcp/common.schema.json", "../convert/testdata/helixmcp/images.lock.yaml"}})
	must(t, err)
	if _, _, err := ReadDomain(to, toolpack.AllowMissingImages); err != nil {
		t.Errorf("the converted domain does not open: %v", err)
	}
	if !slices.ContainsFunc(made.Changed, func(n convert.Note) bool { return strings.Contains(n.Text, "no policy was given") }) {
		t.Errorf("the conversion says %v, want that no policy was given", made.Changed)
	}
}
