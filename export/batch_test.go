package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sheet is a batch of three rows, two of which share a run, one refused row, and the records of its runs, which take one input in common.
func sheet(t testing.TB) (Batch, map[string]Record, objects) {
	t.Helper()
	good, store := made(t)
	other, more := made(t, "count", "in/reads one.txt", "--to", "out/n.txt", "--fast")
	for sum, data := range more {
		store[sum] = data
	}
	other = failed(t, other)
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
	of := func(_ context.Context, id string) (*Archive, error) { return New(clone(records[id]), o, store.open) }
	x, err := NewBatch(t.Context(), b, of, store.open)
	must(t, err)
	var out bytes.Buffer
	must(t, x.WriteTo(t.Context(), &out))
	if int64(out.Len()) != x.Size() {
		t.Errorf("the archive has %d bytes; Size says %d", out.Len(), x.Size())
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
			t.Errorf("%s: %+v", at, r)
		}
	}
	run(t, dir, "sha256sum", "--check", "--quiet", "--strict", manifestFile)
	run(t, dir, "sh", unpackFile)
	for id := range records {
		if got, err := os.ReadFile(filepath.Join(dir, runsFolder, id, "in/reads one.txt")); err != nil || string(got) != "ACGT\n" {
			t.Errorf("%s: %q %v", id, got, err)
		}
		if r := verify(t, filepath.Join(dir, runArchive(id))); !r.OK || r.RunID != id {
			t.Errorf("taken out: %+v", r)
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
		if r, err := Verify(t.Context(), saved(t, bad), nil); err == nil && r.OK {
			t.Fatalf("byte %d was changed, and the archive is intact", i)
		}
	}
}

// What was changed is found where MANIFEST was written again, too.
//
// proves EXP-01
func TestForgedBatch(t *testing.T) {
	forge := map[string]struct {
		change func(dir string, b Batch)
		want   string
	}{
		"another sample": {func(dir string, b Batch) { edit(t, dir+"/"+batchFile, `"sample": "A"`, `"sample": "Z"`) }, "does not follow"},
		"a newer form":   {func(dir string, b Batch) { edit(t, dir+"/"+batchFile, `"row": 2`, `"row": 2, "more": 1`) }, "it cannot be read"},
		"another state": {func(dir string, b Batch) { edit(t, dir+"/"+batchFile, `"state": "failed"`, `"state": "succeeded"`) },
			"but its run ended as failed"},
		"a run less": {func(dir string, b Batch) { must(t, os.Remove(dir+"/"+runArchive(b.Rows[0].RunID))) }, "it is missing"},
		"a run exchanged": {func(dir string, b Batch) {
			x, err := os.ReadFile(dir + "/" + runArchive(b.Rows[0].RunID))
			must(t, err)
			must(t, os.WriteFile(dir+"/"+runArchive(b.Rows[1].RunID), x, 0o600))
		}, "it is the archive of"},
		"a run more": {func(dir string, b Batch) {
			x, err := os.ReadFile(dir + "/" + runArchive(b.Rows[0].RunID))
			must(t, err)
			must(t, os.WriteFile(dir+"/"+runArchive("run_X"), x, 0o600))
		}, "no row of batch.json"},
		"another input": {func(dir string, b Batch) {
			must(t, os.WriteFile(dir+"/"+sharedAt+sumOf([]byte("ACGT\n")), []byte("TTTT\n"), 0o600))
		}, "its SHA-256 is"},
		"another script": {func(dir string, b Batch) { edit(t, dir+"/"+unpackFile, "set -eu", "set -e") }, "does not follow"},
	}
	for name, f := range forge {
		b, records, store := sheet(t)
		dir := unpack(t, saved(t, batchArchive(t, b, records, store, sharedReads(store))))
		f.change(dir, b)
		run(t, dir, "sh", "-c", `rm MANIFEST; find -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >../m && mv ../m MANIFEST`)
		if r := verify(t, dir); r.OK || !strings.Contains(fmt.Sprint(r.Problems), f.want) {
			t.Errorf("%s: %+v", name, r.Problems)
		}
	}
}

func edit(t *testing.T, name, old, new string) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not have %q", name, old)
	}
	must(t, os.WriteFile(name, []byte(strings.Replace(string(data), old, new, 1)), 0o600))
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
