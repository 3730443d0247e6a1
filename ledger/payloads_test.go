package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// script returns a text like a job script: nearly the same for all i, with a different part near the beginning.
func script(i int) []byte {
	return fmt.Appendf(nil, "#!/bin/bash\n%s\nrun=%d token=%032x\n%s", strings.Repeat("# the same beginning\n", 20), i, i*7919,
		strings.Repeat("the same long end, line after line\n", 200))
}

func payload(data []byte) run.Payload {
	sum := sha256.Sum256(data)
	return run.Payload{SHA256: hex.EncodeToString(sum[:]), Data: data}
}

// keep stores a document with a run's artifact, as the intent does.
func keep(t testing.TB, l *Ledger, v run.View, data []byte) (run.View, run.Artifact) {
	t.Helper()
	p := payload(data)
	id, err := plan.ArtifactID(project, p.SHA256, "TEXT", "slurm_script")
	must(t, err)
	a := run.Artifact{ID: id, ProjectID: project, SHA256: p.SHA256, Type: "TEXT", Label: "slurm_script", SizeBytes: int64(len(data)),
		Source: v.Run.ID}
	return apply(t, l, v, func(w *run.Write) {
		w.Payloads, w.Artifacts, w.Run.ScriptArtifactID = []run.Payload{p}, []run.Artifact{a}, id
	}), a
}

func count(t testing.TB, l *Ledger, q string) (n int) {
	t.Helper()
	must(t, l.r.QueryRow(q).Scan(&n))
	return n
}

// A script comes back byte for byte, costs the ledger only its own part, and is stored with the transition, or not at
// all.
//
// proves ARC-08
func TestPayloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openAt(t, path)
	l.CheckBytes(func(string) bool { return false }) // the store has none of them
	for i := range 40 {
		keep(t, l, insert(t, l, i), script(i))
	}
	if n := count(t, l, "SELECT count(*) FROM payload_bases"); n != 1 {
		t.Errorf("%d bases", n)
	}
	must(t, l.Contents(t.Context(), func(sum string, _ int64) error {
		t.Errorf("a backup searches the store for the script %s", sum)
		return nil
	}))
	if n := count(t, l, "SELECT max(length(middle)) FROM payloads"); n > 64 {
		t.Errorf("%d bytes of a script of %d are kept", n, len(script(0)))
	}
	must(t, l.Close())

	l = openAt(t, path) // what a base was is one
	v, a := keep(t, l, insert(t, l, 40), script(40))
	apply(t, l, v, func(w *run.Write) { w.Payloads, w.Artifacts = []run.Payload{payload(script(40))}, []run.Artifact{a} }) // again
	if n := count(t, l, "SELECT count(*) FROM payload_bases"); n != 1 {
		t.Errorf("%d bases after the second start", n)
	}
	for i := range 41 {
		if got, err := l.Payload(t.Context(), payload(script(i)).SHA256); err != nil || !bytes.Equal(got, script(i)) {
			t.Errorf("script %d: %v", i, err)
		}
	}
	// of an old revision
	_, err := l.Apply(t.Context(), run.Write{Run: v.Run, Payloads: []run.Payload{payload(script(99))}, Event: run.Event{Type: "run.test"}})
	wantFault(t, err, fault.Conflict, "stale_run")
	_, err = l.Payload(t.Context(), payload(script(99)).SHA256)
	wantFault(t, err, fault.NotFound, "payload_not_found")
	_, err = l.Payload(t.Context(), "nonsense")
	wantFault(t, err, fault.Validation, "checksum")
	must(t, l.Integrity(t.Context()))
}

// Documents of many kinds come back too, and do not become as many bases.
func TestPayloadKinds(t *testing.T) {
	l := fresh(t)
	r := rand.New(rand.NewPCG(1, 2))
	v := insert(t, l, 1)
	var all [][]byte
	for kind := range 30 {
		whole := make([]byte, r.IntN(3000))
		for i := range whole {
			whole[i] = byte('a' + r.IntN(26))
		}
		for range 3 {
			at := r.IntN(len(whole) + 1)
			all = append(all, append(append(bytes.Clone(whole[:at]), fmt.Sprint("own ", kind, r.IntN(100))...), whole[at:]...))
		}
	}
	all = append(all, nil, []byte("x"), bytes.Repeat([]byte("x"), 2*baseMost), script(1), script(2))
	for _, data := range all {
		v, _ = keep(t, l, v, data)
	}
	for i, data := range all {
		if got, err := l.Payload(t.Context(), payload(data).SHA256); err != nil || !bytes.Equal(got, data) {
			t.Errorf("document %d: %v", i, err)
		}
	}
	if n := count(t, l, "SELECT count(*) FROM payload_bases"); n != basesMade {
		t.Errorf("%d bases", n)
	}
}

