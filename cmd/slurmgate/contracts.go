package main

import (
	"context"
	"encoding/json"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/run"
	"slurmgate/toolpack"
)

// contracts finds the contract that a finished run is judged by: that of the pack it was planned with, either loaded or from the ledger.
type contracts struct {
	packs  *toolpack.Set
	stored func(ctx context.Context, packHash string) (json.RawMessage, error)
}

// Contract implements [run.Contracts].
func (c contracts) Contract(ctx context.Context, packHash string) (run.Contract, error) {
	if p, ok := c.packs.ByHash(packHash); ok {
		return p.Contract(), nil
	}
	definition, err := c.stored(ctx, packHash)
	if err != nil {
		return nil, err
	}
	contract, err := toolpack.ReadContract(definition)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "pack_unreadable", "the pack "+packHash+" in the ledger cannot be read", err)
	}
	return contract, nil
}

// formats checks outputs against their types, gzip files to their ends.
type formats struct{}

// Check implements [run.Formats].
func (formats) Check(typ string, rows bool) run.FormatCheck {
	return filetype.NewChecker(typ, filetype.Checks{Full: true, Rows: rows})
}

// CheckInput implements [run.Formats].
func (formats) CheckInput(typ string) run.FormatCheck {
	return filetype.NewChecker(typ, filetype.Checks{Full: true, Blocks: true})
}
