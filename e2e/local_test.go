package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const hereTool = `id: probe.here
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: docker
description: Does what it is asked to, at once, where the gateway is.
deterministic: true
timeoutMs: 600000
limits: {maxInputBytes: 1048576, maxOutputBytes: 1048576}
inputSchema:
  type: object
  required: [mode, note]
  properties:
    note: {type: string}
    mode: {type: string, enum: [write, report, await, exit, sleep, nothing]}
    a: {type: string, default: out/result}
    b: {type: string, default: done}
outputSchema: {type: object}
inputs: [{role: note, param: note, types: [TEXT], destName: note.txt}]
declaredOutputs: [{role: result, type: TEXT, label: result, srcRelpath: out/result}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 60}
execution: {kind: cli, cmd: [testprog, "{{ params.mode }}", "{{ params.a }}", "{{ params.b }}"]}
`

// here makes a site with the tool above, and a policy that lets it run here.
func here(t *testing.T, policy string) (s *site, args func(...string) []string) {
	t.Helper()
	s = newSite(t, "probing")
	s.addTool("probe.here", hereTool)
	s.replace("domain/policies.yaml", "network: none", "network: none\n"+policy)
	note := s.file("note", "a note\n")
	return s, func(params ...string) []string {
		out := []string{"run", "probe.here", "--input", "note=" + note}
		for _, p := range params {
			out = append(out, "--param", p)
		}
		return out
	}
}

// A docker plan runs at once where the gateway is: same script, same container, same proof of success, no job in Slurm. A call that is
// repeated is answered by a run that succeeded and by no other.
//
// proves ABI-06 ABI-13 ABI-15 ABI-17
func TestDockerPlans(t *testing.T) {
	s, call := here(t, "local: {max_running: 2}")
	s.serve()
	before := count(t)
	run := func(code int, params ...string) looked {
		t.Helper()
		var l looked
		r := s.cli(append(call(params...), "--wait", "--json")...)
		if r.code != code {
			t.Fatalf("%v, want exit %d", r, code)
		}
		r.object(t, &l)
		return l
	}
	good := run(0, "mode=report", "b=x")
	if good.State != "succeeded" {
		t.Fatalf("a docker plan: %v, want it succeeded", good)
	}
	var seen struct {
		Argv       []string
		Inputs     map[string]string
		Writes     map[string]string
		Interfaces []string
	}
	must(t, json.Unmarshal(s.bytesOf(good.Roles["result"]), &seen))
	if seen.Inputs["in/note.txt"] == "" && seen.Inputs["/work/in/note.txt"] == "" && seen.Inputs["note.txt"] == "" {
		t.Errorf("the program of a docker plan sees the inputs %v, want note.txt", seen.Inputs)
	}
	for _, name := range seen.Interfaces {
		if name != "lo" {
			t.Errorf("it has the network interface %s", name)
		}
	}
	if again := run(0, "mode=report", "b=x"); again.RunID != good.RunID || !strings.Contains(s.story(good.RunID).JobName, "-a1-") {
		t.Errorf("the same docker plan gives %v, want the first attempt of %s", again, good.RunID)
	}
	// Every output and only a good end: the same rules as for jobs.
	missing, failed := run(6, "mode=nothing"), run(6, "mode=exit", "a=3")
	if !strings.Contains(missing.why(), "out/result") || *failed.ExitCode != 3 {
		t.Errorf("without its output %v, with status 3 %v; want the output named, and the status", missing, failed)
	}
	for i := 2; i <= 3; i++ {
		if again := run(6, "mode=exit", "a=3"); again.RunID != failed.RunID || !strings.Contains(s.story(failed.RunID).
			JobName, fmt.Sprintf("-a%d-", i)) {
			t.Errorf("call %d of a docker plan that failed has the job name %s, want attempt %d of %s", i,
				s.story(failed.RunID).JobName, i, failed.RunID)
		}
	}
	// A cancelled one, and the time limit.
	var a submitted
	s.ok(&a, call("mode=sleep", "a=25")...)
	s.phase(a.RunID, "running")
	s.ok(nil, "cancel", a.RunID)
	s.ends(a.RunID, "cancelled")
	if after := count(t); after.Submitted != before.Submitted || after.BatchRPCs != before.BatchRPCs {
		t.Errorf("docker plans made Slurm count %+v, before %+v; want no jobs", after, before)
	}
	if n := shell(t, "root", `pgrep -c -f "$1" || true`, s.dir+"/[r]uns"); n != "0" {
		t.Errorf("%s processes are left", n)
	}
}

// A local run outlives its gateway, executes once, and is collected by the next.
//
// proves ABI-15
func TestDockerOutlivesGateway(t *testing.T) {
	t.Parallel()
	s, call := here(t, "local: {}")
	d := s.serve()
	var a submitted
	s.ok(&a, call("mode=await", "a=out/go", "b=out/result")...)
	s.started(a.RunID)
	workspace := s.story(a.RunID).Workspace
	d.signal("KILL")
	d.ended(t)
	next := s.serve()
	until(t, "the next gateway's check of its site", func() bool { return strings.Contains(next.text.String(), "the site was checked") })
	if l := s.phase(a.RunID, "running"); l.State != "running" {
		t.Errorf("after the gateway was killed %v, want it running", l)
	}
	s.letGo(workspace)
	if l := s.wait(a.RunID); l.State != "succeeded" || len(s.story(a.RunID).Sends) != 1 {
		t.Errorf("the docker run that outlived its gateway: %v with %d sends, want it succeeded with one", l,
			len(s.story(a.RunID).Sends))
	}
}
