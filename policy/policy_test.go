package policy

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

func env(name string) (string, bool) {
	v, ok := map[string]string{"PART": "short", "EMPTY": "", "LOOP": "${PART}", "NUM": "7"}[name]
	return v, ok
}

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse("policies.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// defaults returns the policy of a document with nothing but its version.
func defaults() *Policy {
	p, err := Parse("defaults", []byte("version: 1\n"), env)
	if err != nil {
		panic(err)
	}
	return p
}

const vector = "sha256:a18ff4a4f48b3eb517a3294efe36835d5b783e7a2fe68985091bfff88643023d"

// The hash covers the expanded document as given, in any notation. proves ABI-07 ARC-03
func TestHash(t *testing.T) {
	for name, text := range map[string]string{
		"JSON":      `{"version":1,"tool_allowlist":["slurm_submit"],"slurm":{"partitions_allowlist":["short"]}}`,
		"YAML":      "# a comment\nslurm:\n  partitions_allowlist:\n    - short\ntool_allowlist: [slurm_submit]\nversion: 1\n",
		"expansion": "version: 1\ntool_allowlist: [slurm_submit]\nslurm: {partitions_allowlist: [\"${PART}\"]}\n",
	} {
		p := parse(t, text)
		if p.Hash != vector || string(p.Snapshot) != `{"slurm":{"partitions_allowlist":["short"]},"tool_allowlist":["slurm_submit"],"version":1}` {
			t.Errorf("%s: %s %s", name, p.Hash, p.Snapshot)
		}
	}
	if d := defaults(); string(d.Snapshot) != `{"version":1}` || d.Hash != plan.Hash([]byte(`{"version":1}`)) {
		t.Error(d.Hash)
	}
	if parse(t, "version: 1\nlimits: {log_bytes: 1048576}\n").Hash == defaults().Hash {
		t.Error("a value that equals the default is still part of the document")
	}
}

func TestExpand(t *testing.T) {
	for in, want := range map[string]string{"a${PART}b": "ashortb", "${PART}${PART}": "shortshort", "${EMPTY}": "", "${LOOP}": "${PART}",
		"$PART": "$PART", "$": "$",
		"$${PART}": "${PART}", "x$${": "x${", "${NOPE}": "!", "${": "!", "${}": "!", "${A B}": "!", "${PART": "!"} {
		got, err := expand(in, 100, env)
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

// A short file that names a long variable many times is refused before the result is large.
func TestExpandIsBounded(t *testing.T) {
	value := strings.Repeat("x", 20_000)
	text := "version: 1\nenv: {X: \"" + strings.Repeat("${B}", 100_000) + "\", Y: \"${B}\"}\n"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Parse("p", []byte(text), func(string) (string, bool) { return value, true })
	runtime.ReadMemStats(&after)
	mib := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d MiB allocated for what would be %d MiB", mib, len(value)*100_000>>20)
	if fault.CodeOf(err) != "POLICY-SIZE" || !strings.Contains(err.Error(), "the value of B makes the policy too long") ||
		len(fault.ProblemsOf(err)) != 1 || mib > 64 {
		t.Errorf("%.300v (%d MiB)", err, mib)
	}
}

func TestDefaults(t *testing.T) {
	p := defaults()
	got := fmt.Sprintln(p.ToolAllowlist == nil, p.ImagesAllowlist == nil, p.Slurm.Partitions == nil, p.Slurm.MaxCPUs, p.Slurm.MaxGPUs,
		p.Slurm.RawPlans.Allowed, p.Import.Roots, p.Import.MaxBytes,
		p.Limits, p.EquivalentRuns, p.Network, p.Retry, p.Concurrency.Global, p.DefaultTimeoutSec, p.Logging.Level)
	if want := "true true true 256 16 false [] 1099511627776 {16384 200 1099511627776 1048576} submit none {1} 0 900 info\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	full := parse(t, `version: 1
tool_allowlist: []
images_allowlist: ["sha256:`+strings.Repeat("a", 64)+`"]
slurm: {max_gpus: 0, raw_plans: {allowed: true, entry_programs: {samtools: [samtools], "sha256:`+strings.Repeat("b", 64)+`": [python3.11]}}}
import: {max_bytes: 10}
limits: {preview_bytes: 1, preview_lines: 2, collect_bytes: 3, log_bytes: 4}
equivalent_runs: reuse
retry: {infrastructure_attempts: 0}
network: none
concurrency: {global: 5, per_tool: {samtools_flagstat: 2}}
default_timeout_sec: 60
egress_allowlist: ["api.example.org:443", "[::1]:80"]
logging: {level: debug}
`)
	got = fmt.Sprintln(*full.ToolAllowlist, full.Slurm.MaxGPUs, full.Slurm.RawPlans.Allowed, full.Import.Roots, full.Import.MaxBytes,
		full.Limits, full.EquivalentRuns, full.Retry, full.Concurrency, full.DefaultTimeoutSec, full.EgressAllowlist, full.Logging)
	if want := "[] 0 true [] 10 {1 2 3 4} reuse {0} {5 map[samtools_flagstat:2]} " +
		"60 [api.example.org:443 [::1]:80] {debug}\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "POLICY-YAML :1"},
		{"version: 1\n---\nversion: 1\n", "POLICY-DOCUMENTS :2"},
		{"version: 1\nversion: 1\n", "POLICY-DUPLICATE-KEY version:2"},
		{"version: &a 1\n", "POLICY-ANCHOR version:1"},
		{"version: 1\ntool_allowlist: [&a a, *a]\n", "POLICY-ANCHOR tool_allowlist[0]:2, POLICY-ALIAS tool_allowlist[1]:2"},
		{"version: !!int 1\n", "POLICY-TAG version:1"},
		{"version: !x 1\n", "POLICY-TAG version:1"},
		{"<<: {version: 1}\n", "POLICY-MERGE-KEY :1, POLICY-REQUIRED version:1"},
		{"[1]\n", "POLICY-TYPE :1"},
		{"tool_allowlist: []\n", "POLICY-REQUIRED version:1"},
		{"version: 2\n", "POLICY-RANGE version:1"},
		{"version: \"1\"\n", "POLICY-TYPE version:1"},
		{"version: 0x1\n", "POLICY-TYPE version:1"},
		{"version: 1\ncolour: red\n", "POLICY-UNKNOWN-FIELD colour:2"},
		{"version: 1\ntoolAllowlist: []\n", "POLICY-UNKNOWN-FIELD toolAllowlist:2"},
		{"version: 1\nslurm:\n  max_cpus: 0\n  max_mem_mb: 1.5\n  partitions_allowlist: [a b, 7, ok, ok]\n",
			"POLICY-RANGE slurm.max_cpus:3, POLICY-TYPE slurm.max_mem_mb:4, POLICY-SLURM-NAME slurm.partitions_allowlist[0]:5, POLICY-TYPE " +
				"slurm.partitions_allowlist[1]:5, POLICY-SLURM-NAME slurm.partitions_allowlist[3]:5"},
		{"version: 1\nslurm: {max_cpus: \"${NUM}\"}\n", "POLICY-TYPE slurm.max_cpus:2"},
		{"version: 1\nslurm: {accounts_allowlist: [\"${GONE}\"]}\n", "POLICY-ENV-UNDEFINED slurm.accounts_allowlist[0]:2"},
		{"version: 1\nslurm: {constraints_allowlist: [\"a&\"]}\n", "POLICY-SLURM-NAME slurm.constraints_allowlist[0]:2"},
		{"version: 1\nslurm: {raw_plans: {entry_programs: {x: [bash]}}}\n", "POLICY-ENTRY-PROGRAM slurm.raw_plans.entry_programs.x[0]:2"},
		{"version: 1\nslurm: {raw_plans: {entry_programs: {x: [/usr/bin/a]}}}\n", "POLICY-ENTRY-PROGRAM slurm.raw_plans.entry_programs.x[0]:2"},
		{"version: 1\nslurm: {raw_plans: {entry_programs: {\"x:1\": [a]}}}\n", "POLICY-IMAGE slurm.raw_plans.entry_programs.x:1:2"},
		{"version: 1\nslurm: {raw_plans: {env: [LC_ALL, LD_PRELOAD, \"A B\", TMPDIR]}}\n",
			"POLICY-ENV slurm.raw_plans.env[1]:2, POLICY-ENV slurm.raw_plans.env[2]:2, POLICY-ENV slurm.raw_plans.env[3]:2"},
		{"version: 1\ntool_allowlist: [samtools.flagstat]\n", "POLICY-TOOL-NAME tool_allowlist[0]:2"},
		{"version: 1\nimages_allowlist: [samtools]\n", "POLICY-IMAGE images_allowlist[0]:2"},
		{"version: 1\nimport: {roots: [/data]}\n", "POLICY-UNKNOWN-FIELD import.roots:2"},
		{"version: 1\nimport: {kinds: [path, mail], types_allowlist: [bam]}\n",
			"POLICY-IMPORT-KIND import.kinds[1]:2, POLICY-TYPE import.types_allowlist[0]:2"},
		{"version: 1\nenv: {LD_PRELOAD: x, \"A B\": y, N: 1}\n", "POLICY-ENV env.LD_PRELOAD:2, POLICY-ENV env.A B:2, POLICY-TYPE env.N:2"},
		{"version: 1\nnetwork: host\n", "POLICY-NETWORK network:2"},
		{"version: 1\nequivalent_runs: maybe\n", "POLICY-EQUIVALENT-RUNS equivalent_runs:2"},
		{"version: 1\nretry: {infrastructure_attempts: 11}\n", "POLICY-RANGE retry.infrastructure_attempts:2"},
		{"version: 1\nconcurrency: {per_tool: {a.b: 1}}\n", "POLICY-TOOL-NAME concurrency.per_tool.a.b:2"},
		{"version: 1\nlogging: {level: loud}\n", "POLICY-LOG-LEVEL logging.level:2"},
		{"version: 1\negress_allowlist: [\"h:0\", \"h:70000\", h]\n",
			"POLICY-EGRESS egress_allowlist[0]:2, POLICY-EGRESS egress_allowlist[1]:2, POLICY-EGRESS egress_allowlist[2]:2"},
	} {
		wantRefused(t, c.text, c.want)
	}
}

func TestAllowTool(t *testing.T) {
	if err := defaults().AllowTool("anything"); err != nil {
		t.Error(err)
	}
	p := parse(t, "version: 1\ntool_allowlist: [a_b, c_d]\n")
	if err := p.AllowTool("a_b"); err != nil {
		t.Error(err)
	}
	err := p.AllowTool("x_y")
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind != fault.Policy || e.Code != "POLICY-TOOL" || !strings.Contains(err.Error(),
		"tool_allowlist: a_b, c_d") {
		t.Error(err)
	}
}

// What may be imported, in which way, and how large; a denial names the rule and what it allows. proves ARC-02 ARC-06
func TestAllowImport(t *testing.T) {
	for _, c := range []struct {
		policy, kind, typ string
		size              int64
		want              string
	}{
		{"", "text", "BAM", 1, ""}, {"", "upload", "", -1, ""},
		{"", "path", "BAM", 1, "POLICY-IMPORT-ROOT path import.roots in the site file: none"},
		{"", "handed", "BAM", 1 << 40, ""},
		{"", "handed", "BAM", 1<<40 + 1, "POLICY-IMPORT-BYTES size_bytes import.max_bytes: at most 1099511627776"},
		{"max_bytes: 9", "upload", "", 10, "POLICY-IMPORT-BYTES size_bytes import.max_bytes: at most 9"},
		{"kinds: [text]", "upload", "BAM", 1, "POLICY-IMPORT-KIND import import.kinds: text"},
		{"kinds: []", "text", "BAM", 1, "POLICY-IMPORT-KIND import import.kinds: none"},
		{"types_allowlist: [BAM, FASTA]", "text", "FASTA", 1, ""}, {"types_allowlist: [BAM]", "text", "", 1, ""},
		{"types_allowlist: [BAM, VCF]", "text", "TSV", 1, "POLICY-IMPORT-TYPE type import.types_allowlist: BAM, VCF"},
		{"kinds: [path], types_allowlist: []", "text", "TSV", 1,
			"POLICY-IMPORT-KIND import import.kinds: path; POLICY-IMPORT-TYPE type import.types_allowlist: none"},
	} {
		err := parse(t, "version: 1\nimport: {"+c.policy+"}\n").AllowImport(c.kind, c.typ, c.size)
		if s := denials(err); s != c.want || err != nil && !fault.Is(err, fault.Policy) {
			t.Errorf("AllowImport(%s, %q, %d) under %q:\ngot  %s\nwant %s", c.kind, c.typ, c.size, c.policy, s, c.want)
		}
	}
}

// wantRefused reads a policy, and fails the test unless it has exactly these problems, each "CODE FIELD:LINE", with
// an explanation.
func wantRefused(t *testing.T, text, want string) {
	t.Helper()
	_, err := Parse("policies.yaml", []byte(text), env)
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, fmt.Sprintf("%s %s:%d", p.Code, p.Field, p.Line))
		if p.File != "policies.yaml" || p.Rule == "" || p.Msg == "" {
			t.Errorf("%q: the problem is %+v, want one with file, rule and message", text, p)
		}
	}
	if s := strings.Join(got, ", "); s != want || !fault.Is(err, fault.Validation) {
		t.Errorf("%q:\ngot  %s\nwant %s", text, s, want)
	}
}

// denials lists the problems of a denial, each with the rule that it breaks.
func denials(err error) string {
	var list []string
	for _, p := range fault.ProblemsOf(err) {
		list = append(list, p.Code+" "+p.Field+" "+strings.TrimPrefix(p.Rule, "policy "))
	}
	return strings.Join(list, "; ")
}

func spec() plan.Spec {
	gpus, kind, qos, con := 2, "a100", "quick", "x&y|z"
	return plan.Spec{Version: 1, Resources: plan.Resources{TimeLimitSeconds: 100, CPUs: 4, MemMB: 1000, GPUs: &gpus, GPUType: &kind},
		Placement: plan.Placement{Partition: "main", Account: "research", QOS: &qos, Constraint: &con},
		Execution: plan.Execution{Container: plan.Container{Image: "sha256:" + strings.Repeat("a", 64), NetworkMode: "none"},
			Command: plan.Command{Argv: []string{"samtools", "view"}, Env: map[string]string{}}}}
}

// A denial names every rule that forbids a plan, with what it allows. proves ARC-06
func TestAllowPlan(t *testing.T) {
	if err := defaults().AllowPlan(spec(), false, "samtools"); err != nil {
		t.Error(err)
	}
	a, b := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	for _, c := range []struct{ policy, image, want string }{
		{"slurm: {partitions_allowlist: [short, tiny]}", "s", "POLICY-PARTITION placement.partition slurm.partitions_allowlist: short, tiny"},
		{"slurm: {partitions_allowlist: []}", "s", "POLICY-PARTITION placement.partition slurm.partitions_allowlist: none"},
		{"slurm: {accounts_allowlist: [x]}", "s", "POLICY-ACCOUNT placement.account slurm.accounts_allowlist: x"},
		{"slurm: {qos_allowlist: [x]}", "s", "POLICY-QOS placement.qos slurm.qos_allowlist: x"},
		{"slurm: {constraints_allowlist: [x, z]}", "s", "POLICY-CONSTRAINT placement.constraint slurm.constraints_allowlist: x, z"},
		{"slurm: {gpu_types_allowlist: [v100]}", "s", "POLICY-GPU-TYPE resources.gpu_type slurm.gpu_types_allowlist: v100"},
		{"slurm: {max_cpus: 3}", "s", "POLICY-CPUS resources.cpus slurm.max_cpus: at most 3"},
		{"slurm: {max_mem_mb: 999}", "s", "POLICY-MEM resources.mem_mb slurm.max_mem_mb: at most 999"},
		{"slurm: {max_time_limit_seconds: 99}", "s", "POLICY-TIME-LIMIT resources.time_limit_seconds slurm.max_time_limit_seconds: at most 99"},
		{"slurm: {max_gpus: 1}", "s", "POLICY-GPUS resources.gpus slurm.max_gpus: at most 1"},
		{"images_allowlist: [\"" + b + "\"]", "s", "POLICY-IMAGE execution.container.image images_allowlist: " + b},
		{"images_allowlist: [\"" + a + "\"]", "", ""},
		{"slurm: {}", "", "POLICY-IMAGE execution.container.image policy: the images of images.lock.yaml"},
		{"slurm: {max_cpus: 1, partitions_allowlist: [x]}", "s",
			"POLICY-PARTITION placement.partition slurm.partitions_allowlist: x; POLICY-CPUS resources.cpus slurm.max_cpus: at most 1"},
	} {
		err := parse(t, "version: 1\n"+c.policy+"\n").AllowPlan(spec(), false, c.image)
		if s := denials(err); s != strings.Replace(c.want, "policy allows", "allows", 1) || err != nil &&
			!fault.Is(err, fault.Policy) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.policy, s, c.want)
		}
	}
}

// Raw plans start only the programs listed for the image, never a shell, inline code, or a caller's file. proves
// ABI-20
func TestRawPlans(t *testing.T) {
	open := parse(t, "version: 1\nslurm: {raw_plans: {allowed: true, entry_programs: {samtools: [samtools, python3, perl, node, Rscript], "+
		"\"sha256:"+strings.Repeat("a", 64)+"\": [bcftools]}}}\n")
	if err := defaults().AllowPlan(spec(), true, "samtools"); fault.CodeOf(err) != "POLICY-RAW-PLAN" {
		t.Error(err)
	}
	for _, c := range []struct {
		argv string
		want string
	}{
		{"samtools|view", ""}, {"/usr/bin/samtools|view", ""}, {"bcftools|x", ""}, {"python3|/work/in/x.py|--count", ""},
		{"perl|/work/in/x.pl|-i", ""},
		{"bwa|mem", "argv[0]"}, {"samtools2", "argv[0]"},
		{"/work/in/samtools", "argv[0]"}, {"/work/../work/in/samtools", "argv[0]"}, {"in/samtools", "argv[0]"}, {"./samtools", "argv[0]"},
		{"/proc/self/cwd/in/samtools", "argv[0]"}, {"/tmp/samtools", "argv[0]"},
		{"sh|-c|ls", "argv[0]"}, {"bash", "argv[0]"}, {"/bin/dash", "argv[0]"}, {"zsh", "argv[0]"}, {"ksh", "argv[0]"}, {"csh", "argv[0]"},
		{"tcsh", "argv[0]"}, {"fish", "argv[0]"}, {"busybox|sh", "argv[0]"},
		{"env|samtools", "argv[0]"}, {"xargs|samtools", "argv[0]"}, {"sudo|samtools", "argv[0]"}, {"awk|1", "argv[0]"}, {"gawk|1", "argv[0]"},
		{"bash5.2", "argv[0]"}, {"find|/", "argv[0]"}, {"/lib64/ld-linux-x86-64.so.2|/bin/sh", "argv[0]"},
		{"python3|-c|x", "argv[1]"}, {"python3|-Ic|x", "argv[1]"}, {"python3|-W|ignore|-c|x", "argv[3]"}, {"perl|-e|x", "argv[1]"},
		{"perl|-ne|x", "argv[1]"}, {"node|-e|x", "argv[1]"}, {"node|--eval=x", "argv[1]"}, {"node|--import|data:x", "argv[1]"},
		{"Rscript|-e|x", "argv[1]"},
		{"bcftools|+fill-tags|/work/in/x", ""}, {"bcftools|+/work/in/evil.so", "argv[1]"}, {"bcftools|+../work/in/evil", "argv[1]"},
		{"bcftools|plugin|/work/in/evil.so", "argv[1]"}, {"bcftools|view|-i|perl:/work/in/x.pl; perl.f(QUAL)", "argv[3]"},
		{"/var/tmp/samtools", "argv[0]"},
	} {
		s := spec()
		s.Execution.Command.Argv = strings.Split(c.argv, "|")
		err := open.AllowPlan(s, true, "samtools")
		got := ""
		for _, p := range fault.ProblemsOf(err) {
			got += strings.TrimPrefix(p.Field, "execution.command.")
			if p.Code != "POLICY-ENTRY-PROGRAM" {
				t.Errorf("%s: code %s", c.argv, p.Code)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q (%v)", c.argv, got, c.want, err)
		}
		// The same holds for each program of a pipe.
		s.Execution.Command.Argv, s.Execution.Command.Pipe = []string{"samtools", "view"}, [][]string{{"samtools"}, s.Execution.Command.Argv}
		got = ""
		err = open.AllowPlan(s, true, "samtools")
		for _, p := range fault.ProblemsOf(err) {
			got += strings.Replace(strings.TrimPrefix(p.Field, "execution.command."), "pipe[1]", "argv", 1)
		}
		if got != c.want {
			t.Errorf("%s in a pipe: got %q, want %q (%v)", c.argv, got, c.want, err)
		}
	}
	s := spec()
	s.Execution.Command.Env = map[string]string{"PATH": "/work/in", "PYTHONPATH": "/work/in", "BASH_ENV": "x", "TCLLIBPATH": "x",
		"UNKNOWN": "x",
		"TMPDIR":  "/work/in", "LC_ALL": "C", "OMP_NUM_THREADS": "4", "TZ": "UTC"}
	const some = "BASH_ENV PATH PYTHONPATH TCLLIBPATH TMPDIR UNKNOWN"
	for policy, want := range map[string]string{"": some,
		", env: [UNKNOWN, TZ]": "BASH_ENV LC_ALL OMP_NUM_THREADS PATH PYTHONPATH TCLLIBPATH TMPDIR",
		", env: []":            "BASH_ENV LC_ALL OMP_NUM_THREADS PATH PYTHONPATH TCLLIBPATH TMPDIR TZ UNKNOWN"} {
		p := parse(t, "version: 1\nslurm: {raw_plans: {allowed: true, entry_programs: {samtools: [samtools]}"+policy+"}}\n")
		var got []string
		for _, problem := range fault.ProblemsOf(p.AllowPlan(s, true, "samtools")) {
			got = append(got, strings.TrimPrefix(problem.Field, "execution.command.env."))
			if problem.Code != "POLICY-ENV" || !strings.HasPrefix(problem.Rule, "policy slurm.raw_plans.env: ") {
				t.Errorf("AllowPlan reports %s with rule %q, want POLICY-ENV with slurm.raw_plans.env", problem.Code, problem.Rule)
			}
		}
		if d := cmp.Diff(strings.Fields(want), got); d != "" {
			t.Errorf("%s: %s", policy, d)
		}
	}
	if err := open.AllowPlan(s, false, "samtools"); err != nil {
		t.Error("the rules for raw plans bind a toolpack", err)
	}
}

// An interpreter that an administrator lists is allowed, and reported when the policy is checked. The default
// variables of raw plans are not part of the hash.
func TestRawPlanNotes(t *testing.T) {
	const list = "version: 1\nslurm: {raw_plans: {allowed: true, entry_programs: {b: [python3.12, samtools], a: [java, tar]}}}\n"
	var got []string
	for _, note := range parse(t, list).Notes() {
		name, _, _ := strings.Cut(strings.TrimPrefix(note, "policies.yaml: slurm.raw_plans.entry_programs lists "), ": ")
		got = append(got, name)
	}
	if d := cmp.Diff([]string{"java for the image a", "tar for the image a", "python3.12 for the image b"}, got); d != "" {
		t.Error(d)
	}
	if off := parse(t, strings.Replace(list, "true", "false", 1)); len(off.Notes()) != 0 {
		t.Error("raw plans are not allowed", off.Notes())
	}
	if p := parse(t, list); p.Hash != "sha256:e5948241d60b2cea8076e4684e16b993315e1a60b461959b01345b7df8134dc9" {
		t.Error("the hash of a policy without the list of variables has changed", p.Hash)
	}
}

// Any bytes give a policy with a hash, or problems.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{"version: 1\n", "version: 1\nslurm: {max_cpus: 1}\ntool_allowlist: [\"${PART}\"]\n", "a: &a [*a]", "<<: *x",
		"? {a: b}\n: c", "!!map {}", "\"\\x00\": 1", "version: 1\nVersion: 1\n", strings.Repeat("[", 3000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("f", data, env)
		if (p == nil) != (err != nil) {
			t.Fatal("neither parsed nor refused")
		}
		if err != nil {
			if len(fault.ProblemsOf(err)) == 0 {
				t.Fatal("refused without a problem", err)
			}
			return
		}
		if p.Hash != plan.Hash(p.Snapshot) {
			t.Fatal("the hash is not that of the snapshot")
		}
		_ = p.AllowPlan(spec(), true, "x")
	})
}

// Users of a project share runs only where policy names the project, and a policy without such a list keeps its hash.
//
// proves SITE-08
func TestSharedProjects(t *testing.T) {
	if defaults().ExecutedAs.Shares(plan.ProjectID("demo")) {
		t.Error("shared without a word of it")
	}
	p := parse(t, "version: 1\nexecuted_as: {shared_projects: [demo, "+plan.ProjectID("lab")+"]}\n")
	for name, want := range map[string]bool{"demo": true, "lab": true, "other": false} {
		if p.ExecutedAs.Shares(plan.ProjectID(name)) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
	if p.Hash == defaults().Hash || !strings.Contains(string(p.Snapshot), `"executed_as":{"shared_projects":["demo",`) {
		t.Error(string(p.Snapshot))
	}
	for _, bad := range []string{"executed_as: {shared: [demo]}", "executed_as: {shared_projects: ['*']}", "executed_as: [demo]",
		"executed_as: {shared_projects: demo}"} {
		if _, err := Parse("policies.yaml", []byte("version: 1\n"+bad+"\n"), env); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// The limits of directories are part of the policy's hash only if it has some.
func TestDirectoryLimits(t *testing.T) {
	plain, bounded := parse(t, "version: 1\nimport: {max_bytes: 9}\n"), parse(t,
		"version: 1\nimport: {max_bytes: 9, directory: {max_files: 10, max_depth: 2, max_bytes: 100}}\n")
	if l := bounded.Import.Directory; l == nil || *l != (DirectoryLimits{10, 2, 100}) {
		t.Errorf("import.directory = %v, want 10 files, depth 2 and 100 bytes", l)
	}
	if plain.Hash == bounded.Hash || strings.Contains(string(plain.Snapshot), "directory") {
		t.Errorf("%s", plain.Snapshot)
	}
	if _, err := Parse("p.yaml", []byte("version: 1\nimport: {directory: {max_files: 0}}\n"), env); err == nil {
		t.Error("no files at all are allowed")
	}
}
