package mcp

import (
	"encoding/json"
	"strconv"

	"github.com/google/uuid"

	"slurmgate/gate"
	"slurmgate/plan"
)

// A chat reads a few lines at a time. A limit is put into the arguments of a call, so that the tool itself handles what is left out: a list
// with its cursor, a log or a preview by being cut.

// bound is an argument that limits the size of an answer.
type bound struct {
	argument string
	value    int
}

// shorten sets the limit of a call that has one; the other arguments are unchanged.
func shorten(t gate.Tool, req *gate.Request) *bound {
	b := bound{t.Chat.Bound, t.Chat.Most}
	if b.argument == "" {
		return nil
	}
	var args map[string]json.RawMessage
	canonical, err := plan.Canonical(req.Args)
	if err != nil || json.Unmarshal(canonical, &args) != nil || args == nil {
		return nil // no arguments at all: the gate refuses them as they are
	}
	if raw, asked := args[b.argument]; asked {
		var n int
		if json.Unmarshal(raw, &n) != nil || n < 1 {
			return nil // the tool's schema refuses it
		}
		b.value = min(b.value, n)
	}
	b.put(req, args)
	return &b
}

// less halves the limit; false if it cannot be smaller, or the call has none.
func (b *bound) less(req *gate.Request) bool {
	if b == nil || b.value <= 1 {
		return false
	}
	b.value /= 2
	var args map[string]json.RawMessage
	if json.Unmarshal(req.Args, &args) != nil {
		return false
	}
	// Another call, of a tool that only reads; the key belongs to the first.
	req.ToolCallID, req.IdempotencyKey = uuid.NewString(), nil
	b.put(req, args)
	return true
}

func (b *bound) put(req *gate.Request, args map[string]json.RawMessage) {
	args[b.argument] = json.RawMessage(strconv.Itoa(b.value))
	if raw, err := json.Marshal(args); err == nil {
		req.Args = raw
	}
}
