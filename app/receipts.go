package app

import (
	"context"
	"encoding/json"
	"time"

	"slurmgate/blocks"
	"slurmgate/export/receipt"
	"slurmgate/gate"
)

// receipts returns the operations on the receipts of runs and their keys.
func (g *Gateway) receipts() []Operation {
	return []Operation{{
		ID: "run.receipt", Title: "Get the receipt of a run", Verb: "receipt",
		Description: "Returns the signed receipt of a run that has ended: an in-toto Statement (its outputs, image, inputs and params by " +
			"digest, when, where and how it ended) in a DSSE envelope. It was signed when the run ended and never changes. Each attempt has " +
			"its own.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: ofRun(g, withProvenance(g, g.showReceipt)),
	}, {
		ID: "key.list", Title: "List the keys of receipts", Verb: "keys list",
		Description: "Lists the public keys that receipts are signed with, as PEM. The last one signs; receipts of retired keys still verify.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.listKeys),
	}, {
		ID: "key.rotate", Title: "Rotate the key of receipts", Verb: "keys rotate",
		Description: "Makes a new key that signs receipts from now on, and deletes the secret of the old one. What the old key signed still " +
			"verifies with its public key.",
		Effect: gate.Write, Repeat: gate.NonIdempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.rotateKey),
	}}
}

// ReceiptArgs are the arguments of run.receipt.
type ReceiptArgs struct {
	RunArgs
	Attempt int `json:"attempt,omitzero" min:"1" about:"which attempt's; the newest when absent" help:"Which attempt's. Default: the newest." placeholder:"N"`
}

// ReceiptAnswer is the receipt of one attempt's end.
type ReceiptAnswer struct {
	CallRunID                 // of this call; the run itself is run_id
	RunID     string          `json:"run_id"`
	Attempt   int             `json:"attempt"`
	KeyID     string          `json:"key_id"`
	Statement json.RawMessage `json:"statement" help:"what is signed, to read: an in-toto Statement v1"`
	Envelope  json.RawMessage `json:"envelope" help:"the receipt itself: a DSSE envelope"`
}

// Says implements [blocks.Answer].
func (a ReceiptAnswer) Says() blocks.Document {
	return blocks.Document{blocks.Say("The receipt of %v, attempt %v, is signed by key %v.", a.RunID, a.Attempt, a.KeyID),
		blocks.Advise("The structured content has it: statement is what is signed, to read, and envelope the receipt itself.")}
}

func (g *Gateway) showReceipt(ctx context.Context, _ gate.Call, a ReceiptArgs) (out ReceiptAnswer, err error) {
	if _, err := g.startedRun(ctx, a.RunID); err != nil {
		return ReceiptAnswer{}, err
	}
	r, err := g.Ledger.Receipt(ctx, a.RunID, a.Attempt)
	return ReceiptAnswer{RunID: r.RunID, Attempt: r.Attempt, KeyID: r.KeyID, Statement: r.Statement, Envelope: r.Envelope}, err
}

// KeyDoc is a public key of receipts.
type KeyDoc struct {
	KeyID     string     `json:"key_id" help:"hex SHA-256 of the key in DER"`
	PublicKey string     `json:"public_key" help:"PEM"`
	CreatedAt time.Time  `json:"created_at"`
	RetiredAt *time.Time `json:"retired_at" help:"null: it signs"`
}

func keyDocOf(k receipt.Key) KeyDoc { return KeyDoc{k.ID, k.PEM(), k.CreatedAt, k.RetiredAt} }

// KeyList is the answer of key.list.
type KeyList struct {
	CallRunID
	GatewayID string   `json:"gateway_id"`
	Total     int64    `json:"total"`
	Keys      []KeyDoc `json:"keys"` // the last one signs
}

func (g *Gateway) listKeys(ctx context.Context, c gate.Call, _ struct{}) (out KeyList, err error) {
	keys, err := g.Ledger.ReceiptKeys(ctx)
	out = KeyList{GatewayID: g.Ledger.ID(), Total: int64(len(keys)), Keys: []KeyDoc{}}
	for _, k := range keys {
		out.Keys = append(out.Keys, keyDocOf(k))
	}
	return out, err
}

// KeyAnswer is the answer of key.rotate.
type KeyAnswer struct {
	CallRunID
	KeyDoc
}

func (g *Gateway) rotateKey(ctx context.Context, c gate.Call, _ struct{}) (out KeyAnswer, err error) {
	k, err := g.Ledger.RotateReceiptKey(ctx, c.Caller.Name)
	if err == nil {
		out.KeyDoc = keyDocOf(k)
	}
	return out, err
}
