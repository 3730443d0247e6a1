package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/export/receipt"
)

// sheet returns a batch of three rows, two of which share a run, one refused row, and the records of its runs, which
// take one input in common.
func sheet(t testing.TB) (Batch, map[string]Record, objects) {
	t.Helper()
	good, store := made(t)
	good.Run.Rows = []Row{{"batch_abc", 2, "A"}, {"batch_abc", 4, "C"}}
	other, more := made(t, "count", "in/reads one.txt", "--to", "out/n.txt", "--fast")
	for sum, data := range more {
		store[sum] = data
	}
	other = failed(t, other)
	other.Run.Rows = []Row{{"batch_abc", 3, "B's"}, {"batch_abd", 2, "B"}}
	b := Batch{BatchID: "batch_abc", Name: "all", ToolID: "test.count", ToolVersion: "1.2.0", Project: "p", Principal: "user:ann",
		CreatedAt: time.UnixMicro(1_700_000_000_000_000).UTC(), Rows: []BatchRow{
			{Row: 2, Sample: "A", Tags: []string{"x"}, Args: json.RawMessage(`{"reads":"art_1"}`), RunID: good.Run.RunID, State: "succeeded"},
			{Row: 3, Sample: "B's", Tags: []string{}, Args: json.RawMessage(`{"reads":"art_1"}`), RunID: other.Run.RunID, State: "failed"},
			{Row: 4, Sample: "C", Tags: []string{}, Args: json.RawMessage(`{"reads":"art_1"}`), RunID: good.Run.RunID, State: "succeeded"},
			{Row: 5, Sample: "D", Tags: []string{}, Args: json.RawMessage(`{}`), State: "refused", Code: "policy", Message: "no"}}}
	return b, map[string]Record{good.Run.RunID: good, other.Run.RunID: other}, store
}

func batchArchive(t testing.TB, b Batch, records map[string]Record, store objects, o Options) []byte {
	t.Helper()
	of := func(_ context.Context, id string) (*Archive, error) {
		return New(sign(t, clone(records[id]), nil), o, store.open)
	}
	secret, _ := signer('k')
	x := value(NewBatch(t.Context(), b, receipt.NewSigner("gw-1", secret), of, store.open))(t)
	var out bytes.Buffer
	must(t, x.WriteTo(t.Context(), &out))
	if int64(out.Len()) != x.Size() {
		t.Errorf("the archive has %d bytes, Size returned %d", out.Len(), x.Size())
	}
	return out.Bytes()
}

// clone copies what New writes into.
func clone(r Record) Record {
	r.Run.Inputs, r.Run.Outputs = append([]Artifact{}, r.Run.Inputs...), append([]Artifact{}, r.Run.Outputs...)
	r.Run.Logs = append([]Artifact{}, r.Run.Logs...)
	return r
}

func sharedReads(store objects) Options {
	return Options{Shared: map[string]bool{sumOf([]byte("ACGT\n")): store != nil}}
}

// The archive of a batch is the same bytes each time, checks as a file and unpacked, holds an input of several runs once, and makes folders
// in which the modules of the runs find it.
//
// proves EXP-01
func TestBatchArchive(t *testing.T) {
	b, records, store := sheet(t)
	data := batchArchive(t, b, records, store, sharedReads(store))
	if again := batchArchive(t, b, records, store, sharedReads(store)); !bytes.Equal(data, again) {
		t.Error("the same batch gave other bytes")
	}
	if n := bytes.Count(data, []byte("ACGT\n")); n != 1 {
		t.Errorf("the shared input is there %d times", n)
	}
	name := saved(t, data)
	dir := unpack(t, name)
	for _, at := range []string{name, dir} {
		if r := verify(t, at); !r.OK || r.BatchID != "batch_abc" || r.Runs != 2 || r.Events != 6 {
			t.Errorf("Verify(%s) = intact %t, batch %s, %d runs, %d events, problems %q; want 2 runs, 6 events", at, r.OK, r.BatchID, r.Runs,
				r.Events, problems(r))
		}
	}
	run(t, dir, "sha256sum", "--check", "--quiet", "--strict", manifestFile)
	run(t, dir, "sh", unpackFile)
	for id := range records {
		if got, err := os.ReadFile(filepath.Join(dir, runsFolder, id, "in/reads one.txt")); err != nil || string(got) != "ACGT\n" {
			t.Errorf("%s: %q %v", id, got, err)
		}
		if r := verify(t, filepath.Join(dir, runArchive(id))); !r.OK || r.RunID != id {
			t.Errorf("Verify of the run %s unpacked from the batch: run %q, problems %q", id, r.RunID, problems(r))
		}
	}
	crate := crateIn(t, dir)
	for id := range records {
		if !strings.Contains(fmt.Sprint(crate.refs("#"+id, "object")), sharedAt) || crate["#"+id]["@type"] != "CreateAction" {
			t.Errorf("the crate's action of %s: %v", id, crate["#"+id])
		}
	}
	for id := range crate {
		for property := range crate[id] {
			for _, to := range crate.refs(id, property) {
				if strings.HasPrefix(to, "#") && crate[to] == nil {
					t.Errorf("%s of %s refers to %s, which is not there", property, id, to)
				}
			}
		}
	}
}

