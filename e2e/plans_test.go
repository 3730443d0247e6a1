package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// traces is everything a refused plan must leave alone.
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
	entries, err := os.ReadDir(host(s.dir) + "/runs")
	must(s.t, err)
	tr := traces{Runs: len(page.Runs), Counters: count(s.t), Queue: shell(s.t, "root", "squeue -h -t all -o %i | sort")}
	for _, e := range entries {
		tr.RunsDir = append(tr.RunsDir, e.Name())
	}
	return tr
}

// Plans that break a rule are refused with code, field and rule, before any file, process, job or row exists.
//
// proves ABI-08 ABI-10 ABI-12 ABI-14 ABI-16 ABI-20 ARC-06 ARC-07
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
		b, err := json.Marshal(doc)
		must(t, err)
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
	twoInputs := withInput()
	io := twoInputs["io"].(tree)
	second := tree{"role": "other", "artifact_id": input.ArtifactID, "checksum_sha256": input.SHA256, "dest_relpath": "in/input.txt"}
	io["inputs"] = append(io["inputs"].([]any), second)

	const p, c, io0, out0 = "placement.", "execution.container.", "io.inputs[0].", "io.outputs[0]."
	tests := []struct {
		name  string
		plan  any // a document, or a text
		exit  int
		code  string
		field string // with … at its end: only how it begins
	}{
		{"not JSON", "version: 1", 2, "JSON-SYNTAX", ""},
		{"empty", "", 2, "JSON-SYNTAX", ""},
		{"a list", "[]", 2, "JSON-TYPE", ""},
		{"trailing data", text(withInput()) + "{}", 2, "JSON-TRAILING", ""},
		{"duplicate key", in(`"cpus":1`, `"cpus":1,"cpus":2`), 2, "JSON-DUPLICATE-KEY", "resources.cpus"},
		{"case twin", in(`"cpus":1`, `"cpus":1,"CPUs":2`), 2, "JSON-CASE-TWIN", "resources.CPUs"},
		{"unknown field", in(`"version":1`, `"version":1,"sbatch_options":"--uid=0"`), 2, "JSON-UNKNOWN-FIELD", "sbatch_options"},
		{"unknown field deep", in(`"cpus":1`, `"cpus":1,"nodes":4`), 2, "JSON-UNKNOWN-FIELD", "resources.nodes"},
		{"field in other case", in(`"image"`, `"Image"`), 2, "JSON-UNKNOWN-FIELD", "execution.container.Image"},
		{"huge integer", in(`"cpus":1`, `"cpus":9007199254740993`), 2, "JSON-NUMBER", "resources.cpus"},
		{"infinity", in(`"time_limit_seconds":60`, `"time_limit_seconds":1e999`), 2, "JSON-NUMBER", "resources.time_limit_seconds"},
		{"NaN", in(`"time_limit_seconds":60`, `"time_limit_seconds":NaN`), 2, "JSON-SYNTAX", "resources.time_limit_seconds"},
		{"lone surrogate", in(`"label":"result"`, `"label":"\ud800"`), 2, "JSON-UNICODE", "io.outputs[0].label"},
		{"half a CPU", in(`"cpus":1`, `"cpus":0.5`), 2, "JSON-TYPE", "resources.cpus"},
		{"time as text", in(`"time_limit_seconds":60`, `"time_limit_seconds":"UNLIMITED"`), 2, "JSON-TYPE", "resources.time_limit_seconds"},
		{"deep nesting", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), 2, "JSON-DEPTH", strings.Repeat("a.", 60) + "…"},
		{"another version", changed("version", 2), 2, "PLAN-VERSION", "version"},
		{"zero time", changed("resources.time_limit_seconds", 0), 2, "PLAN-TIME-LIMIT", "resources.time_limit_seconds"},
		{"eight days", changed("resources.time_limit_seconds", 691200), 2, "PLAN-TIME-LIMIT", "resources.time_limit_seconds"},
		{"zero memory", changed("resources.mem_mb", 0), 2, "PLAN-MEM", "resources.mem_mb"},
		{"huge memory", changed("resources.mem_mb", 1<<40), 2, "PLAN-MEM", "resources.mem_mb"},
		{"zero CPUs", changed("resources.cpus", 0), 2, "PLAN-CPUS", "resources.cpus"},
		{"minus one CPU", changed("resources.cpus", -1), 2, "PLAN-CPUS", "resources.cpus"},
		{"a thousand CPUs", changed("resources.cpus", 1000), 2, "PLAN-CPUS", "resources.cpus"},
		{"zero GPUs", changed("resources.gpus", 0), 2, "PLAN-GPUS", "resources.gpus"},
		{"GPU type alone", changed("resources.gpu_type", "a100"), 2, "PLAN-GPU-TYPE", "resources.gpu_type"},
		{"newline in partition", changed(p+"partition", "main\n#SBATCH --uid=0"), 2, "PLAN-PARTITION", p + "partition"},
		{"blank in partition", changed(p+"partition", "main --time=99"), 2, "PLAN-PARTITION", p + "partition"},
		{"option as partition", changed(p+"partition", "--uid=0"), 2, "PLAN-PARTITION", p + "partition"},
		{"two partitions", changed(p+"partition", "main,short"), 2, "PLAN-PARTITION", p + "partition"},
		{"no partition", changed(p+"partition", ""), 2, "PLAN-PARTITION", p + "partition"},
		{"newline in account", changed(p+"account", "research\n"), 2, "PLAN-ACCOUNT", p + "account"},
		{"option in account", changed(p+"account", "research --qos=tiny"), 2, "PLAN-ACCOUNT", p + "account"},
		{"option as account", changed(p+"account", "-A"), 2, "PLAN-ACCOUNT", p + "account"},
		{"blank as qos", changed(p+"qos", " "), 2, "PLAN-QOS", p + "qos"},
		{"option as qos", changed(p+"qos", "--exclusive"), 2, "PLAN-QOS", p + "qos"},
		{"newline in constraint", changed(p+"constraint", "intel\n--wrap=id"), 2, "PLAN-CONSTRAINT", p + "constraint"},
		{"option in constraint", changed(p+"constraint", "intel --nodes=9"), 2, "PLAN-CONSTRAINT", p + "constraint"},
		{"substitution in constraint", changed(p+"constraint", "$(id)"), 2, "PLAN-CONSTRAINT", p + "constraint"},
		{"image by tag", changed(c+"image", "probe:latest"), 2, "PLAN-IMAGE", c + "image"},
		{"image by name", changed(c+"image", "probe"), 2, "PLAN-IMAGE", c + "image"},
		{"image by URL", changed(c+"image", "docker://alpine@"+world.probe), 2, "PLAN-IMAGE", c + "image"},
		{"image as folder", changed(c+"image", "/shared/root"), 2, "PLAN-IMAGE", c + "image"},
		{"image as instance", changed(c+"image", "instance://x"), 2, "PLAN-IMAGE", c + "image"},
		{"short digest", changed(c+"image", "sha256:abcd"), 2, "PLAN-IMAGE", c + "image"},
		{"unknown digest", changed(c+"image", "sha256:"+strings.Repeat("0", 64)), 4, "POLICY-IMAGE", c + "image"},
		{"another engine", changed(c+"engine", "docker"), 2, "PLAN-ENGINE", c + "engine"},
		{"a network", changed(c+"network_mode", "host"), 2, "PLAN-NETWORK", c + "network_mode"},
		{"a writable root", changed(c+"readonly_rootfs", false), 2, "PLAN-ROOTFS", c + "readonly_rootfs"},
		{"no program", changed("execution.command.argv", []string{}), 2, "PLAN-ARGV", "execution.command.argv"},
		{"NUL in argv", changed("execution.command.argv", []string{"testprog", "a\x00b"}), 2, "PLAN-ARGV", "execution.command.argv[1]"},
		{"option as program", changed("execution.command.argv", []string{"--bind", "/:/mnt"}), 2, "PLAN-ARGV", "execution.command.argv[0]"},
		{"shell", changed("execution.command.argv", []string{"sh", "-c", "id"}), 4, "POLICY-ENTRY-PROGRAM", "execution.command.argv[0]"},
		{"shell by path", changed("execution.command.argv", []string{"/bin/sh", "-c", "id"}), 4, "POLICY-ENTRY-PROGRAM",
			"execution.command.argv[0]"},
		{"program of the workspace", changed("execution.command.argv", []string{"/work/in/testprog"}), 4, "POLICY-ENTRY-PROGRAM",
			"execution.command.argv[0]"},
		{"program not listed", changed("execution.command.argv", []string{"samtools"}), 4, "POLICY-ENTRY-PROGRAM", "execution.command.argv[0]"},
		{"another workdir", changed("execution.command.workdir", "/"), 2, "PLAN-WORKDIR", "execution.command.workdir"},
		{"runtime's variable", changed("execution.command.env", tree{"APPTAINER_BIND": "/"}), 2, "PLAN-ENV",
			"execution.command.env.APPTAINER_BIND"},
		{"Slurm's variable", changed("execution.command.env", tree{"SLURM_CONF": "/x"}), 2, "PLAN-ENV", "execution.command.env.SLURM_CONF"},
		{"loader's variable", changed("execution.command.env", tree{"LD_PRELOAD": "/work/in/x.so"}), 2, "PLAN-ENV",
			"execution.command.env.LD_PRELOAD"},
		{"path variable", changed("execution.command.env", tree{"PATH": "/work/in"}), 4, "POLICY-ENV", "execution.command.env.PATH"},
		{"variable not listed", changed("execution.command.env", tree{"LC_ALL": "C"}), 4, "POLICY-ENV", "execution.command.env.LC_ALL"},
		{"dots in dest", withInput("dest_relpath", "in/../x"), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"absolute dest", withInput("dest_relpath", "/etc/passwd"), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"dest elsewhere", withInput("dest_relpath", "out/x"), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"dest is in itself", withInput("dest_relpath", "in/"), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"blank at dest's end", withInput("dest_relpath", "in/x "), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"newline in dest", withInput("dest_relpath", "in/a\nb"), 2, "PLAN-DEST-PATH", io0 + "dest_relpath"},
		{"duplicate dest", twoInputs, 2, "PLAN-DEST-DUPLICATE", "io.inputs[1].dest_relpath"},
		{"blank role", withInput("role", " "), 2, "PLAN-ROLE", io0 + "role"},
		{"role with blanks around", withInput("role", " table "), 2, "PLAN-ROLE", io0 + "role"},
		{"role with tab", withInput("role", "ta\tble"), 2, "PLAN-ROLE", io0 + "role"},
		{"role with hard space", withInput("role", "ta\u00a0ble"), 2, "PLAN-ROLE", io0 + "role"},
		{"unknown artifact", withInput("artifact_id", "art_"+strings.Repeat("0", 26)), 2, "PLAN-ARTIFACT-UNKNOWN", io0 + "artifact_id"},
		{"no artifact id", withInput("artifact_id", "../../etc/passwd"), 2, "PLAN-ARTIFACT", io0 + "artifact_id"},
		{"wrong checksum", withInput("checksum_sha256", strings.Repeat("0", 64)), 2, "PLAN-CHECKSUM", io0 + "checksum_sha256"},
		{"no checksum", withInput("checksum_sha256", ""), 2, "PLAN-CHECKSUM", io0 + "checksum_sha256"},
		{"no outputs", changed("io.outputs", []any{}), 2, "PLAN-OUTPUTS", "io.outputs"},
		{"dots in source", output("src_relpath", "out/../ctl/exit"), 2, "PLAN-SRC-PATH", out0 + "src_relpath"},
		{"source in in/", output("src_relpath", "in/x"), 2, "PLAN-SRC-PATH", out0 + "src_relpath"},
		{"role log", output("role", "log"), 2, "PLAN-ROLE-RESERVED", out0 + "role"},
		{"role stdout", output("role", "stdout"), 2, "PLAN-ROLE-RESERVED", out0 + "role"},
		{"unknown type", output("type", "EXE"), 2, "PLAN-TYPE", out0 + "type"},
		{"stdout elsewhere", changed("execution.command.stdout", "out/other"), 2, "PLAN-STDOUT", "execution.command.stdout"},
		{"partition not allowed", changed(p+"partition", "debug"), 4, "POLICY-PARTITION", p + "partition"},
		{"account not allowed", changed(p+"account", "teaching"), 4, "POLICY-ACCOUNT", p + "account"},
		{"qos not allowed", changed(p+"qos", "gold"), 4, "POLICY-QOS", p + "qos"},
		{"constraint not allowed", changed(p+"constraint", "intel&amd"), 4, "POLICY-CONSTRAINT", p + "constraint"},
		{"more CPUs than allowed", changed("resources.cpus", 65), 4, "POLICY-CPUS", "resources.cpus"},
		{"more memory than allowed", changed("resources.mem_mb", 16385), 4, "POLICY-MEM", "resources.mem_mb"},
		{"more time than allowed", changed("resources.time_limit_seconds", 14401), 4, "POLICY-TIME-LIMIT", "resources.time_limit_seconds"},
		{"GPUs where none are", changed("resources.gpus", 1), 4, "POLICY-GPUS", "resources.gpus"},
	}
	before := s.traces()
	if before.Runs != 0 {
		t.Fatalf("%+v", before)
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
					t.Errorf("code %q, %q is due: %+v", f.Code, tt.code, f)
				}
				for _, p := range f.Details.Problems {
					begin, open := strings.CutSuffix(tt.field, "…")
					if p.Code == tt.code && (p.Field == tt.field || open && strings.HasPrefix(p.Field, begin)) && p.Rule != "" && p.Message != "" {
						return
					}
				}
				t.Errorf("no problem with code %s and field %q, a rule and a reason: %+v", tt.code, tt.field, f.Details.Problems)
			})
		}
	})
	same(t, "what refused plans left", s.traces(), before)

	t.Run("all at once", func(t *testing.T) {
		doc := withInput("role", " ", "dest_relpath", "/x")
		s.set(doc, "placement.partition", "a b")
		s.set(doc, "resources.cpus", 0)
		if f := s.as(t).fails(2, "submit", s.plan(doc)); len(f.Details.Problems) != 4 {
			t.Errorf("four rules are broken: %+v", f.Details.Problems)
		}
	})
	t.Run("no file", func(t *testing.T) { s.as(t).fails(3, "submit", s.dir+"/nothing.json") })
	t.Run("the unbroken plans run", func(t *testing.T) {
		s := s.as(t)
		for _, doc := range []tree{withInput(), s.set(withInput(), c+"image", "probe@"+world.probe)} {
			if l := s.wait(s.submit(doc).RunID); l.State != "succeeded" {
				t.Errorf("%+v", l)
			}
		}
	})
}

// Whole plans are for sites that allow them.
//
// proves ABI-20 ARC-06
func TestRawPlansNeedPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	f := s.fails(4, "submit", s.plan(probePlan("nothing")))
	if !strings.HasPrefix(f.Code, "POLICY-") || !strings.Contains(fmt.Sprint(f.Details.Problems), "POLICY-RAW-PLAN") {
		t.Errorf("%+v", f)
	}
	var page runPage
	if s.ok(&page, "runs", "list"); len(page.Runs) != 0 {
		t.Errorf("%+v", page)
	}
}
