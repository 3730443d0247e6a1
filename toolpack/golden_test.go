package toolpack

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/policy"
)

var update = flag.Bool("update", false, "add new packs, and new versions of packs, to the golden file")

const goldenFile = "testdata/runs.golden"

// goldenArgs are the arguments of the golden runs, besides one artifact for each input.
var goldenArgs = map[string]map[string]any{"qrencode.label": {"text": "sample 7"}, "seqkit.head": {"count": 5},
	"bwa.mem": {"sample": "patient7"}, "minimap2.align": {"sample": "patient7"},
	"values.mean": {"values": []any{1, 2.5}}, "values.order": {"values": []any{1, 2.5}}, "values.sum": {"values": []any{1, 2.5}}}

// The run id of every shipped pack, and of a plan submitted as it is, under a fixed policy, with fixed arguments and
// checksums. The file defines identity: from now on no change of the gateway changes the id of a pack or plan that
// did not change. An existing id is never regenerated: -update only adds what is new and drops packs and versions
// that no longer ship. When this test fails, the program computes another identity, and every earlier run would be
// made again: change the program back, or raise the version of a pack whose runs are meant to be others.
//
// proves ABI-06 ABI-07 ABI-08 ABI-09 ABI-19
func TestGoldenRunIDs(t *testing.T) {
	const policyText = `{"version":1,"tool_allowlist":["slurm_submit"],"slurm":{"partitions_allowlist":["short"]}}`
	pol, err := policy.Parse("policies.yaml", []byte(policyText), func(string) (string, bool) { return "", false })
	must(t, err)
	now := map[string]string{} // by what it is a run of: its id, and its params
	add := func(what, tool, contract string, p plan.Params) {
		params, err := p.Canonical()
		if err != nil {
			t.Fatal(what, err)
		}
		id := plan.Identity{ToolName: tool, ContractVersion: contract, PolicyHash: pol.Hash, ParamsHash: plan.Hash(params)}
		now[what] = id.RunID() + "\n" + string(params)
	}
	for _, dir := range shippedDomains(t) {
		d, err := openDir(dir, AllowMissingImages)
		must(t, err)
		for _, p := range d.Packs().List() {
			c := goldenCall(t, p, "art_", "sample")
			add(p.ID()+" "+p.Version(), p.ToolName(), p.ContractVersion(), c.Params(plan.ProjectID("demo"), "slurm_script_v1"))
		}
	}
	spec, err := plan.DecodeSpec([]byte(rawPlan), plan.Rules{})
	must(t, err)
	add("slurm.submit v1", "slurm_submit", "v1", plan.Params{ProjectID: plan.ProjectID("demo"), Script: "slurm_script_v1", Spec: spec})

	golden := readGolden(t)
	for _, what := range slices.Sorted(maps.Keys(now)) {
		switch was, known := golden[what]; {
		case !known && *update:
		case !known:
			t.Errorf("%s is new, or its version is: run go test ./toolpack -run TestGoldenRunIDs -update, and commit %s", what, goldenFile)
		case was != now[what]:
			t.Errorf("the identity of %s changed: its runs would all be made anew. Change the program back, or raise the version of the "+
				"pack.\nwas %s\nis  %s", what, was, now[what])
		}
	}
	if *update && !t.Failed() {
		var b strings.Builder
		for _, what := range slices.Sorted(maps.Keys(now)) {
			fmt.Fprintf(&b, "%s %s\n", what, now[what])
		}
		must(t, os.WriteFile(goldenFile, []byte(b.String()), 0o644))
		return
	}
	for what := range golden {
		if _, ok := now[what]; !ok {
			t.Errorf("%s no longer ships: run this test with -update", what)
		}
	}
}