// Every byte of a batch's archive counts, those of the runs' archives too.
//
// proves EXP-01
func TestEveryByteOfABatch(t *testing.T) {
	b, records, store := sheet(t)
	data := batchArchive(t, b, records, store, sharedReads(store))
	for i := 0; i < len(data); i += 101 {
		bad := bytes.Clone(data)
		bad[i] ^= 0x20
		if r, err := verifyBytes(t, bad); err == nil && r.OK {
			t.Fatalf("byte %d was changed, and the archive is intact", i)
		}
	}
}

// What was changed is found where MANIFEST was written again, too.
//
// proves EXP-01
func TestForgedBatch(t *testing.T) {
	edit := func(name, old, text string) func(map[string][]byte) { return replaced(t, name, old, text) }
	b, records, store := sheet(t)
	signed := members(t, batchArchive(t, b, records, store, sharedReads(store)))
	first, second := runArchive(b.Rows[0].RunID), runArchive(b.Rows[1].RunID)
	for name, f := range map[string]struct {
		change func(files map[string][]byte)
		want   string
	}{
		"another sample":  {edit(batchFile, `"sample": "A"`, `"sample": "Z"`), "does not follow"},
		"a newer form":    {edit(batchFile, `"row": 2`, `"row": 2, "more": 1`), "it cannot be read"},
		"another state":   {edit(batchFile, `"state": "failed"`, `"state": "succeeded"`), "but its run ended as failed"},
		"a run less":      {func(files map[string][]byte) { delete(files, first) }, "it is missing"},
		"a run exchanged": {func(files map[string][]byte) { files[second] = files[first] }, "it is the archive of"},
		"a run more":      {func(files map[string][]byte) { files[runArchive("run_X")] = files[first] }, "no row of batch.json"},
		"another input":   {func(files map[string][]byte) { files[sharedAt+sumOf([]byte("ACGT\n"))] = []byte("TTTT\n") }, "its SHA-256 is"},
		"another script":  {edit(unpackFile, "set -eu", "set -e"), "does not follow"},
	} {
		files := maps.Clone(signed)
		f.change(files)
		relist(files)
		if rep, err := verifyBytes(t, packed(files)); err != nil || rep.OK || !strings.Contains(problems(rep), f.want) {
			t.Errorf("Verify of a batch with %s: %v, problems %q; want %q", name, err, problems(rep), f.want)
		}
	}
}

// The keys that are given are those that every signature in a batch's archive is checked with: an archive of a run that another signed
// is found.
//
// proves EXP-01 EXP-02
func TestKeysOfABatch(t *testing.T) {
	secret, ours := signer('k')
	other, theirs := signer('o')
	for _, x := range []struct {
		what, problem string
		inner         []byte
		keys          string
	}{
		{"all by the key", "", secret, ours.PEM()},
		{"runs by another", "MANIFEST.dsse.json: no signature is of a key", other, ours.PEM()},
		{"runs by another, which is given too", "", other, ours.PEM() + theirs.PEM()},
		{"the batch by another", "no signature is of a key", secret, theirs.PEM()},
	} {
		b, records, store := sheet(t)
		of := func(_ context.Context, id string) (*Archive, error) {
			r := sign(t, clone(records[id]), nil)
			r.Signer = receipt.NewSigner("gw-1", x.inner)
			return New(r, sharedReads(store), store.open)
		}
		a := value(NewBatch(t.Context(), b, receipt.NewSigner("gw-1", secret), of, store.open))(t)
		var out bytes.Buffer
		must(t, a.WriteTo(t.Context(), &out))
		rep := value(Verify(t.Context(), saved(t, out.Bytes()), []byte(x.keys)))(t)
		if text := problems(rep); (text != "") != (x.problem != "") || !strings.Contains(text, x.problem) || rep.Signature.Trusted != rep.OK {
			t.Errorf("%s: problems %q, trusted %v; want %q", x.what, text, rep.Signature.Trusted, x.problem)
		}
	}
}

// A stranger's archive whose run names a place outside of its folder has no line about it in the script that verify makes again.
//
// proves EXP-01
func TestUnpackStaysBelow(t *testing.T) {
	sum := sumOf([]byte("ACGT\n"))
	for _, to := range []string{"../../out", "/etc/x", "in/../../../x", ""} {
		s := unpackScript([]Run{{RunID: "run_X", Inputs: []Artifact{{Relpath: to, SHA256: sum, Why: sharedWhy(sum)}}}})
		if bytes.Contains(s, []byte("ln ")) {
			t.Errorf("%q: %s", to, s)
		}
	}
	for _, bad := range []string{"$(id)", "x; id"} {
		s := unpackScript([]Run{{RunID: "run_X", Inputs: []Artifact{{Relpath: "in/x", SHA256: bad, Why: sharedWhy(bad)}}}})
		if bytes.Contains(s, []byte("ln ")) {
			t.Errorf("%q: %s", bad, s)
		}
	}
}
