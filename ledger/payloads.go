package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"slices"
	"sync"

	"slurmgate/fault"
	"slurmgate/run"
)

// A payload is a small document that is in the ledger and not in the store of artifacts: it becomes durable with the transition that
// refers to it, and needs no file and no sync of its own. Scripts of one gateway differ only near their beginning; so a payload is stored
// as the parts it shares with a base, at both ends, and the bytes between. Bases have no base themselves, and are few.

const (
	basesMade  = 8       // most bases that one process adds
	basesKnown = 16      // most bases that are tried
	baseLeast  = 1 << 10 // bytes of a base: smaller documents are stored whole
	baseMost   = 64 << 10
)

// bases are the documents that others are encoded against, in the order they are tried.
type bases struct {
	mu    sync.Mutex
	known []base
	made  int
}

type base struct {
	id   int64
	data []byte
}

// fits reports whether a document is similar to the base: they share half of the base.
func (b base) fits(head, tail int) bool { return 2*(head+tail) >= len(b.data) }

// shared returns how many bytes at its beginning and its end a document shares with the base.
func (b base) shared(data []byte) (head, tail int) {
	const step = 64
	n, x, y := min(len(b.data), len(data)), b.data, data
	for n-head >= step && bytes.Equal(x[head:head+step], y[head:head+step]) {
		head += step
	}
	for head < n && x[head] == y[head] {
		head++
	}
	x, y, n = x[head:], y[head:], n-head
	for n-tail >= step && bytes.Equal(x[len(x)-tail-step:len(x)-tail], y[len(y)-tail-step:len(y)-tail]) {
		tail += step
	}
	for tail < n && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	return head, tail
}

// packed is a payload as it is stored.
type packed struct {
	sum        []byte
	base       sql.NullInt64
	head, tail int
	middle     []byte
}

// pack encodes payloads. The first of its kind is stored as a base, in a transaction of its own: a base that nothing refers to does no
// harm.
func (l *Ledger) pack(ctx context.Context, payloads []run.Payload) ([]packed, error) {
	var out []packed
	for _, p := range payloads {
		sum, err := hex.DecodeString(p.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return nil, fault.New(fault.Internal, "ledger.pack", "payload", "a payload's checksum is 64 hex digits")
		}
		b, head, tail, err := l.bases.of(p.Data, func() (int64, error) { return l.addBase(ctx, p.Data) })
		if err != nil {
			return nil, err
		}
		middle := append([]byte{}, p.Data[head:len(p.Data)-tail]...) // never nil: that would be NULL
		out = append(out, packed{sum, sql.NullInt64{Int64: b, Valid: b != 0}, head, tail, middle})
	}
	return out, nil
}

// of returns the base of a document, 0 for none; add makes the document a base.
func (s *bases) of(data []byte, add func() (int64, error)) (id int64, head, tail int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.known {
		h, t := b.shared(data)
		if h+t > head+tail {
			id, head, tail = b.id, h, t
		}
		if b.fits(h, t) {
			if i > 0 { // the next one is like this one
				s.known = slices.Insert(slices.Delete(s.known, i, i+1), 0, b)
			}
			return b.id, h, t, nil
		}
	}
	if s.made >= basesMade || len(data) < baseLeast || len(data) > baseMost {
		return id, head, tail, nil
	}
	if id, err = add(); err != nil {
		return 0, 0, 0, err
	}
	s.made++
	s.known = slices.Insert(s.known, 0, base{id, bytes.Clone(data)})
	return id, len(data), 0, nil
}

func (l *Ledger) addBase(ctx context.Context, data []byte) (id int64, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		res, err := tx.ExecContext(ctx, "INSERT INTO payload_bases (data, created_at) VALUES (?,?)", data, micros(l.now()))
		if err == nil {
			id, err = res.LastInsertId()
		}
		return err
	})
	return id, err
}

