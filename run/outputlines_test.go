package run_test

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

// A line that the pack calls a failure ends the run of a program that exited 0, in an output as in a file of a
// directory, however much is around it, and the reason quotes the line. A file whose lines are judged must exist. No
// output of the program then counts as complete.
//
// proves ABI-15
func TestLinesOfOutputs(t *testing.T) {
	much := strings.Repeat("[DEBUG] nothing to see in this line\n", 50_000)
	for name, c := range map[string]struct{ file, prefix, log, reason, detail string }{
		"a file": {"table ", "lost", much + "lost: reads\n" + much, "OUTPUT-LINES",
			`the reads are broken (one line of out/t.tsv: "lost: reads")`},
		"a file of a directory": {"table run.log", "lost", much + "lost: reads\n" + much, "OUTPUT-LINES",
			`the reads are broken (one line of out/t.tsv/run.log: "lost: reads")`},
		"a file that is not there": {"table other.log", "lost", "lost: reads\n", "OUTPUT-LINES",
			"the program exited 0 but did not write out/t.tsv/other.log, whose lines the tool's contract judges"},
		"no such line":             {"table run.log", "lost", much + "nothing is lost\n", "ok", ""},
		"another file's line":      {"table a.txt", "lost", "lost: reads\n", "ok", ""},
		"a line of another output": {"report ", "lost", "lost: reads\n", "ok", ""},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.cfg.OutputBytes = 10 << 20
			folder := strings.Contains(c.file, ".")
			v := ended(t, w, func(p *plan.Params) {
				p.Tool.MaxOutputBytes = 10 << 20
				if folder {
					p.Spec.IO.Outputs[1].Type = plan.Directory
				}
			}, func(j *job, a *attempt) {
				w.asked.lines = byPattern(c.file, c.prefix, run.LineFailure)
				a.out["out/t.tsv"] = c.log
				w.finish(j)
				if folder {
					delete(a.out, "out/t.tsv")
					a.out["out/t.tsv/a.txt"], a.out["out/t.tsv/run.log"] = "fine\n", c.log
					w.manifest(j)
					first := "file " + hash([]byte("fine\n"))
					head := fmt.Sprintf("directory 2 %d out/t.tsv\n", len("fine\n")+len(c.log))
					a.ctl["manifest"] = []byte(strings.Replace(string(a.ctl["manifest"]), first, head+first, 1))
				}
			})
			end := run.Failed
			if c.reason == "ok" {
				end = run.Succeeded
			}
			w.want(v, end, c.reason)
			if v.Run.Detail != c.detail && c.detail != "" {
				t.Errorf("the detail is %q, want %q", v.Run.Detail, c.detail)
			}
			if end == run.Failed {
				w.wantOutputs(v.Run.ID, "rejected:report rejected:table")
			}
		})
	}
}