// A document that is not what it was is never given out, and none is changed or removed by a slip.
func TestPayloadsAreKept(t *testing.T) {
	l := fresh(t)
	keep(t, l, insert(t, l, 1), script(1))
	_, a := keep(t, l, insert(t, l, 2), script(2))
	db := rawDB(t, l)
	for _, q := range []string{"DELETE FROM payloads", "UPDATE payloads SET middle = x'00'", "DELETE FROM payload_bases",
		"UPDATE payload_bases SET data = x'00'",
		"INSERT INTO payloads SELECT * FROM payloads", "INSERT INTO payloads VALUES (randomblob(32), NULL, 1, x'00', 0)",
		"INSERT INTO payloads VALUES (randomblob(32), 99, 1, x'00', 0)"} {
		if _, err := db.Exec(q); err == nil {
			t.Errorf("%s was done", q)
		}
	}
	for _, q := range []string{"DROP TRIGGER payloads_fixed", "DROP TRIGGER payload_bases_fixed"} {
		_, err := db.Exec(q)
		must(t, err)
	}
	for _, q := range []string{"UPDATE payloads SET middle = zeroblob(3)", "UPDATE payloads SET head = head + 1",
		"UPDATE payloads SET head = 1000000, tail = 0",
		"UPDATE payloads SET tail = 1000000", "UPDATE payloads SET base_id = NULL, head = 0, tail = 0", "UPDATE payload_bases SET data = x''",
		"UPDATE payload_bases SET data = zeroblob(length(data))"} {
		tx, err := db.Begin()
		must(t, err)
		_, err = tx.Exec(q)
		must(t, err)
		must(t, tx.Commit())
		_, err = l.Payload(t.Context(), a.SHA256)
		wantFault(t, err, fault.Internal, "ledger_corrupt")
	}
}

// A payload without an artifact is dropped; a dry run reports the same and removes nothing.
func TestDropPayloads(t *testing.T) {
	l := fresh(t)
	v, _ := keep(t, l, insert(t, l, 0), script(0))
	for i := range 450 { // more than a batch
		v = apply(t, l, v, func(w *run.Write) { w.Payloads = []run.Payload{payload(script(i + 1))} })
	}
	for _, dry := range []bool{true, false, false} {
		n, bytes := 0, int64(0)
		must(t, l.DropPayloads(t.Context(), dry, func(_ string, size int64) { n, bytes = n+1, bytes+size }))
		if want := count(t, l, "SELECT count(*) FROM payloads") - 1; dry && (n != want || n != 450 || bytes < 450*7000) {
			t.Errorf("dry: %d, %d bytes, %d are there", n, bytes, want)
		} else if !dry && want != 0 {
			t.Errorf("%d stayed, %d went", want, n)
		}
	}
	if got, err := l.Payload(t.Context(), payload(script(0)).SHA256); err != nil || !bytes.Equal(got, script(0)) {
		t.Error(err)
	}
	must(t, l.Integrity(t.Context()))
}

func FuzzShared(f *testing.F) {
	f.Add([]byte("the beginning, x, the end"), []byte("the beginning, yyy, the end"))
	f.Add(script(1), script(2))
	f.Add([]byte("aaaa"), []byte("aa"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		head, tail := shared(a, b)
		if head < 0 || tail < 0 || head+tail > min(len(a), len(b)) {
			t.Fatal(head, tail)
		}
		whole := append(append(bytes.Clone(a[:head]), b[head:len(b)-tail]...), a[len(a)-tail:]...)
		if !bytes.Equal(whole, b) {
			t.Fatalf("%q", whole)
		}
		if rest := b[head : len(b)-tail]; len(rest) > 0 && head+tail < len(a) && (rest[0] == a[head] || rest[len(rest)-1] == a[len(a)-1-tail]) {
			t.Fatalf("more is shared than %d and %d", head, tail)
		}
	})
}