// recallBases reads the newest bases.
func (l *Ledger) recallBases(ctx context.Context) error {
	rows, err := l.r.QueryContext(ctx, "SELECT base_id, data FROM payload_bases ORDER BY base_id DESC LIMIT ?", basesKnown-basesMade)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var b base
		if err := rows.Scan(&b.id, &b.data); err != nil {
			return err
		}
		l.bases.known = append(l.bases.known, b)
	}
	return rows.Err()
}

func writePayload(ctx context.Context, tx *sql.Conn, p packed) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO payloads (sha256, base_id, head, middle, tail) VALUES (?,?,?,?,?) ON CONFLICT (sha256) DO "+
		"NOTHING", p.sum, p.base, p.head, p.middle, p.tail)
	return err
}

// Payload reads a document by its checksum (64 hex digits). NotFound when the ledger has none; an Internal fault with code ledger_corrupt
// when its bytes have changed.
func (l *Ledger) Payload(ctx context.Context, sum string) ([]byte, error) {
	const op = "ledger.Payload"
	want, err := hex.DecodeString(sum)
	if err != nil || len(want) != sha256.Size {
		return nil, fault.New(fault.Validation, op, "checksum", "a checksum is 64 hex digits")
	}
	var head, tail int
	var middle, data []byte
	err = l.one(ctx, "SELECT p.head, p.middle, p.tail, b.data FROM payloads p LEFT JOIN payload_bases b ON b.base_id "+
		"= p.base_id WHERE p.sha256 = ?", want).
		Scan(&head, &middle, &tail, &data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, op, "payload_not_found", "the ledger has no document with the checksum "+sum)
	}
	if err != nil {
		return nil, storage(err)
	}
	var whole []byte
	if head <= len(data) && tail <= len(data) {
		whole = slices.Concat(data[:head], middle, data[len(data)-tail:])
	}
	if got := sha256.Sum256(whole); !bytes.Equal(got[:], want) {
		return nil, fault.New(fault.Internal, op, "ledger_corrupt", "the document "+sum+" in the ledger no longer has this checksum").
			WithNext("check the disk; restore ledger.db from a backup")
	}
	return whole, nil
}

// unheld is the condition that no artifact has the document.
const unheld = "NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.sha256 = lower(hex(p.sha256)) AND a.removed_at IS NULL)"

// DropPayloads removes the documents that no artifact has and calls f for each; a dry run only calls f.
func (l *Ledger) DropPayloads(ctx context.Context, dry bool, f func(sha256 string, sizeBytes int64)) error {
	for after := []byte{}; ; {
		page, err := l.unheldPayloads(ctx, after)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].sum
		if !dry {
			if err := l.dropPayloads(ctx, page); err != nil {
				return err
			}
		}
		for _, d := range page {
			if !d.kept {
				f(hex.EncodeToString(d.sum), d.size)
			}
		}
	}
}

// document is a payload that no artifact has.
type document struct {
	sum  []byte
	size int64
	kept bool // an artifact has it by now
}

func (l *Ledger) unheldPayloads(ctx context.Context, after []byte) ([]document, error) {
	rows, err := l.r.QueryContext(ctx, "SELECT p.sha256, p.head + length(p.middle) + p.tail FROM payloads p WHERE p.sha256 > ? AND "+unheld+
		" ORDER BY p.sha256 LIMIT 200", after)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	var page []document
	for rows.Next() {
		var d document
		if err := rows.Scan(&d.sum, &d.size); err != nil {
			return nil, storage(err)
		}
		page = append(page, d)
	}
	return page, storage(rows.Err())
}

func (l *Ledger) dropPayloads(ctx context.Context, page []document) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		for i := range page {
			res, err := tx.ExecContext(ctx, "DELETE FROM payloads AS p WHERE p.sha256 = ? AND "+unheld, page[i].sum)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			page[i].kept = n == 0
		}
		return nil
	})
}
