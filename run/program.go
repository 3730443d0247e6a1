package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"slurmgate/fault"
	"slurmgate/plan"
)

// verifyProgram checks that what a plan executes is there as it was pinned: the image, whose path as jobs see it is
// returned, or the gateway's own script, which each attempt gets with its control files.
func (e *Engine) verifyProgram(ctx context.Context, spec plan.Spec) (image string, err error) {
	if spec.Execution.Kind != plan.Scripted {
		return e.Images.Verify(ctx, spec.ImageDigest())
	}
	if sum := sha256.Sum256(e.cfg.Program); hex.EncodeToString(sum[:]) != spec.ImageDigest() {
		return "", fault.New(fault.NotFound, "program_replaced", "the run was made by another version of slurmgate, whose script this one "+
			"does not have").
			WithNext("make the call again that started this run: it starts another one")
	}
	return "", nil
}

// programFiles returns the control files with the program of an attempt.
func (e *Engine) programFiles(spec plan.Spec) []ControlFile {
	if spec.Execution.Kind != plan.Scripted {
		return nil
	}
	return []ControlFile{{ProgramFile, e.cfg.Program}}
}

// start sets a job's program: its path, and the arguments after the runtime's own.
func (e *Engine) start(job *JobSpec, p plan.Params, inputs []Placed, image string) {
	if p.Spec.Execution.Kind == plan.Scripted {
		job.ImagePath = job.ControlPath(ProgramFile)
		job.ExecArgs = append([]string{job.ImagePath}, p.Spec.Execution.Command.Argv...)
		return
	}
	job.ImagePath, job.ExecArgs = image, e.Images.ExecArgs(p.Spec, p.Tool.Asked(), inputs, image, job.RunDir, job.AttemptDir())
}
