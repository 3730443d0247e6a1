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
	"slurmgate/retention"
	"slurmgate/run"
)

// A payload is a small document that is in the ledger and not in the store of artifacts: it becomes durable with the
// transition that refers to it, and needs no separate file or sync. Scripts of one gateway differ only near their
// beginning; so a payload is stored as the parts it shares with a base, at both ends, and the bytes between. A run
// takes 7.2 KB of the ledger then, with whole scripts 13.3, with scripts deflated against a dictionary 5.3; but
// deflating one costs 65 µs of CPU, a tenth of all that the ledger does for a run.

const (
	basesMade = 8       // most bases that one process adds
	baseLeast = 1 << 10 // bytes of a base: smaller documents are stored whole
	baseMost  = 64 << 10
)

// base is the newest document that others are encoded against; its zero value shares nothing.
type base struct {
	mu   sync.Mutex
	id   int64
	data []byte
	made int // by this process
}

// packed is a payload as it is stored.
type packed struct {
	sum        []byte
	base       sql.NullInt64
	head, tail int
	middle     []byte
}

// shared returns how many bytes two documents share at their beginnings and at their ends.
func shared(a, b []byte) (head, tail int) {
	n := min(len(a), len(b))
	for head < n && a[head] == b[head] {
		head++
	}
	for tail < n-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return head, tail
}

// pack encodes a payload. One that shares less than half of the base becomes the next base, in a separate
// transaction: a base without references does no harm.
func (l *Ledger) pack(ctx context.Context, p run.Payload) (out packed, err error) {
	if out.sum, err = hex.DecodeString(p.SHA256); err != nil || len(out.sum) != sha256.Size {
		return out, fault.New(fault.Internal, "payload", "a payload's checksum is 64 hex digits")
	}
	b := &l.base
	b.mu.Lock()
	defer b.mu.Unlock()
	head, tail := shared(b.data, p.Data)
	if n := len(p.Data); 2*(head+tail) < n && b.made < basesMade && n >= baseLeast && n <= baseMost {
		if err := l.addBase(ctx, p.Data); err != nil {
			return out, err
		}
		head, tail = n, 0
	}
	out.base = sql.NullInt64{Int64: b.id, Valid: head+tail > 0}
	out.head, out.tail = head, tail
	out.middle = append([]byte{}, p.Data[head:len(p.Data)-tail]...) // never nil: that would be NULL
	return out, nil
}

func (l *Ledger) addBase(ctx context.Context, data []byte) error {
	var id int64
	err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		return tx.QueryRowContext(ctx, "INSERT INTO payload_bases (data, created_at) VALUES (?,?) RETURNING base_id", data, micros(l.now())).
			Scan(&id)
	})
	if err == nil {
		l.base.id, l.base.data = id, bytes.Clone(data)
		l.base.made++
	}
	return err
}

// recallBase reads the newest base.
func (l *Ledger) recallBase(ctx context.Context) error {
	err := l.one(ctx, "SELECT base_id, data FROM payload_bases ORDER BY base_id DESC LIMIT 1").Scan(&l.base.id, &l.base.data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

func writePayload(ctx context.Context, tx *sql.Conn, p packed) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO payloads (sha256, base_id, head, middle, tail) VALUES (?,?,?,?,?) "+
		"ON CONFLICT (sha256) DO NOTHING", p.sum, p.base, p.head, p.middle, p.tail)
	return err
}

// Payload reads a document by its checksum (64 hex digits). NotFound when the ledger has none; an Internal fault with code ledger_corrupt
// when its bytes have changed.
func (l *Ledger) Payload(ctx context.Context, sum string) ([]byte, error) {
	want, err := hex.DecodeString(sum)
	if err != nil || len(want) != sha256.Size {
		return nil, fault.New(fault.Validation, "checksum", "a checksum is 64 hex digits")
	}
	var head, tail int
	var middle, base, whole []byte
	err = l.one(ctx, "SELECT p.head, p.middle, p.tail, b.data FROM payloads p LEFT JOIN payload_bases b ON b.base_id = p.base_id "+
		"WHERE p.sha256 = ?", want).Scan(&head, &middle, &tail, &base)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "payload_not_found", "the ledger has no document with the checksum "+sum)
	}
	if err != nil {
		return nil, storage(err)
	}
	if head <= len(base) && tail <= len(base) {
		whole = slices.Concat(base[:head], middle, base[len(base)-tail:])
	}
	if got := sha256.Sum256(whole); !bytes.Equal(got[:], want) {
		return nil, fault.New(fault.Internal, "ledger_corrupt", "the document "+sum+" in the ledger no longer has this checksum").
			WithNext("check the disk; restore ledger.db from a backup")
	}
	return whole, nil
}

// DropPayloads removes the documents that no artifact has and calls f for each; a dry run only calls f.
func (l *Ledger) DropPayloads(ctx context.Context, dry bool, f func(sha256 string, sizeBytes int64)) error {
	const columns = "lower(hex(sha256)), head + length(middle) + tail"
	const unheld = " FROM payloads p WHERE NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.sha256 = lower(hex(p.sha256)) AND a.removed_at IS " +
		"NULL)"
	const atOnce = 200
	if dry {
		return each(ctx, l.r, func(row scanner) error {
			d, err := scanObject(row)
			if err == nil {
				f(d.SHA256, d.SizeBytes)
			}
			return err
		}, "SELECT "+columns+unheld)
	}
	for {
		var dropped []retention.Artifact
		err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) (err error) {
			dropped, err = list(ctx, tx, scanObject, "DELETE FROM payloads WHERE sha256 IN (SELECT sha256"+unheld+" LIMIT ?) RETURNING "+columns,
				atOnce)
			return err
		})
		for _, d := range dropped {
			f(d.SHA256, d.SizeBytes)
		}
		if err != nil || len(dropped) < atOnce {
			return err
		}
	}
}
