package run

import (
	"context"
	"fmt"
	"io"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
)

// inputCorrupt is the reason of a run whose input did not pass the check its pack asks for.
const inputCorrupt = "input_corrupt"

// verifyInputs checks the inputs that the pack wants checked to their end, once for the same bytes and type. It reads the stored bytes, so
// it comes after staging, which compares their checksum. Only a pass is recorded: a later version may be right where this one is wrong.
func (e *Engine) verifyInputs(ctx context.Context, v View, p plan.Params) error {
	contract, _, err := e.contract(ctx, v)
	switch {
	case err != nil:
		return fault.Wrap(fault.Transport, "pack_unread", "the run's pack cannot be read now", err)
	case contract == nil:
		return nil
	}
	asked := func(in plan.Input) bool { return contract.Verify(in.Role) }
	if !slices.ContainsFunc(p.Spec.IO.Inputs, asked) {
		return nil
	}
	list, err := e.Index.Unverified(ctx, v.Run.ID)
	if err != nil {
		return err
	}
	done := map[[2]string]bool{} // two inputs may be the same bytes
	for _, in := range list {
		a := in.Artifact
		if !contract.Verify(in.Role) || done[[2]string{a.SHA256, a.Type}] {
			continue
		}
		wrong, err := e.verifyInput(ctx, a)
		switch {
		case err != nil:
			return err
		case wrong != nil:
			return fault.New(fault.Validation, inputCorrupt,
				fmt.Sprintf("the input %s (%s, %.200q) is not a whole %s file: %v; nothing was sent to Slurm", in.Role, a.ID, a.Label, a.Type, wrong)).
				WithNext("import a correct file and submit with its id")
		}
		if err := e.Index.Verified(ctx, a.SHA256, a.Type); err != nil {
			return err
		}
		done[[2]string{a.SHA256, a.Type}] = true
	}
	return nil
}

// verifyInput says what is wrong with the bytes of an artifact.
func (e *Engine) verifyInput(ctx context.Context, a Artifact) (wrong, err error) {
	f, _, err := e.Objects.Reader(ctx, a.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	check := e.Formats.CheckInput(a.Type)
	defer check.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			check.Write(buf[:n])
		}
		switch {
		case err == io.EOF:
			return check.Finish(), nil
		case err != nil:
			return nil, fault.Wrap(fault.Transport, "input_unreadable", "the bytes of "+a.ID+" cannot be read", err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
