package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
)

// inputCorrupt is the reason of a run whose input did not pass the check its pack asks for.
const inputCorrupt = "input_corrupt"

// verifyInputs checks the inputs that the pack wants checked to their end, once for the same bytes and type. Only a
// pass is recorded: a later version may be right where this one is wrong.
func (e *Engine) verifyInputs(ctx context.Context, v View, p plan.Params, open Opener) error {
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
		wrong, err := e.verifyInput(ctx, a, open)
		switch {
		case err != nil:
			return err
		case wrong != nil:
			return fault.New(fault.Validation, inputCorrupt,
				fmt.Sprintf("the input %s (%s, %s) is not a whole %s file: %v; nothing was sent to Slurm", in.Role, a.ID, fault.Quote(a.Label, 200),
					a.Type, wrong)).
				WithNext("import a correct file and submit with its id")
		}
		if err := e.Index.Verified(ctx, a.SHA256, a.Type); err != nil {
			return err
		}
		done[[2]string{a.SHA256, a.Type}] = true
	}
	return nil
}

// verifyInput returns what is wrong with the bytes of an artifact. Bytes without its checksum prove nothing: they are a
// Validation fault.
func (e *Engine) verifyInput(ctx context.Context, a Artifact, open Opener) (wrong, err error) {
	f, _, err := open(ctx, a.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	check := e.Formats.CheckInput(a.Type)
	defer check.Close()
	sum := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		if n > 0 {
			check.Write(buf[:n])
		}
		switch {
		case err == io.EOF && hex.EncodeToString(sum.Sum(nil)) != a.SHA256:
			return nil, fault.New(fault.Validation, "input_mismatch", fmt.Sprintf("the bytes of %s (%s) are not those that were registered",
				a.ID, fault.Quote(a.Label, 200))).WithNext("register or import the file again, and submit with its id")
		case err == io.EOF:
			return check.Finish(), nil
		case err != nil:
			return nil, fault.Wrap(fault.Transport, "input_unreadable", "the bytes of "+a.ID+" cannot be read", err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
