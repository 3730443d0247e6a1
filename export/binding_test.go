package export

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/export/receipt"
	"slurmgate/plan"
)

var update = flag.Bool("update", false, "write the golden files")

// everything returns a run whose archive has each kind of document and each field filled: folders, an artifact by
// reference, two attempts, redacted texts, altered events, rows of batches.
func everything(t testing.TB) (Record, objects) {
	t.Helper()
	r, store := folders(t)
	r.Script = []byte("#!/bin/bash\nrun='[runs_dir]/x'\n")
	r.Logs[0].Text = []byte("done in [runs_dir]\n")
	r.Run.Redacted = []string{scriptFile, "logs/log.txt"}
	r.Run.Missing = []string{"logs/stderr.txt is not in the archive: the gateway no longer has it"}
	r.Run.Warnings = []string{"w1", "w2"}
	r.Run.Detail = "all is well"
	r.Run.ExecutedAs = "ann"
	r.Run.Rows = append(r.Run.Rows, Row{"batch_abd", 7, "A"})
	r.Run.Inputs[1].Why = "it stays in place on the site, and the gateway has no copy"
	resources := `{"time_limit_seconds":1200,"cpus":2,"mem_mb":1024,"gpus":null,"gpu_type":null}`
	first, code := r.Exit.Attempts[0], 137
	first.Ending, first.ExitCode, first.Node = "node_fail", &code, "n0"
	last := r.Exit.Attempts[0]
	last.Attempt, last.Resources = 2, json.RawMessage(resources)
	r.Exit.Attempts, r.Run.Attempt = []receipt.Attempt{first, last}, 2
	r.Events[0].Data, r.Events[0].Altered = json.RawMessage(`{"at":"[runs_dir]/x"}`), AlteredPaths
	r.Events[1].Data, r.Events[1].Altered = json.RawMessage(`{"at":"[erased:ers_a]"}`), AlteredErased
	return sign(t, r, nil), store
}

// members returns the files of an archive.
func members(t testing.TB, data []byte) map[string][]byte {
	t.Helper()
	z := value(zip.NewReader(bytes.NewReader(data), int64(len(data))))(t)
	files := map[string][]byte{}
	for _, f := range z.File {
		in := value(f.Open())(t)
		files[f.Name] = value(io.ReadAll(in))(t)
	}
	return files
}

// packed returns the archive of files.
func packed(files map[string][]byte) []byte {
	var entries [][2]string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, [2]string{name, string(files[name])})
	}
	return zipped(entries...)
}

// change is one alteration of an archive.
type change struct {
	what string // file, and member of the document
	data []byte // of the file; nil: removed
}

// changesOf returns alterations of a file: removed, cut, longer, other bytes; and of a JSON document another form,
// each value another one, each member and element removed, elements in another order or twice.
func changesOf(t testing.TB, name string, data []byte) (out []change) {
	t.Helper()
	out = append(out, change{name + " gone", nil}, change{name + " longer", append(bytes.Clone(data), '\n')})
	for _, at := range []int{0, len(data) / 2, len(data) - 1} {
		if at >= 0 && len(data) > 0 {
			other := bytes.Clone(data)
			other[at] ^= 1
			out = append(out, change{fmt.Sprint(name, " byte ", at), other}, change{name + " cut", bytes.Clone(data[:at])})
		}
	}
	switch {
	case strings.HasSuffix(name, ".json"):
		var doc any
		must(t, json.Unmarshal(data, &doc))
		for _, c := range append(changesIn(doc, ""), variant{"another form", doc}) {
			text := value(json.MarshalIndent(c.value, "", "  "))(t)
			if c.path != "another form" {
				text = asWritten(name, text)
			}
			out = append(out, change{name + ":" + c.path, text})
		}
	case strings.HasSuffix(name, ".jsonl"):
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		list := make([]any, len(lines))
		for i, line := range lines {
			must(t, json.Unmarshal([]byte(line), &list[i]))
		}
		for _, c := range changesIn(list, "") {
			var b bytes.Buffer
			for _, doc := range c.value.([]any) {
				text := value(json.Marshal(doc))(t)
				b.Write(append(text, '\n'))
			}
			out = append(out, change{name + ":" + c.path, b.Bytes()})
		}
	}
	return slices.DeleteFunc(out, func(c change) bool { return c.data != nil && bytes.Equal(c.data, data) })
}

// asWritten returns a changed document in the form that slurmgate writes, where the change left it one.
func asWritten(name string, text []byte) []byte {
	var to any
	switch name {
	case runFile:
		to = &Run{}
	case exitFile:
		to = &receipt.Exit{}
	case batchFile:
		to = &Batch{}
	default:
		return text
	}
	if plan.Decode(text, to) == nil {
		if written, err := document(to); err == nil {
			return written
		}
	}
	return text
}

