package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// traces holds everything that a refused plan must leave unchanged.
type traces struct {
	Runs     int
	RunsDir  []string
	Counters counters
	Queue    string
}

func (s *site) traces() traces {
	s.t.Helper()
	var page runPage
	s.ok(&page, "runs", "list")
	entries := value(os.ReadDir(host(s.dir) + "/runs"))(s.t)
	tr := traces{Runs: len(page.Runs), Counters: count(s.t), Queue: shell(s.t, "root", "squeue -h -t all -o %i | sort")}
	for _, e := range entries {
		tr.RunsDir = append(tr.RunsDir, e.Name())
	}
	return tr
}

// Plans that break a rule are refused with code, field and rule, before any file, process, job or row exists.
//
// proves ABI-08 ABI-10 ABI-12 ABI-14 ABI-16 ABI-20 ARC-06 ARC-07
// short: every call passes the gate
func TestBadPlans(t *testing.T) {
	s := newSite(t, "probing")
	s.serve()
	input := s.import1(s.file("input.txt", "some input\n"))
	withInput := func(change ...any) tree {
		doc := probePlan("report", "out/result")
		in := tree{"role": "table", "artifact_id": input.ArtifactID, "checksum_sha256": input.SHA256, "dest_relpath": "in/input.txt"}
		for i := 0; i < len(change); i += 2 {
			in[change[i].(string)] = change[i+1]
		}
		doc["io"].(tree)["inputs"] = []any{in}
		return doc
	}
	changed := func(at string, value any) tree { return s.set(probePlan("nothing"), at, value) }
	output := func(change ...any) tree {
		doc := probePlan("nothing")
		out := doc["io"].(tree)["outputs"].([]any)[0].(tree)
		for i := 0; i < len(change); i += 2 {
			out[change[i].(string)] = change[i+1]
		}
		return doc
	}
	text := func(doc tree) string {
		b := value(json.Marshal(doc))(t)
		return string(b)
	}
	in := func(old, with string) string { // the plan's text with a replacement
		was := text(withInput())
		now := strings.Replace(was, old, with, 1)
		if now == was {
			t.Fatalf("the plan does not contain %s", old)
		}
		return now
	}
	const p, c, io0, out0 = "placement.", "execution.container.", "io.inputs[0].", "io.outputs[0]."
	tests := []struct {
		name  string
		plan  any // a document, or a text
		exit  int
		code  string
		field string
	}{
		{"not JSON", "version: 1", 2, "JSON-SYNTAX", ""},
		{"duplicate key", in(`"cpus":1`, `"cpus":1,"cpus":2`), 2, "JSON-DUPLICATE-KEY", "resources.cpus"},
		{"case twin", in(`"cpus":1`, `"cpus":1,"CPUs":2`), 2, "JSON-CASE-TWIN", "resources.CPUs"},
		{"unknown field", in(`"version":1`, `"version":1,"sbatch_options":"--uid=0"`), 2, "JSON-UNKNOWN-FIELD", "sbatch_options"},
		{"huge integer", in(`"cpus":1`, `"cpus":9007199254740993`), 2, "JSON-NUMBER", "resources.cpus"},
		{"zero time", changed("resources.time_limit_seconds", 0), 2, "PLAN-TIME-LIMIT", "resources.time_limit_seconds"},
		{"option as partition", changed(p+"partition", "--uid=0"), 2, "PLAN-PARTITION", p + "partition"},
		{"image by tag", changed(c+"image", "probe:latest"), 2, "PLAN-IMAGE", c + "image"},
		{"unknown digest", changed(c+"image", "sha256:"+strings.Repeat("0", 64)), 4, "POLICY-IMAGE", c + "image"},
		{"shell by path", changed("execution.command.argv", []string{"/bin/sh", "-c", "id"}), 4, "POLICY-ENTRY-PROGRAM",
			"execution.command.argv[0]"},
		{"loader's variable", changed("execution.command.env", tree{"LD_PRELOAD": "/work/in/x.so"}), 2, "PLAN-ENV",
			"execution.command.env.LD_PRELOAD"},
		{"variable not listed", changed("execution.command.env", tree{"LC_ALL": "C"}), 4, "POLICY-ENV", "execution.command.env.LC_ALL"},
		{"dots in dest", withInput("dest_relpath", "in/../x"), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"role with blanks around", withInput("role", " table "), 2, "PLAN-ROLE", io0 + "role"},
		{"unknown artifact", withInput("artifact_id", "art_"+strings.Repeat("0", 26)), 2, "PLAN-ARTIFACT-UNKNOWN", io0 + "artifact_id"},
		{"wrong checksum", withInput("checksum_sha256", strings.Repeat("0", 64)), 2, "PLAN-CHECKSUM", io0 + "checksum_sha256"},
		{"dots in source", output("src_relpath", "out/../ctl/exit"), 2, "PLAN-SRC-PATH", out0 + "src_relpath"},
		{"role log", output("role", "log"), 2, "PLAN-ROLE-RESERVED", out0 + "role"},
		{"partition not allowed", changed(p+"partition", "debug"), 4, "POLICY-PARTITION", p + "partition"},
		{"more memory than allowed", changed("resources.mem_mb", 16385), 4, "POLICY-MEM", "resources.mem_mb"},
	}
	before := s.traces()
	if before.Runs != 0 {
		t.Fatalf("before the first plan there are %+v, want no runs", before)
	}
	t.Run("each", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				s := s.as(t)
				var file string
				switch p := tt.plan.(type) {
				case string:
					file = s.planText(p)
				case tree:
					file = s.plan(p)
				}
				f := s.fails(tt.exit, "submit", file)
				if f.Code != tt.code {
					t.Errorf("the plan fails with %v, want %s", f, tt.code)
				}
				for _, p := range f.Details.Problems {
					if p.Code == tt.code && p.Field == tt.field && p.Rule != "" && p.Message != "" {
						return
					}
				}
				t.Errorf("the plan's problems are %+v, want one with code %s and field %q, a rule and a reason",
					f.Details.Problems, tt.code, tt.field)
			})
		}
	})
	same(t, "what refused plans left", s.traces(), before)

	t.Run("all at once", func(t *testing.T) {
		doc := withInput("role", " ", "dest_relpath", "/x")
		s.set(doc, "placement.partition", "a b")
		s.set(doc, "resources.cpus", 0)
		if f := s.as(t).fails(2, "submit", s.plan(doc)); len(f.Details.Problems) != 4 {
			t.Errorf("a plan that breaks four rules is refused with %d problems: %+v", len(f.Details.Problems),
				f.Details.Problems)
		}
	})
	t.Run("no file", func(t *testing.T) { s.as(t).fails(3, "submit", s.dir+"/nothing.json") })
	t.Run("the unbroken plans run", func(t *testing.T) {
		s := s.as(t)
		for _, doc := range []tree{withInput(), s.set(withInput(), c+"image", "probe@"+world.probe)} {
			s.ends(s.submit(doc).RunID, "succeeded")
		}
	})
}
