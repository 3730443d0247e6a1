package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/plan"
)

// The files of a directory are listed from any of them on, and each is read by its path in the list. A path that the list has not, wherever
// it leads, is no file of it; what is one file has no list.
//
// proves ARC-01
func TestFilesOfADirectory(t *testing.T) {
	g := tableGateway(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/out/logs", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if err := os.WriteFile(fmt.Sprintf("%s/out/logs/lane%02d.txt", dir, i), []byte(strings.Repeat("line\n", i+1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/secret", []byte("outside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if g.Importer, err = artifact.NewImporter(g.Store, artifact.ImportPolicy{MaxBytes: 1 << 20, Roots: []artifact.Root{{Folder: dir,
		Projects: []string{plan.ProjectID("demo")}}}}); err != nil {
		t.Fatal(err)
	}
	g.Policy.Import.Roots = []string{dir} // as at the start of a gateway
	who := gate.Caller{Transport: gate.MCP, Principal: gate.Principal{Name: "token:a", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport}, []string{plan.ProjectID("demo")})}}
	path, text := dir+"/out", "one\n"
	var folder, file ImportAnswer
	g.says(t, who, "artifact.import", ImportArgs{Path: &path}, "", &folder)
	g.says(t, who, "artifact.import", ImportArgs{Text: &text}, "", &file)
	var p PreviewAnswer
	show := func(args map[string]any, code string) {
		t.Helper()
		p = PreviewAnswer{}
		if args["artifact_id"] == nil {
			args["artifact_id"] = folder.ArtifactID
		}
		g.says(t, who, "artifact.preview.text", args, code, &p)
	}
	if show(map[string]any{"max_lines": 4}, ""); p.FilesTotal != 30 || !p.Truncated || strings.Count(p.Text, "\n") != 4 ||
		!strings.Contains(p.Text, "  logs/lane02.txt\n") {
		t.Errorf("%+v", p)
	}
	if show(map[string]any{"first_file": 28}, ""); p.FirstFile != 28 || strings.Contains(p.Text, "lane27") ||
		!strings.HasSuffix(p.Text, "  logs/lane28.txt\n         150  logs/lane29.txt\n") {
		t.Errorf("%+v", p)
	}
	if show(map[string]any{"first_file": 30}, ""); p.FilesTotal != 30 || strings.Count(p.Text, "\n") != 1 {
		t.Errorf("%+v", p)
	}
	if show(map[string]any{"path": "logs/lane01.txt"}, ""); p.Text != "line\nline\n" || p.SizeBytes != 10 || p.Path != "logs/lane01.txt" {
		t.Errorf("%+v", p)
	}
	if show(map[string]any{"path": "logs/lane29.txt", "max_bytes": 20}, ""); len(p.Text) > 20 || !p.Truncated {
		t.Errorf("%+v", p)
	}
	for _, none := range []string{"logs", "lane01.txt", "../secret", "logs/../../secret", dir + "/secret", "logs//lane01.txt"} {
		show(map[string]any{"path": none}, "file_not_found")
	}
	show(map[string]any{"artifact_id": file.ArtifactID, "path": "one"}, "PREVIEW-DIRECTORY")
	show(map[string]any{"artifact_id": file.ArtifactID, "first_file": 1}, "PREVIEW-DIRECTORY")
}