// variant is a JSON value in which one thing was changed.
type variant struct {
	path  string
	value any
}

// changesIn changes each member and element of a value, and what is in it. Of elements of an array that have the same members, at any
// depth, only the first is changed inside.
func changesIn(v any, path string) (out []variant) {
	within := func(path string, child any, put func(any) any) {
		for _, c := range changesIn(child, path) {
			out = append(out, variant{c.path, put(c.value)})
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			less := maps.Clone(v)
			delete(less, k)
			out = append(out, variant{path + "." + k + " gone", less})
			within(path+"."+k, v[k], func(x any) any {
				other := maps.Clone(v)
				other[k] = x
				return other
			})
		}
	case []any:
		forms := map[string]bool{}
		for i := range v {
			out = append(out, variant{fmt.Sprintf("%s[%d] gone", path, i), slices.Delete(slices.Clone(v), i, i+1)},
				variant{fmt.Sprintf("%s[%d] twice", path, i), slices.Insert(slices.Clone(v), i, v[i])})
			if i > 0 {
				other := slices.Clone(v)
				other[i-1], other[i] = other[i], other[i-1]
				out = append(out, variant{fmt.Sprintf("%s[%d] before the one before", path, i), other})
			}
			form := formOf(v[i])
			if forms[form] {
				continue
			}
			forms[form] = true
			within(fmt.Sprintf("%s[%d]", path, i), v[i], func(x any) any {
				other := slices.Clone(v)
				other[i] = x
				return other
			})
		}
	case string:
		out = append(out, variant{path, v + "x"}, variant{path, ""}, variant{path, nil})
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			out = append(out, variant{path, at.Add(time.Hour).Format(time.RFC3339Nano)})
		}
	case float64:
		out = append(out, variant{path, v + 1}, variant{path, -v}, variant{path, nil})
	case bool:
		out = append(out, variant{path, !v})
	case nil:
		out = append(out, variant{path, "x"}, variant{path, 7}, variant{path, map[string]any{}})
	}
	return slices.DeleteFunc(out, func(c variant) bool { return fmt.Sprint(c.value) == fmt.Sprint(v) })
}

// formOf returns the members of a value, at any depth, and the types of their values.
func formOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(&b, "%q:%s,", k, formOf(v[k]))
		}
		return "{" + b.String() + "}"
	case []any:
		forms := map[string]bool{}
		for _, x := range v {
			forms[formOf(x)] = true
		}
		return "[" + strings.Join(slices.Sorted(maps.Keys(forms)), ",") + "]"
	}
	return fmt.Sprintf("%T", v)
}

// brought makes the documents that follow from others again, as a forger would who has this program, but for the signature; files that are
// changed on purpose stay as they are.
func brought(files map[string][]byte, on string) map[string][]byte {
	files = maps.Clone(files)
	var r Run
	var exit receipt.Exit
	p, err := planIn(files[paramsFile])
	made := func(name string) bool {
		return slices.Contains([]string{pinnedFile, outputsFile, readmeFile, crateFile, manifestFile, signatureFile}, name) ||
			strings.HasPrefix(name, "nextflow/")
	}
	if err == nil && plan.Decode(files[runFile], &r) == nil && plan.Decode(files[exitFile], &exit) == nil && !made(on) {
		var base []file
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if !made(name) {
				base = append(base, fileOf(name, files[name]))
			}
		}
		if derived, err := derive(r, exit, p, files[packFile], base); err == nil {
			for _, f := range derived {
				files[f.name] = f.data
			}
			return files
		}
	}
	if on != manifestFile {
		relist(files)
	}
	return files
}

// altered returns an archive with one change, by a forger who updates everything that follows.
func altered(files map[string][]byte, name string, c change) map[string][]byte {
	other := maps.Clone(files)
	if other[name] = c.data; c.data == nil {
		delete(other, name)
	}
	return brought(other, name)
}

