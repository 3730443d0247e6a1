package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// chainPack is a tool that adds a word to a text, or fails where it is told to.
func chainPack(name string) string {
	return strings.ReplaceAll(`id: chain.NAME
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
deterministic: true
timeoutMs: 60000
limits: {maxInputBytes: 1048576, maxOutputBytes: 1048576}
inputSchema: {type: object, required: [text], additionalProperties: false, properties: {text: {type: string}, how: {type: string, enum: [copy, fail], default: copy}}}
outputSchema: {type: object}
inputs: [{role: text, param: text, types: [TEXT], destRelpath: in/text}]
declaredOutputs: [{role: NAME, type: TEXT, label: NAME.txt, srcRelpath: out/NAME.txt}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 30}
execution: {kind: cli, cmd: [testprog, "{{ params.how }}", "NAME\n"], stdin: in/text, stdout: out/NAME.txt}
`, "NAME", name)
}

const chainSteps = `steps:
  - {name: one, tool: chain.one}
  - {name: two, tool: chain.two, from: {text: one.one}}
  - {name: three, tool: chain.three, from: {text: two.two}}
`

// Three tools over three samples from one steps file: the runs of later steps wait for those before, survive a gateway that is killed, and
// start by themselves; what one sample's first step fails to make ends the other two with a reason. Asked for with the artifact, the run
// that waited is the run; where the output came from is told back to the import.
//
// proves MANY-04
func TestChains(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("domain/manifest.yaml", "tools:\n", "tools:\n  - {tool_id: chain.one, kind: job_worker}\n"+
		"  - {tool_id: chain.two, kind: job_worker}\n  - {tool_id: chain.three, kind: job_worker}\n")
	for _, name := range []string{"one", "two", "three"} {
		must(t, os.WriteFile(host(s.dir)+"/domain/toolpacks/chain."+name+".tool.yaml", []byte(chainPack(name)), 0o644))
	}
	must(t, giveToLab(host(s.dir)))
	d := s.serve()
	sheet := "sample,text,one.how\n"
	for _, x := range []string{"A", "B", "C"} {
		how := map[string]string{"C": "fail"}[x]
		sheet += x + "," + s.file(x+".txt", x+"\n") + "," + how + "\n"
	}
	steps := s.file("steps.yaml", chainSteps)
	bad := s.file("bad.yaml", strings.Replace(chainSteps, "one.one", "one.uno", 1))
	if f := s.fails(2, "batch", "run", "--steps", bad, "--sheet", s.file("s.csv", sheet), "--name", "all"); !strings.Contains(text(t, f),
		`no output \"uno\"`) {
		t.Errorf("%+v", f)
	}
	run := []string{"batch", "run", "--steps", steps, "--sheet", s.file("s.csv", sheet), "--name", "all"}
	var began struct {
		Rows  int
		Steps []struct{ Step, Name string }
	}
	if s.ok(&began, run...); began.Rows != 9 || len(began.Steps) != 3 {
		t.Fatalf("%+v", began)
	}
	type row struct {
		RunID string `json:"run_id"`
		Phase string
	}
	var list struct {
		Waiting      []row
		WaitingTotal int `json:"waiting_total"`
	}
	until(t, patience, "runs that wait", func() bool {
		list.WaitingTotal = 0
		s.ok(&list, "runs", "list")
		return list.WaitingTotal > 0 && list.Waiting[0].Phase == "waiting_for_inputs"
	})
	d.signal("KILL")
	d.ended(t)
	s.serve()
	var now struct {
		Counts map[string]int
		Over   bool
		Steps  []struct {
			Step   string
			Counts map[string]int
		}
		Causes []struct{ Step, Cause, Reason string }
	}
	s.cli("batch", "wait", "all", "--timeout", "3m", "--json").object(t, &now)
	if !now.Over || now.Counts["succeeded"] != 6 || now.Counts["failed"]+now.Counts["refused"] != 3 || len(now.Steps) != 3 {
		t.Fatalf("%+v", now)
	}
	causes := fmt.Sprint(now.Causes)
	for _, want := range []string{"one tool_failed", "two input_failed", "three input_failed"} {
		if !strings.Contains(causes, want) {
			t.Errorf("no %s among %s", want, causes)
		}
	}
	var rows struct {
		Samples []struct {
			Sample string
			RunID  string `json:"run_id"`
		}
	}
	s.ok(&rows, "batch", "status", "all.three", "--samples", "--state", "succeeded")
	if len(rows.Samples) != 2 {
		t.Fatalf("%+v", rows)
	}
	a := rows.Samples[0]
	got := s.wait(a.RunID)
	if out := string(s.bytesOf(got.Roles["three"])); out != "A\none\ntwo\nthree\n" {
		t.Errorf("%q", out)
	}
	var tree struct{ Traced []traced }
	s.ok(&tree, "trace", got.Roles["three"])
	if len(tree.Traced) != 4 || tree.Traced[3].Origin != "import" || tree.Traced[3].ArtifactID != tree.Traced[2].MadeBy.Inputs[0].ArtifactID {
		t.Fatalf("%+v", tree)
	}
	two := tree.Traced[1]
	// Both ways to ask find it: by the artifact, and by the run that makes the artifact.
	for _, in := range []string{"text=" + two.ArtifactID, "text=" + two.MadeBy.RunID + ":two"} {
		var again struct {
			RunID    string `json:"run_id"`
			Replayed bool
		}
		if s.ok(&again, "run", "chain.three", "-i", in); again.RunID != a.RunID || !again.Replayed {
			t.Errorf("%s: %+v, want %s", in, again, a.RunID)
		}
	}
}

type traced struct {
	ArtifactID string `json:"artifact_id"`
	Origin     string
	MadeBy     struct {
		RunID  string `json:"run_id"`
		ToolID string `json:"tool_id"`
		Inputs []struct {
			ArtifactID string `json:"artifact_id"`
		}
	} `json:"made_by"`
}
