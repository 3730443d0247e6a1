package app

import (
	"context"
	"io"
	"os"
	"time"

	"slurmgate/export"
	"slurmgate/fault"
	"slurmgate/gate"
)

func verification() Operation {
	return Operation{
		ID: "export.verify", Title: "Verify an archive", Verb: "verify",
		Description: "Checks an archive of a run, or the folder it was unpacked into: every file, the run's id, the history and the signed " +
			"receipt. Needs no gateway.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Files, Faces: shellOnly,
		Limit: 24 * time.Hour, // every byte is read
		Does:  does(verifyExport),
	}
}

// VerifyExportArgs are the arguments of export.verify.
type VerifyExportArgs struct {
	File string `json:"file" kind:"path"`           // an archive or a folder
	Keys string `json:"keys,omitempty" kind:"path"` // a file with the public keys that the caller trusts
}

const maxKeysBytes = 1 << 20

func verifyExport(ctx context.Context, _ gate.Call, a VerifyExportArgs) (export.Report, error) {
	var keys []byte
	if a.Keys != "" {
		f, err := os.Open(a.Keys)
		if err != nil {
			return export.Report{}, fault.Wrap(fault.Validation, "keys_unreadable", "the file with the keys cannot be read", err)
		}
		defer f.Close()
		keys, err = io.ReadAll(io.LimitReader(f, maxKeysBytes+1))
		if err == nil && len(keys) > maxKeysBytes {
			return export.Report{}, fault.New(fault.Validation, "keys_unreadable", a.Keys+" is larger than 1 MiB, so it is no file of keys")
		}
		if err != nil {
			return export.Report{}, fault.Wrap(fault.Validation, "keys_unreadable", "the file with the keys cannot be read", err)
		}
	}
	return export.Verify(ctx, a.File, keys)
}