// The same bytes under another name are the same run for a tool that never sees the name, and another one for a python, node or php tool,
// whose arguments name its inputs. Both link the artifacts they were called with.
//
// proves ABI-07 ABI-08 ABI-11
func TestNameOfAnInput(t *testing.T) {
	kinds := map[string]int{}
	for _, dir := range []string{"../domains/examples", "../domains/genomics"} {
		d, err := openDir(dir, AllowMissingImages)
		must(t, err)
		for _, p := range d.Packs().List() {
			if len(p.Inputs()) == 0 {
				continue
			}
			params := func(id, label string) (string, []plan.Input) {
				c := goldenCall(t, p, id, label)
				b, err := c.Params(plan.ProjectID("demo"), "slurm_script_v1").Canonical()
				must(t, err)
				return string(b), c.Spec.IO.Inputs
			}
			one, links := params("art_", "sample")
			two, others := params("art_7", "other")
			if sees := p.ExecutionKind() != "cli" || p.seesLabels(); (one != two) != sees || slices.Equal(links, others) {
				t.Errorf("%s, of kind %s, with other names of its inputs:\n%s\n%s\n%v %v", p.ID(), p.ExecutionKind(), one, two, links, others)
			}
			kinds[p.ExecutionKind()]++
		}
	}
	if kinds["cli"] == 0 || kinds["python"] == 0 || kinds["node"] == 0 || kinds["php"] == 0 {
		t.Error(kinds)
	}
}

// readGolden returns the contents of the golden file, two lines each: "ID VERSION run_…" and the canonical params.
func readGolden(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(goldenFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	out := map[string]string{}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		at := strings.LastIndexByte(lines[i], ' ')
		out[lines[i][:at]] = lines[i][at+1:] + "\n" + lines[i+1]
	}
	return out
}

// goldenCall canonicalises a call of a pack with one artifact for each input. What the artifacts are called does not change their bytes.
func goldenCall(t testing.TB, p *Pack, id, label string) Canonical {
	t.Helper()
	args, types := map[string]any{}, map[string]string{}
	maps.Copy(args, goldenArgs[p.ID()])
	for _, in := range p.Inputs() {
		var given []string
		for len(given) == 0 || in.List != nil && len(given) < in.List.Min {
			a := fmt.Sprintf("%s%0*d", id, 30-len(id), len(types))
			given, types[a] = append(given, a), in.Types[0]
		}
		if args[in.Param] = given[0]; in.List != nil {
			args[in.Param] = given
		}
	}
	sep := " "
	if p.seesLabels() {
		sep = "-"
	}
	raw, err := json.Marshal(args)
	must(t, err)
	env := testEnv()
	env.Artifact = func(id string) (ArtifactInfo, error) {
		return ArtifactInfo{SHA256: plan.Hash([]byte(id[29:]))[7:], Type: types[id], SizeBytes: 1, Label: label + sep + id[29:]}, nil
	}
	c, err := p.Canonicalize(raw, env)
	if err != nil {
		t.Fatal(p.ID(), err)
	}
	return c
}

// rawPlan is HelixMCP's example plan; under HelixMCP's own policy hash and project it has HelixMCP's run id, see the plan package.
const rawPlan = `{"version":1,"resources":{"time_limit_seconds":60,"cpus":1,"mem_mb":512,"gpus":null,"gpu_type":null},
 "placement":{"partition":"short","account":"bio","qos":null,"constraint":null},
 "execution":{"kind":"container","container":{"engine":"apptainer","image":"sha256:bf80e07e650becfd084db1abde0fe932b50f990a07fa56421ea647b552b5a406","network_mode":"none","readonly_rootfs":true},
  "command":{"argv":["samtools","flagstat","/work/in/input.bam"],"workdir":"/work","env":{}}},
 "io":{"inputs":[{"role":"bam","artifact_id":"art_01HZZZZZZZZZZZZZZZZZZZZZZZ","checksum_sha256":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","dest_relpath":"in/input.bam"}],
  "outputs":[{"role":"report","src_relpath":"out/report.txt","type":"TEXT","label":"report.txt"}]}}`

// seesLabels reports whether labels are part of paths.
func (p *Pack) seesLabels() bool {
	return slices.ContainsFunc(p.def.Inputs, func(in input) bool { return len(in.labels()) > 0 })
}