// No file of a signed archive and no member of its documents can be altered, left out, repeated or reordered without the gateway's key.
// What rests on the archive's signature alone, and not on the receipt that was signed when the run ended or on what is computed again,
// is listed: a gateway that exported something else than it recorded would be found by everything but these.
//
// proves EXP-01 EXP-02
// slow: changes every field of an archive
func TestEveryField(t *testing.T) {
	t.Parallel()
	r, store := everything(t)
	files := members(t, archive(t, r, store, Options{}))
	if rep, err := verifyBytes(t, packed(files)); err != nil || !rep.OK {
		t.Fatalf("Verify of the archive as it was exported: %v, problems %q; want none", err, problems(rep))
	}
	tried := 0
	alone := map[string]bool{}
	index := regexp.MustCompile(`\[\d+\]|\d+$`)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, c := range changesOf(t, name, files[name]) {
			tried++
			other := altered(files, name, c)
			if name != signatureFile && name != KeysFile {
				old := other[signatureFile]
				signature, err := r.Signer.SignArchive(receipt.Archive{Format: Format, RunID: r.Run.RunID}, manifestFile, sumOf(other[manifestFile]))
				must(t, err)
				other[signatureFile] = signature
				if rep, err := verifyBytes(t, packed(other)); err != nil || !rep.OK {
					continue // found even under the gateway's own signature
				}
				alone[index.ReplaceAllString(c.what, "[]")] = true
				other[signatureFile] = old
			}
			if rep, err := verifyBytes(t, packed(other)); err == nil && rep.OK {
				t.Errorf("Verify of an archive with %s: no problem, want one", c.what)
			}
		}
	}
	if tried < 1000 {
		t.Errorf("%d changes were tried; want at least 1000", tried)
	}
	got := strings.Join(slices.Sorted(maps.Keys(alone)), "\n") + "\n"
	const golden = "testdata/signature-alone.golden"
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want := value(os.ReadFile(golden))(t)
	if got != string(want) {
		t.Errorf("what only the signature binds changed:\n%s\nwant\n%s", got, want)
	}
}

// No file of a batch's signed archive and no member of batch.json can be altered, left out, repeated or reordered without the gateway's
// key; the format cannot be one that is not checked.
//
// proves EXP-01 EXP-02
// slow: changes every field of an archive
func TestEveryFieldOfABatch(t *testing.T) {
	t.Parallel()
	b, records, store := sheet(t)
	files := members(t, batchArchive(t, b, records, store, sharedReads(store)))
	if rep, err := verifyBytes(t, packed(files)); err != nil || !rep.OK || rep.Runs != 2 {
		t.Fatalf("Verify of the archive as it was exported: %v, %d runs, problems %q; want 2 runs, no problem", err, rep.Runs, problems(rep))
	}
	runs := []Run{}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		var r Run
		must(t, plan.Decode(members(t, files[runArchive(id)])[runFile], &r))
		runs = append(runs, r)
	}
	tried := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, c := range changesOf(t, name, files[name]) {
			other := maps.Clone(files)
			if other[name] = c.data; c.data == nil {
				delete(other, name)
			}
			var doc Batch
			if name == batchFile && plan.Decode(c.data, &doc) == nil {
				derived := value(deriveBatch(doc, runs))(t)
				for _, f := range derived {
					other[f.name] = f.data
				}
			}
			tried++
			if rep, err := verifyBytes(t, packed(brought(other, name))); err == nil && rep.OK {
				t.Errorf("Verify of an archive with %s: no problem, want one", c.what)
			}
		}
	}
	if tried < 150 {
		t.Errorf("%d changes were tried; want at least 150", tried)
	}
}

// Of an archive with another format than this program's, newer, older, negative or none, only the checksums are
// judged, and it is not called intact: a forger would choose such a format. An archive without its signature cannot
// be judged either.
//
// proves EXP-01
func TestUnknownFormats(t *testing.T) {
	b, records, sharedStore := sheet(t)
	r, store := everything(t)
	for name, files := range map[string]map[string][]byte{runFile: members(t, archive(t, r, store, Options{})),
		batchFile: members(t, batchArchive(t, b, records, sharedStore, sharedReads(sharedStore)))} {
		for _, format := range []string{"99", "-1", "0", "1", "1e9", `"3"`, "null", "[]"} {
			other := maps.Clone(files)
			other[name] = regexp.MustCompile(`("slurmgate_(batch_)?export": )\d+`).ReplaceAll(files[name], []byte("${1}"+format))
			other[readmeFile] = []byte("This run succeeded.\n") // a forgery that the rest of the check would find
			rep, err := verifyBytes(t, packed(brought(other, manifestFile)))
			delete(other, signatureFile)
			unsigned := value(verifyBytes(t, packed(brought(other, readmeFile))))(t)
			if err != nil || rep.OK || unsigned.OK || len(unsigned.Problems) > 0 || len(unsigned.NotJudged) != 1 ||
				!strings.Contains(unsigned.NotJudged[0].Message, "the archive's format is") {
				t.Errorf("%s with format %s: %v, intact %v and %v, problems %q, not judged %v; want one that cannot be judged", name, format,
					err, rep.OK, unsigned.OK, problems(unsigned), unsigned.NotJudged)
			}
		}
	}
}
