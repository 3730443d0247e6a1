package e2e

import (
	"maps"
	"os"
	"strings"
	"testing"
)

const (
	sampleTool = "probe.sample"
	samplePack = "id: probe.sample\n" + packHead + `inputSchema:
  type: object
  required: [reads, sample]
  additionalProperties: false
  properties: {reads: {type: string}, sample: {type: string}, log: {type: string, default: done}}
outputSchema: {type: object}
inputs: [{role: reads, param: reads, types: [TEXT], destRelpath: in/reads}]
declaredOutputs:
  - {role: result, type: TEXT, label: result, srcRelpath: out/result.txt}
  - role: logs
    type: DIRECTORY
    label: logs
    srcRelpath: out/logs
    lines: [{file: run.log, pattern: 'Overwriting', is: failure, message: two samples have one name}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
execution: {kind: cli, cmd: [testprog, write, out/result.txt, "SM:{{ params.sample }}", out/logs/run.log, "started\n{{ params.log }}\n"]}
`
)

// The column sample of a sheet names the rows and reaches the program; a call without a sample is refused. A program
// that reports in its log that one sample replaced another one fails, although it exits 0, with the line as the reason.
//
// proves MANY-01
// short: many runs
func TestSamplesStayApart(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.addTool(sampleTool, samplePack)
	s.serve()
	reads := s.file("reads.txt", "the reads of two people\n")
	sheet := s.file("sheet.csv", "sample,reads\nP1,"+reads+"\nP2,"+reads+"\n")
	s.ok(nil, "batch", "run", sampleTool, "--sheet", sheet, "--name", "people")
	s.ok(nil, "batch", "wait", "people", "--timeout", timeLeft(t))
	var got struct {
		Files []struct{ Sample, Role, Path string }
	}
	s.ok(&got, "batch", "collect", "people", "--to", s.dir+"/collected")
	written := map[string]string{}
	for _, f := range got.Files {
		if f.Role == "result" {
			content, err := os.ReadFile(host(s.dir) + "/collected/" + f.Path)
			must(t, err)
			written[f.Sample] = string(content)
		}
	}
	if want := map[string]string{"P1": "SM:P1", "P2": "SM:P2"}; !maps.Equal(written, want) {
		t.Errorf("by sample the program wrote %v, want %v", written, want)
	}
	if f := s.fails(2, "run", sampleTool, "--input", "reads="+reads); !strings.Contains(text(t, f), "sample") {
		t.Errorf("a run without a sample was refused with %v, want a refusal that names the argument sample", f)
	}
	var a submitted
	s.ok(&a, "run", sampleTool, "--input", "reads="+reads, "--param", "sample=P1", "--param", "log=Overwriting: P1")
	l := s.wait(a.RunID)
	s.endedBadly(l, "failed", "OUTPUT-LINES", "rejected:logs", "rejected:result")
	if want := `two samples have one name (one line of out/logs/run.log: "Overwriting: P1")`; !strings.Contains(l.why(), want) {
		t.Errorf("the run failed for %q, want %q", l.why(), want)
	}
}
