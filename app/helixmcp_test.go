package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/toolpack"
)

// An import in HelixMCP's form is the import in ours: the same artifact.
//
// proves SRC-01
func TestImportInHelixMCPsForm(t *testing.T) {
	root := t.TempDir()
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\nimport: {roots: ["+root+"]}\n")
	importer, err := artifact.NewImporter(g.Store, artifact.ImportPolicy{Roots: []artifact.Root{{Folder: root}}, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	g.Importer = importer
	who := everything("token:helix", gate.All)
	who.Principal.Method = gate.ByToken
	project := plan.ProjectID("mine")
	file := filepath.Join(root, "reads.txt")
	if err := os.WriteFile(file, []byte("@r1\nACGT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// HelixMCP's example tools and policy open as a domain; its policy allows what it allowed, and nothing where a list was absent.
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
	if err != nil {
		t.Fatal(err)
	}
	pack, err := d.Packs().Get("helixmcp.fastqc")
	if err != nil || pack.ToolName() != "fastqc" || pack.ContractVersion() != "v1" || p.AllowTool("fastqc") != nil ||
		p.AllowTool("run_list") == nil {
		t.Error(pack, err)
	}
	digest, _ := d.Lock().Digest("samtools")
	flagstat, err := d.Packs().Get("samtools.flagstat.slurm")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(none, []byte("version: 1\ntool_allowlist: []\nquotas: {max_import_bytes: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if _, err := convertTools(t.Context(), gate.Call{}, ConvertArgs{From: "helixmcp", Files: []string{none}, To: to}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(to, toolpack.PolicyFileName))
	if err != nil {
		t.Fatal(err)
	}
	p, err = policy.Parse("p", data, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range policy.ImportKinds() {
		if p.AllowImport(kind, "TEXT", 1) == nil {
			t.Errorf("an import of kind %s is allowed", kind)
		}
	}
	if p.AllowTool("artifact_get") == nil || p.AllowPlan(outline, false, "samtools") == nil || p.Local.Allowed || p.Slurm.RawPlans.Allowed {
		t.Error("something is allowed")
	}
}
