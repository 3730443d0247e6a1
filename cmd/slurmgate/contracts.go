package main

import (
	"context"
	"encoding/json"
	"sync"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/toolpack"
)

// maxContracts bounds the contracts of packs that are no longer loaded in memory.
const maxContracts = 64

// contracts gives what finished runs are judged by: the pack each was planned with, which is the loaded one or else in the ledger.
type contracts struct {
	packs  *toolpack.Set
	stored func(ctx context.Context, packHash string) (json.RawMessage, error)

	mu   sync.Mutex
	read map[string]*toolpack.Contract // of packs that are not loaded, by pack_hash
}

func newContracts(packs *toolpack.Set, stored func(context.Context, string) (json.RawMessage, error)) *contracts {
	return &contracts{packs: packs, stored: stored, read: map[string]*toolpack.Contract{}}
}

// Contract gives the contract of the pack with the hash: [run.Contracts].
func (c *contracts) Contract(ctx context.Context, packHash string) (run.Contract, error) {
	if p, ok := c.packs.ByHash(packHash); ok {
		return p.Contract(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.read[packHash]; known != nil {
		return known, nil
	}
	definition, err := c.stored(ctx, packHash)
	if err != nil {
		return nil, err
	}
	contract, err := toolpack.ReadContract(definition)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "contracts", "pack_unreadable", "pack "+packHash+" in the ledger", err)
	}
	if len(c.read) >= maxContracts {
		clear(c.read)
	}
	c.read[packHash] = contract
	return contract, nil
}
