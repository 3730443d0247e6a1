package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"slurmgate/plan"
)

// A job that needs more memory than its tool gives ends for that reason, and a retry with more succeeds: the same run, with the memory and
// the time of the attempt in Slurm, in the ledger and in the answer. A call may ask for more in the first place, within policy, which is
// another run. Two files of equal bytes share the run, and each of the requests names the output by its own sample.
//
// short: success is proven
func TestMoreMemory(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	const pack = "domain/toolpacks/probe.small.tool.yaml"
	s.replace(pack, "required: [word], properties: {", "required: [word, data], properties: {data: {type: string}, ")
	s.replace(pack, "memMb: 100", "memMb: {base: 100, retryFactor: 6, max: 700}")
	s.replace(pack, `write, out/result, "{{ params.word }}"`, `hog, "{{ params.word }}"`)
	s.replace(pack, "strictOutputs: false", `inputs: [{role: data, param: data, types: [TEXT], destRelpath: in/data}]`)
	s.replace(pack, "label: result,", `label: result, downloadName: "{label}.size.txt",`)
	must(t, os.MkdirAll(host(s.dir)+"/files", 0o755))
	for _, name := range []string{"sample1.txt", "sample2.txt"} {
		must(t, os.WriteFile(host(s.dir)+"/files/"+name, []byte("equal bytes\n"), 0o644))
	}
	s.replace("site.yaml", "domain_dir:", "  socket: "+s.dir+"/gw.sock\ndomain_dir:")
	s.serve()
	first := []string{"run", "probe.small", "--input", "data=" + s.dir + "/files/sample1.txt", "--param", "word=300"}

	var a submitted
	s.ok(&a, first...)
	l := s.wait(a.RunID)
	if world.memory {
		s.endedBadly(l, "failed", "out_of_memory")
	} else {
		s.endedBadly(l, "failed", "tool_failed")
	}
	for _, c := range [][]string{{"--mem", "50M"}, {"--mem", "17G"}, {"--time", "5h"}, {"--mem", "8"}} {
		if r := s.cli(append([]string{"retry", a.RunID, "--json"}, c...)...); r.code != 2 && r.code != 4 {
			t.Errorf("%v, want a refusal", r)
		}
	}
	var again struct {
		submitted
		Warnings []string `json:"warnings"`
	}
	more := []string{"retry", a.RunID, "--time", "20m"} // the memory by the pack's factor
	if !world.memory {
		more = append(more, "--mem", "600M")
	}
	s.ok(&again, more...)
	if again.RunID != a.RunID || !strings.Contains(fmt.Sprint(again.Warnings), "memory from 100 to 600 MiB, time limit from 600 to 1200 s") {
		t.Errorf("retry with more memory returned run %s and the warnings %q, want run %s and what was raised", again.RunID,
			again.Warnings, a.RunID)
	}
	if l = s.wait(a.RunID); l.State != "succeeded" {
		t.Fatalf("after a retry with more memory %v, want it succeeded", l)
	}
	var shown struct {
		Attempts []struct{ Resources plan.Resources }
	}
	s.ok(&shown, "runs", "show", a.RunID)
	want := plan.Resources{CPUs: 1, MemMB: 600, TimeLimitSeconds: 1200}
	if len(shown.Attempts) != 2 || shown.Attempts[0].Resources.MemMB != 100 || shown.Attempts[1].Resources != want {
		t.Errorf("runs show has the attempts %+v, want one with 100 MiB and one with %+v", shown.Attempts, want)
	}
	oracle := func(runID string, memMB int) {
		t.Helper()
		if out := shell(t, "lab", `scontrol show job -o "$1"`, s.story(runID).SlurmJobID); !strings.Contains(out,
			fmt.Sprintf(" MinMemoryNode=%dM ", memMB)) {
			t.Errorf("Slurm shows the job as %s, want %d MiB of memory", out, memMB)
		}
	}
	oracle(a.RunID, 600)

	var larger submitted
	s.ok(&larger, append(first, "--mem", "0.5G")...)
	if l := s.wait(larger.RunID); larger.RunID == a.RunID || l.State != "succeeded" {
		t.Errorf("a call with more memory: %v, want another run that succeeded", l)
	}
	oracle(larger.RunID, 512)
	if r := s.cli(append(first, "--mem", "17G", "--json")...); r.code != 4 || !strings.Contains(string(r.stdout), "at most 16384") {
		t.Errorf("%v, want exit 4 and policy's bound", r)
	}

	named := func(name string) {
		t.Helper()
		s.ok(nil, "collect", a.RunID, "--to", s.dir+"/"+name)
		if _, err := os.Stat(host(s.dir) + "/" + name + "/" + name + ".txt.size.txt"); err != nil {
			t.Errorf("collect does not name the output by the sample: %v", err)
		}
	}
	named("sample1")
	var shared submitted
	s.ok(&shared, "run", "probe.small", "--input", "data="+s.dir+"/files/sample2.txt", "--param", "word=300")
	if shared.RunID != a.RunID {
		t.Errorf("equal bytes under another name give %v, want run %s", shared, a.RunID)
	}
	named("sample2")

	// A download over HTTP and an answer to a chat have the name too.
	id := l.Roles["result"]
	head := shell(t, "lab", `curl -sSo /dev/null -D - --unix-socket "$1" "http://gateway/v1/artifacts/$2/content"`, s.dir+"/gw.sock", id)
	if !strings.Contains(head, "\nContent-Disposition: attachment; filename=\"sample2.txt.size.txt\"\r\n") {
		t.Errorf("the download has the head\n%s\nwant the name sample2.txt.size.txt", head)
	}
	c := s.chat(t, "2025-11-25")
	c.expect(c.say("artifact_get", tree{"artifact_id": id}, nil), "downloaded as sample2.txt.size.txt")
	c.expect(c.say("slurm_job_collect", tree{"run_id": a.RunID}, nil), "sample2.txt.size.txt")
}
