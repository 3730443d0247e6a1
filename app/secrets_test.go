package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/secrets/corpus"
	"slurmgate/site"
)

// stored adds an artifact without a call that checks its content, like a job's output.
func (g *Gateway) stored(t *testing.T, content, typ string) string {
	t.Helper()
	sum, size, err := g.Store.Put(t.Context(), strings.NewReader(content), int64(len(content)))
	must(t, err)
	a := run.Artifact{ProjectID: plan.ProjectID("mine"), SHA256: sum, Type: typ, Label: "x", SizeBytes: size, Source: "import"}
	if a.ID, err = plan.ArtifactID(a.ProjectID, a.SHA256, a.Type, a.Label); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Ledger.AddArtifact(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// At most five of the planted kinds of secrets pass the gateway: as an argument, in an environment, a label, an
// error, a preview of text and one of a table. Typical texts of laboratories pass.
func TestSecretsThroughTheGateway(t *testing.T) {
	g := tableGateway(t)
	who := everything("a", plan.ProjectID("mine"))
	survived := map[string]map[string]bool{}
	note := func(kind, way string) {
		if survived[way] == nil {
			survived[way] = map[string]bool{}
		}
		survived[way][kind] = true
	}
	call := func(tool string, args any) gate.Response {
		return g.Gate.Call(t.Context(), who, request(t, g.toolOf(t, tool), args, false))
	}
	refused := func(res gate.Response) bool {
		return res.Error != nil && strings.Contains(fmt.Sprint(res.Error), "secret_in_args")
	}
	planted := corpus.Planted(31)
	var texts strings.Builder
	for _, p := range planted {
		if !refused(call("artifact.import", map[string]any{"text": "a line\n" + p.Text + "\n", "project_id": plan.ProjectID("mine")})) {
			note(p.Kind, "argument")
		}
		if !refused(call("slurm.submit", map[string]any{"execution": map[string]any{"env": map[string]any{"X": p.Text}}})) {
			note(p.Kind, "environment")
		}
		if !refused(call("artifact.import", map[string]any{"text": "x", "label": p.Text})) {
			note(p.Kind, "label")
		}
		if res := call("slurm.job.get", map[string]any{"run_id": strings.ReplaceAll(p.Text, "\n", " ")}); strings.Contains(
			fmt.Sprint(res.Error), p.Core) {
			note(p.Kind, "error")
		}
		if !strings.Contains(p.Core, "\n") {
			fmt.Fprintf(&texts, "%s\n\n", p.Text)
		}
		id := g.stored(t, "first\n"+p.Text+"\nlast\n", "TEXT")
		if res := call("artifact.preview.text", map[string]any{"artifact_id": id}); !res.OK || strings.Contains(said(res), p.Core) {
			note(p.Kind, "preview of text")
		}
		table := g.stored(t, "a\tb\n1\t"+strings.ReplaceAll(p.Text, "\n", " ")+"\n", "TSV")
		if res := call("artifact.preview.table", map[string]any{"artifact_id": table}); !strings.Contains(p.Core, "\n") &&
			(!res.OK || strings.Contains(said(res), p.Core)) {
			note(p.Kind, "preview of a table")
		}
	}
	for way, kinds := range survived {
		if t.Logf("%s: %d of %d: %v", way, len(kinds), len(planted), kinds); len(kinds) > 5 {
			t.Errorf("%s: %d of %d kinds survive", way, len(kinds), len(planted))
		}
	}
	for _, h := range corpus.Harmless(31, 400) {
		if res := call("artifact.import", map[string]any{"text": h.Text, "project_id": plan.ProjectID("mine")}); refused(res) {
			t.Errorf("%s: %q: %+v", h.Kind, h.Text, res.Error)
		}
	}
}

// said returns the text of an answer, without JSON's escapes.
func said(res gate.Response) string {
	var v any
	if json.Unmarshal(res.Result, &v) != nil {
		return string(res.Result)
	}
	return fmt.Sprint(v)
}

// A preview is cut after the search for secrets: neither half of a secret at its edges is shown, whatever row or line
// it begins with.
func TestPreviewsAreCutOutsideSecrets(t *testing.T) {
	g := tableGateway(t)
	who := everything("a", plan.ProjectID("mine"))
	key := corpus.Planted(3)
	var private, token string
	for _, p := range key {
		switch p.Kind {
		case "OPENSSH private key":
			private = p.Text
		case "GitHub token":
			token = p.Core
		}
	}
	most := int(g.Policy.Limits.PreviewBytes)
	for _, before := range []int{4, 12, 30} {
		lines := strings.Repeat(strings.Repeat(".", 999)+"\n", most/1000-1)
		id := g.stored(t, lines+strings.Repeat(".", most-before-len(lines)-1)+" "+token+" and more\n", "TEXT")
		var got PreviewAnswer
		g.says(t, who, "artifact.preview.text", map[string]any{"artifact_id": id}, "", &got)
		if strings.Contains(got.Text, token[:4]) || !got.Truncated || len(got.Text) < most-200 {
			t.Errorf("%d: %q", before, got.Text[len(got.Text)-60:])
		}
	}
	body := strings.Split(private, "\n")
	id := g.stored(t, "first line\n"+private+"\nlast line\n", "TEXT")
	for n := 2; n < len(body); n += 5 {
		var got PreviewAnswer
		g.says(t, who, "artifact.preview.text", map[string]any{"artifact_id": id, "max_lines": n}, "", &got)
		if strings.Contains(got.Text, body[1]) {
			t.Errorf("%d lines: %q", n, got.Text)
		}
	}
	table := g.stored(t, "name,note\nx,y\n"+private+"\nlast,line\n", "CSV")
	for first := 0; first < len(body); first += 3 {
		res := g.says(t, who, "artifact.preview.table", map[string]any{"artifact_id": table, "first_row": first, "max_rows": 4}, "", nil)
		for _, line := range body[1 : len(body)-1] {
			if strings.Contains(string(res.Result), line) {
				t.Errorf("from row %d: %s", first, res.Result)
			}
		}
	}
	wide := g.stored(t, "name,note\nx,"+strings.Repeat("n", 230)+" "+token+"\n", "CSV")
	if res := g.says(t, who, "artifact.preview.table", map[string]any{"artifact_id": wide}, "", nil); strings.Contains(string(res.Result),
		token[:8]) {
		t.Errorf("%s", res.Result)
	}
	columns := g.stored(t, "user,Passwort\nanna,Sommerregen\nbert,Winterwald\n", "CSV")
	if res := g.says(t, who, "artifact.preview.table", map[string]any{"artifact_id": columns}, "", nil); strings.Contains(string(res.Result),
		"Sommer") ||
		!strings.Contains(string(res.Result), "anna") {
		t.Errorf("%s", res.Result)
	}
}

// A site's own patterns apply to arguments and previews.
func TestPatternsOfTheSite(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\n", func(s *site.Site) {
		s.Secrets.Patterns = []site.SecretPattern{{Name: "key of the LIMS", Pattern: `\bLIMS-([0-9]{6})\b`, Keywords: []string{"LIMS-"}},
			{Name: "badge", Pattern: `badge [A-Z]{3}`}}
	})
	who := everything("a", plan.ProjectID("mine"))
	for _, text := range []string{"use lims-1 LIMS-123456", "my badge XYZ"} {
		g.says(t, who, "artifact.import", map[string]any{"text": text}, "secret_in_args", nil)
		id := g.stored(t, text+"\n", "TEXT")
		res := g.says(t, who, "artifact.preview.text", map[string]any{"artifact_id": id}, "", nil)
		if strings.Contains(string(res.Result), "123456") || strings.Contains(string(res.Result), "XYZ") ||
			!strings.Contains(string(res.Result), "[redacted]") {
			t.Errorf("%s", res.Result)
		}
	}
	g.says(t, who, "artifact.import", map[string]any{"text": "LIMS-12 badge xyz"}, "", nil)
}
