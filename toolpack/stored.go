package toolpack

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
)

// Contract holds the rules by which a finished run of a pack is judged. It is read from the pack's definition alone, so a run
// is judged by the pack it was planned with, whatever is loaded when it ends. It is immutable and safe for concurrent use.
type Contract struct {
	id      string
	timeout time.Duration
	out     contract
	result  string // role of the output that out judges; empty: it judges the run's output object
	rules   rules
	mem     growth // of resources.memMb
	time    growth // of resources.timeLimitSeconds
}

// Definition returns the normal form of the pack with its resolved schemas, as canonical JSON; [Pack.Hash] is its
// hash.
func (p *Pack) Definition() (json.RawMessage, error) { return p.canonical() }

// Contract returns what runs of the pack are judged by.
func (p *Pack) Contract() *Contract {
	return &Contract{id: p.def.ID, timeout: p.Timeout(), out: p.out, result: p.def.judged(), rules: p.rules,
		mem: p.def.Resources.MemGrows, time: p.def.Resources.TimeGrows}
}

// ReadContract reads the contract from the definition of a pack, as [Pack.Definition] returned it. A definition that this
// version cannot use is a Validation fault.
func ReadContract(stored json.RawMessage) (*Contract, error) {
	unreadable := func(msg string) error { return fault.New(fault.Validation, "pack_unreadable", msg) }
	var def definition
	if err := json.Unmarshal(stored, &def); err != nil {
		return nil, fault.Wrap(fault.Validation, "pack_unreadable", "the stored definition of the pack is not valid JSON", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(def.OutputSchema))
	tree, ok := doc.(map[string]any)
	if err != nil || !ok {
		return nil, unreadable("the stored definition of " + clip(def.ID) + " has no output schema")
	}
	out, msg := compile(tree, false)
	if msg != "" {
		return nil, unreadable("this version cannot use the stored output schema of " + clip(def.ID) + ": " + msg)
	}
	ready, msg := readRules(def)
	if msg != "" {
		return nil, unreadable("this version cannot use " + clip(def.ID) + " as it is stored: " + msg)
	}
	return &Contract{id: def.ID, timeout: milliseconds(def.TimeoutMs), out: out, result: def.judged(), rules: ready,
		mem: def.Resources.MemGrows, time: def.Resources.TimeGrows}, nil
}

// Timeout returns the pack's timeoutMs.
func (c *Contract) Timeout() time.Duration { return c.timeout }

// CheckOutput checks result_json.output of a finished run against the output schema. A violation is a Tool fault
// with a problem for each broken rule.
func (c *Contract) CheckOutput(output json.RawMessage) error {
	if c.result != "" {
		return nil // CheckValue judges it
	}
	return c.judge(output)
}

// judge holds a document against the output schema.
func (c *Contract) judge(output json.RawMessage) error {
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(output))
	if err == nil {
		err = c.out.validate(c.out.schema, tree)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errCostly) {
		return fault.Wrap(fault.Tool, "OUTPUT-COST", "the output of "+c.id+" cannot be checked", err).
			WithNext("simplify its outputSchema; the run's log and files still exist")
	}
	if _, ok := errors.AsType[*jsonschema.ValidationError](err); !ok {
		return fault.Wrap(fault.Tool, "OUTPUT-JSON", "the output of "+c.id+" is not valid JSON", err)
	}
	found := problems("OUTPUT", err)
	return &fault.Error{Kind: fault.Tool, Code: found[0].Code, Problems: found,
		Msg:  "the output of " + c.id + " violates its output schema",
		Next: "correct the tool or its outputSchema; the run's log and files are kept"}
}
