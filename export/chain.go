package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"slurmgate/export/receipt"
	"slurmgate/plan"
)

// Event is one line of events.jsonl. Its hash covers the event before it in the gateway's history, of whichever run that is:
//
//	hash = sha256(prev_hash + canonical JSON of {at, data, run_id, seq, type})
type Event struct {
	Seq      int64           `json:"seq"`
	At       int64           `json:"at"` // microseconds since 1970
	Type     string          `json:"type"`
	RunID    string          `json:"run_id"`
	Data     json.RawMessage `json:"data"`
	PrevHash string          `json:"prev_hash"`
	Hash     string          `json:"hash"`
	// Altered is the reason why the hash is not of this data: paths (names replace the site's folders) or erased (a
	// secret was erased from the gateway). Empty: the hash is of the data.
	Altered string `json:"altered,omitempty"`
}

// Values of [Event.Altered].
const (
	AlteredPaths  = "paths"
	AlteredErased = "erased"
)

// Sum returns the hash that the event has if its data are as they were chained.
func (e Event) Sum() (string, error) {
	doc, err := plan.Marshal(map[string]any{"at": e.At, "data": e.Data, "run_id": e.RunID, "seq": e.Seq, "type": e.Type})
	return plan.Hash(append([]byte(e.PrevHash), doc...)), err
}

// lines returns the events as events.jsonl.
func lines(events []Event) ([]byte, error) {
	var b bytes.Buffer
	for _, e := range events {
		line, err := plan.Marshal(e)
		if err != nil {
			return nil, err
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}

// signed returns the part of the event that a receipt signs.
func (e Event) signed() receipt.Event {
	return receipt.Event{Seq: e.Seq, At: e.At, Type: e.Type, PrevHash: e.PrevHash, Hash: e.Hash}
}

// historyIn describes the events of events.jsonl as a receipt does.
func historyIn(data []byte) receipt.History {
	var events []receipt.Event
	for line := range strings.Lines(string(data)) {
		var e Event
		if json.Unmarshal([]byte(line), &e) == nil { // reported where it is read
			events = append(events, e.signed())
		}
	}
	return receipt.HistoryOf(events)
}

// checkChain reads events.jsonl and reports every event that does not fit, and which were altered.
func checkChain(data []byte, r Run, bad func(msg string)) (n int, altered []string) {
	var last Event
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		var e Event
		if err := plan.Decode([]byte(line), &e); err != nil {
			bad(fmt.Sprintf("line %d is not an event: %v", i+1, err))
			continue
		}
		if n++; e.RunID != r.RunID {
			bad(fmt.Sprintf("event %d is of another run, %q", e.Seq, e.RunID))
		}
		if e.Seq <= last.Seq {
			bad(fmt.Sprintf("event %d comes after event %d", e.Seq, last.Seq))
		}
		if e.Seq == last.Seq+1 && last.Seq > 0 && e.PrevHash != last.Hash {
			bad(fmt.Sprintf("event %d does not follow event %d: prev_hash is not its hash", e.Seq, last.Seq))
		}
		sum, err := e.Sum()
		switch {
		case e.Altered == AlteredPaths || e.Altered == AlteredErased:
			altered = append(altered, fmt.Sprint(e.Seq))
		case err != nil || e.Altered != "" || sum != e.Hash:
			bad(fmt.Sprintf("event %d was changed: its hash does not match", e.Seq))
		}
		last = e
	}
	if last.Type != "run."+r.State {
		bad(fmt.Sprintf("the last event is %q; a run that is %s ends with run.%s", last.Type, r.State, r.State))
	}
	return n, altered
}
