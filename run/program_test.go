package run_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// A plan of the gateway's own script needs no image: each attempt gets the script, which is pinned by its digest. A
// gateway with another script, as a later version has it, starts nothing.
//
// proves DATA-07
func TestScripted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Program = []byte("#!/bin/bash\n")
		sum := sha256.Sum256(w.cfg.Program)
		scripted := func(p *plan.Params) {
			p.Spec.Execution.Kind = plan.Scripted
			p.Spec.Execution.Container = plan.Container{Engine: "bash", Image: "sha256:" + hex.EncodeToString(sum[:]), NetworkMode: "host"}
		}
		l := w.life()
		a := l.submit(order(scripted))
		w.with(func() {
			j := w.jobs[0].spec
			if j.ImagePath != j.ControlPath(run.ProgramFile) || !slices.Equal(j.ExecArgs, append([]string{j.ImagePath},
				j.Spec.Execution.Command.Argv...)) {
				t.Errorf("the job executes %s with %q, want the program file with the arguments of its command",
					j.ImagePath, j.ExecArgs)
			}
			w.start(w.jobs[0])
			w.finish(w.jobs[0])
		})
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
		sum[0]++
		if _, err := l.engine.Submit(t.Context(), order(scripted)); fault.CodeOf(err) != "program_replaced" {
			t.Error(err)
		}
	})
}
