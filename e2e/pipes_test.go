package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// pipePlan is a plan of several programs in a pipe, the first of which reads a file from standard input.
func (s *site) pipePlan(stdin artifactRow, programs ...[]string) tree {
	doc := probePlan(programs[0]...)
	var pipe [][]string
	for _, argv := range programs[1:] {
		if argv[0] != "nosuchprogram" {
			argv = append([]string{"testprog"}, argv...)
		}
		pipe = append(pipe, argv)
	}
	s.set(doc, "execution.command.pipe", pipe)
	s.set(doc, "execution.command.stdin", "in/note")
	s.set(doc, "execution.command.stdout", "out/result")
	s.set(doc, "io.inputs", []any{tree{"role": "note", "artifact_id": stdin.ArtifactID, "checksum_sha256": stdin.SHA256,
		"dest_relpath": "in/note"}})
	return doc
}

// A pipe of containers on the cluster: an input on standard input, three programs, the last one's output. The run succeeds only if all of
// them do; else it names the one that failed first, wherever that is, and ends as it would with one program where it is cancelled, runs out
// of time or of memory.
//
// proves DATA-03
func TestPipes(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	note := s.import1(s.file("note", "a note\n"))
	l := s.wait(s.submit(s.pipePlan(note, []string{"copy", "1"}, []string{"copy", "2"}, []string{"copy", "3"})).RunID)
	if got := string(s.bytesOf(l.Roles["result"])); l.State != "succeeded" || got != "a note\n123" {
		t.Errorf("%+v: %q", l, got)
	}
	for _, c := range []struct {
		name     string
		programs [][]string
		seconds  int
		code     int
		why      string
		says     string
	}{
		{"the first", [][]string{{"fail", "3", "first words"}, {"copy", ""}, {"copy", ""}}, 60, 3, "tool_failed",
			"program 1 of the pipe exited with status 3"},
		{"the middle", [][]string{{"pump"}, {"taste", "4"}, {"copy", ""}}, 60, 4, "tool_failed", "program 2 of the pipe exited with status 4"},
		{"the last", [][]string{{"pump"}, {"copy", ""}, {"taste", "5"}}, 60, 5, "tool_failed", "program 3 of the pipe exited with status 5"},
		{"the last has enough", [][]string{{"pump"}, {"taste", "0"}}, 60, 33, "tool_failed", "program 1 of the pipe exited with status 33"},
		{"none there", [][]string{{"pump"}, {"nosuchprogram"}, {"copy", ""}}, 60, 255, "program_not_started", "nosuchprogram"},
		{"time", [][]string{{"copy", "x"}, {"sleep", "600"}, {"copy", ""}}, 2, 124, "time_limit", "the plan's time limit"},
		{"memory", [][]string{{"copy", "x"}, {"hog", "4000"}, {"copy", ""}}, 60, -1, "out_of_memory", "more memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.as(t)
			doc := s.pipePlan(note, c.programs...)
			s.set(doc, "resources.time_limit_seconds", c.seconds)
			l := s.wait(s.submit(doc).RunID)
			r := s.cli("runs", "show", l.RunID)
			if l.State != "failed" || !strings.HasPrefix(l.why(), c.why) || c.code >= 0 && (l.ExitCode == nil || *l.ExitCode != c.code) ||
				!strings.Contains(string(r.stdout), c.says) || !strings.Contains(string(r.stdout), "| into") {
				t.Errorf("%+v\n%s", l, r.stdout)
			}
			if len(l.Roles) != 0 && l.Roles["result"] != "" {
				t.Error("an output of a run that failed", l.Roles)
			}
		})
	}
	a := s.submit(s.pipePlan(note, []string{"copy", "x"}, []string{"sleep", "600"}, []string{"copy", ""}))
	until(t, time.Minute, "the program in the middle", func() bool {
		_, err := os.Stat(host(s.story(a.RunID).Workspace) + "/a1/out/started")
		return err == nil
	})
	if r := s.cli("cancel", a.RunID); r.code != 0 {
		t.Fatal(r)
	}
	if l := s.wait(a.RunID); l.State != "cancelled" {
		t.Errorf("%+v", l)
	}
	// Policy judges each program, and no shell is one.
	bad := s.pipePlan(note, []string{"copy", "1"}, []string{"copy", "2"})
	s.set(bad, "execution.command.pipe", [][]string{{"testprog", "copy"}, {"bash", "-c", "true"}})
	if f := s.fails(4, "submit", s.plan(bad)); !strings.Contains(text(t, f), "execution.command.pipe[1][0]") {
		t.Errorf("%+v", f)
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

const formsTool = `id: probe.forms
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
deterministic: true
timeoutMs: 60000
limits: {maxInputBytes: 1048576, maxOutputBytes: 1048576}
inputSchema:
  type: object
  required: [reads, bams, bais]
  properties:
    reads: {type: string}
    bams: {type: array, items: {type: string}}
    bais: {type: array, items: {type: string}}
    regions: {type: string}
    level: {type: integer}
outputSchema: {type: object}
inputs:
  - {role: reads, param: reads, types: [TEXT], destRelpath: "in/reads/{label}"}
  - {role: bam, param: bams, types: [TEXT], list: {max: 8}, group: aln, destRelpath: "in/aln/{index}-{label}"}
  - {role: bai, param: bais, types: [TEXT], list: {max: 8}, group: aln, destRelpath: "in/aln/{index}-{label:bam}.bai"}
  - {role: regions, param: regions, types: [TEXT], optional: true, destRelpath: in/regions.bed}
declaredOutputs: [{role: result, type: JSON, label: result, srcRelpath: out/result.json}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 30}
execution:
  kind: cli
  cmd: [testprog, report, out/result.json, "{{ inputs.reads }}", {each: inputs.bam, args: ["-b", "{{ item }}"]},
    {when: params.regions is defined, args: ["-L", "{{ inputs.regions }}"]}, {when: params.level is defined, args: ["-q{{ params.level }}"]}]
`

// Lists, groups, optional inputs, labels and absent words, as a program in its container sees them: the exact files under the names
// that the samples have, and no word for what was not given.
//
// proves DATA-01 DATA-04
func TestFormsOfInputs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("domain/manifest.yaml", "tools:\n", "tools:\n  - {tool_id: probe.forms, kind: job_worker}\n")
	must(t, os.WriteFile(host(s.dir)+"/domain/toolpacks/probe.forms.tool.yaml", []byte(formsTool), 0o644))
	must(t, giveToLab(host(s.dir)))
	s.serve()
	id := map[string]string{}
	for _, name := range []string{"patient7.fq.txt", "a.bam.txt", "b.bam.txt", "a.idx.txt", "b.idx.txt", "regions.txt", "a sample.txt"} {
		id[name] = s.import1(s.file(name, "the content of "+name)).ArtifactID
	}
	list := func(names ...string) string {
		ids := []string{}
		for _, n := range names {
			ids = append(ids, id[n])
		}
		return text(t, ids)
	}
	type report struct {
		Argv   []string
		Inputs map[string]string
	}
	run := func(params ...string) (looked, report) {
		t.Helper()
		args := []string{"run", "probe.forms", "--wait"}
		for _, p := range params {
			args = append(args, "--param", p)
		}
		var l looked
		s.ok(&l, args...)
		var r report
		must(t, json.Unmarshal(s.bytesOf(l.Roles["result"]), &r))
		return l, r
	}
	both := []string{"reads=" + id["patient7.fq.txt"], "bams=" + list("b.bam.txt", "a.bam.txt"), "bais=" + list("b.idx.txt", "a.idx.txt")}
	least, got := run(both...)
	files := map[string]string{"in/reads/patient7.fq.txt": "the content of patient7.fq.txt",
		"in/aln/0001-b.bam.txt": "the content of b.bam.txt", "in/aln/0001-b.bam.txt.bai": "the content of b.idx.txt",
		"in/aln/0002-a.bam.txt": "the content of a.bam.txt", "in/aln/0002-a.bam.txt.bai": "the content of a.idx.txt"}
	same(t, "files", got.Inputs, files)
	words := []string{"/bin/testprog", "report", "out/result.json", "/work/in/reads/patient7.fq.txt", "-b",
		"/work/in/aln/0001-b.bam.txt", "-b", "/work/in/aln/0002-a.bam.txt"}
	same(t, "words", got.Argv, words)

	more, got := run(append(both, "regions="+id["regions.txt"], "level=3")...)
	files["in/regions.bed"] = "the content of regions.txt"
	same(t, "files", got.Inputs, files)
	same(t, "words", got.Argv, append(words, "-L", "/work/in/regions.bed", "-q3"))

	other, _ := run("reads="+id["patient7.fq.txt"], "bams="+list("a.bam.txt", "b.bam.txt"), "bais="+list("a.idx.txt", "b.idx.txt"))
	again, _ := run(both...)
	if least.RunID != again.RunID || least.RunID == other.RunID || least.RunID == more.RunID {
		t.Error("the order of a list and what is given are the identity:", least.RunID, again.RunID, other.RunID, more.RunID)
	}
	var links struct {
		Inputs []struct {
			Role    string `json:"role"`
			Relpath string `json:"relpath"`
		} `json:"inputs"`
	}
	s.ok(&links, "runs", "show", more.RunID)
	if len(links.Inputs) != len(files) {
		t.Errorf("%d linked inputs: %+v", len(links.Inputs), links)
	}
	for _, bad := range [][2]string{{"reads=" + id["a sample.txt"], "ARGS-LABEL"}, {"bais=" + list("a.idx.txt"), "ARGS-GROUP"},
		{"bams=[]", "ARGS-LIST"}} {
		name, _, _ := strings.Cut(bad[0], "=")
		args := []string{"run", "probe.forms", "--param", bad[0]}
		for _, p := range both {
			if !strings.HasPrefix(p, name+"=") {
				args = append(args, "--param", p)
			}
		}
		if f := s.fails(2, args...); !strings.Contains(text(t, f), bad[1]) {
			t.Errorf("%s: %+v", bad[1], f)
		}
	}
}
