package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// placed holds the fields of runs show that make up a run's identity, and its placement.
type placed struct {
	Params struct {
		Slurm struct {
			Placement struct{ Partition, Account, QOS *string } `json:"placement"`
			IO        struct{ Inputs []map[string]any }         `json:"io"`
		}
	}
	Binds    []struct{ Name, Version string }
	Warnings []string
	Inputs   []struct {
		ArtifactID string `json:"artifact_id"`
		Label      string
	}
	Attempts []struct {
		Placement *struct{ Partition, Account string }
	}
}

// A folder of the site is there for the tool that names it and for no other; the run reports it, another version of the
// folder is another run, and a gateway whose site does not offer it does not start.
//
// proves ABI-01 ABI-19
// short: a container sees its own workspace
func TestBinds(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	text := "id: probe.sees\ndescription: Sees what is there.\n" + packHead + `inputSchema: {type: object}
outputSchema: {type: object}
declaredOutputs: [{role: result, type: JSON, label: result, srcRelpath: out/result}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
binds: [ref]
execution: {kind: cli, cmd: [testprog, report, out/result]}
`
	s.addTool("probe.sees", text)

	f := s.fails(2, "run", "probe.sees")
	if f.Code != "PACK-BIND" || len(f.Details.Problems) != 1 || !strings.HasSuffix(f.Details.Problems[0].File, "probe.sees.tool.yaml") ||
		f.Details.Problems[0].Line != 15 || !strings.Contains(f.Details.Problems[0].Hint, "apptainer.binds") {
		t.Errorf("a tool that names a folder the site does not have fails with %v %+v, want PACK-BIND at its line",
			f, f.Details.Problems)
	}
	s.replace("site.yaml", "import:\n", "  binds:\n    - {name: ref, version: v1, source: /etc, target: /ref}\n    - {name: other, "+
		"version: v1, source: /etc, target: /other}\nimport:\n")
	var first, second submitted
	sees := func(r *submitted) (seen map[string]bool) {
		t.Helper()
		s.ok(r, "run", "probe.sees")
		l := s.mustEnd(r.RunID, "succeeded")
		var report struct{ Sees map[string]bool }
		must(t, json.Unmarshal(s.bytesOf(l.Roles["result"]), &report))
		return report.Sees
	}
	if seen := sees(&first); !seen["/ref"] || seen["/other"] {
		t.Errorf("the program sees %v", seen)
	}
	var shown placed
	s.ok(&shown, "runs", "show", first.RunID)
	if len(shown.Binds) != 1 || shown.Binds[0].Name != "ref" || shown.Binds[0].Version != "v1" || len(shown.Warnings) != 1 ||
		!strings.Contains(shown.Warnings[0], "ref, version v1") {
		t.Errorf("runs show has the binds %+v and the warnings %q, want ref, version v1", shown.Binds, shown.Warnings)
	}
	s.replace("site.yaml", "name: ref, version: v1", "name: ref, version: v2")
	if sees(&second); second.Replayed || second.RunID == first.RunID {
		t.Errorf("with another version of the folder the call gives %v, want another run than %s", second,
			first.RunID)
	}
}
