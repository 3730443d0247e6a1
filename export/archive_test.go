package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/export/receipt"
	"slurmgate/plan"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a result, and ends the test if an error came with it.
func value[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// objects is a store of artifacts.
type objects map[string][]byte

func (o objects) open(_ context.Context, sum string) (io.ReadCloser, error) {
	data, ok := o[sum]
	if !ok {
		return nil, fmt.Errorf("no object %s", sum)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (o objects) add(data string) string {
	sum := sumOf([]byte(data))
	o[sum] = []byte(data)
	return sum
}

const imageDigest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// made returns a run that succeeded, and its artifacts.
func made(t testing.TB, argv ...string) (Record, objects) {
	t.Helper()
	store := objects{}
	in, out := store.add("ACGT\n"), store.add("4\n")
	if len(argv) == 0 {
		argv = []string{"count", "in/reads one.txt", "--to", "out/n.txt"}
	}
	p := plan.Params{ProjectID: plan.ProjectID("lab"), Script: "slurm_script_v1",
		Tool: &plan.ToolExtra{Version: "1.2.0", MaxOutputBytes: 1 << 20},
		Spec: plan.Spec{Version: 1, Resources: plan.Resources{TimeLimitSeconds: 600, CPUs: 2, MemMB: 512},
			Placement: plan.Placement{},
			Execution: plan.Execution{Kind: "container",
				Container: plan.Container{Engine: "apptainer", Image: "sha256:" + imageDigest, NetworkMode: "none", ReadonlyRootfs: true},
				Command:   plan.Command{Argv: argv, Workdir: plan.Workdir, Env: map[string]string{"LC_ALL": "C", "ODD": "it's $HOME\n\\x"}}},
			IO: plan.IO{Inputs: []plan.Input{{Role: "reads", ChecksumSHA256: in, DestRelpath: "in/reads one.txt"}},
				Outputs: []plan.Output{{Role: "n", SrcRelpath: "out/n.txt", Type: "TEXT", Label: "n"}}}}}
	params := value(p.Canonical())(t)
	policy, pack := []byte(`{"level":"STRICT"}`), []byte(`{"id":"test.count","image":"counter","displayName":"Count"}`)
	r := Run{ToolID: "test.count", ToolName: "test_count", ToolVersion: "1.2.0", ContractVersion: "v1", PolicyHash: plan.Hash(policy),
		ParamsHash: plan.Hash(params), PackHash: plan.Hash(pack), Project: p.ProjectID, Site: "lab", Principal: "user:ann", State: "succeeded",
		Reason: "ok", Attempt: 1, Kind: KindSlurm, Image: "sha256:" + imageDigest, ImageName: "counter",
		CreatedAt: time.UnixMicro(1_700_000_000_000_000).UTC(), FinishedAt: time.UnixMicro(1_700_000_060_000_000).UTC(),
		Script: &ScriptNote{"art_00000000000000000000000003", sumOf([]byte("#!/bin/bash\n"))},
		Inputs: []Artifact{{Role: "reads", Relpath: "in/reads one.txt", ArtifactID: "art_00000000000000000000000001", Type: "TEXT",
			Label: "reads", SizeBytes: 5, SHA256: in}},
		Outputs: []Artifact{{Role: "n", Relpath: "out/n.txt", ArtifactID: "art_00000000000000000000000002", Type: "TEXT", Label: "n",
			SizeBytes: 2, SHA256: out}},
		Logs: []Artifact{{Role: "log", ArtifactID: "art_00000000000000000000000004", Type: "LOG", Label: "log", SizeBytes: 5,
			SHA256: sumOf([]byte("done\n"))}},
		Rows: []Row{{"batch_abc", 2, "A"}}, Warnings: []string{}, Missing: []string{}, Redacted: []string{}}
	r.RunID = r.identity().RunID()
	r.PlanHash = r.identity().PlanHash()
	started := r.CreatedAt.Add(time.Second)
	r.StartedAt = &started
	code := 0
	exit := receipt.Exit{Attempts: []receipt.Attempt{{Attempt: 1, Ending: "ok", ExitCode: &code, JobName: "sg-" + r.RunID, JobID: "7",
		Cluster: "lab", SlurmState: "COMPLETED", Node: "n1", CreatedAt: r.CreatedAt, StartedAt: &started, EndedAt: &r.FinishedAt,
		Usage: []byte(`{"elapsed_seconds":1.5}`)}}}
	prev := plan.Hash(nil)
	var events []Event
	for i, typ := range []string{"run.created", "run.intent", "run.succeeded"} {
		e := Event{Seq: int64(10 + i*i), At: r.CreatedAt.UnixMicro() + int64(i), Type: typ, RunID: r.RunID, Data: []byte(fmt.Sprintf(`{"n":%d}`, i)),
			PrevHash: prev}
		e.Hash = value(e.Sum())(t)
		events, prev = append(events, e), e.Hash
	}
	return Record{Run: r, Exit: exit, Params: params, Policy: policy, Pack: pack, Script: []byte("#!/bin/bash\n"),
		Logs: []Log{{"log", []byte("done\n")}}, Events: events}, store
}

// failed makes a run that failed of one that succeeded.
func failed(t testing.TB, r Record) Record {
	t.Helper()
	r.Run.State, r.Run.Reason, r.Run.Detail, r.Run.Outputs = "failed", "tool_failed", "the program exited with status 3", []Artifact{}
	code, n := 3, len(r.Events)-1
	r.Exit.Attempts[0].Ending, r.Exit.Attempts[0].ExitCode = "tool_failed", &code
	r.Events[n].Type = "run.failed"
	r.Events[n].Hash = value(r.Events[n].Sum())(t)
	return r
}

// archive returns the archive of a record, signed as a gateway signs it.
func archive(t testing.TB, r Record, store objects, o Options) []byte {
	t.Helper()
	if r.Receipt == nil {
		r = sign(t, r, nil)
	}
	a := value(New(r, o, store.open))(t)
	var b bytes.Buffer
	must(t, a.WriteTo(t.Context(), &b))
	if int64(b.Len()) != a.Size() {
		t.Errorf("the archive has %d bytes, Size returned %d", b.Len(), a.Size())
	}
	return b.Bytes()
}

func saved(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "run.crate.zip")
	must(t, os.WriteFile(name, data, 0o600))
	return name
}

func verify(t testing.TB, name string) Report {
	t.Helper()
	rep := value(Verify(t.Context(), name, nil))(t)
	return rep
}

// An archive verifies, as a file and unpacked, by its own list too, and the same run gives the same bytes.
//
// proves EXP-01 ARC-09
func TestArchive(t *testing.T) {
	for _, x := range []struct {
		name string
		make func(Record) Record
		o    Options
	}{
		{"succeeded", func(r Record) Record { return r }, Options{}},
		{"by reference", func(r Record) Record { return r }, Options{ByReference: true}},
		{"large by reference", func(r Record) Record { return r }, Options{MaxBytes: 4}},
		{"failed", func(r Record) Record { return failed(t, r) }, Options{}},
		{"outputs refused", func(r Record) Record {
			r = failed(t, r)
			r.Run.Rejected = []Artifact{{Role: "rejected:n", ArtifactID: "art_00000000000000000000000005", Type: "UNKNOWN", Label: "n", SizeBytes: 2,
				SHA256: sumOf([]byte("4\n"))}}
			return r
		}, Options{}},
		{"a raw plan", func(r Record) Record {
			r.Run.PackHash, r.Pack = "", nil
			return r
		}, Options{}},
		{"an empty log", func(r Record) Record {
			r.Logs[0].Text, r.Run.Logs[0].SHA256, r.Run.Logs[0].SizeBytes = nil, sumOf(nil), 0
			return r
		}, Options{}},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, store := made(t)
			r = x.make(r)
			data := archive(t, r, store, x.o)
			again, store := made(t)
			if !bytes.Equal(data, archive(t, x.make(again), store, x.o)) {
				t.Error("the same run gave other bytes")
			}
			name := saved(t, data)
			rep := verify(t, name)
			if !rep.OK || rep.RunID != r.Run.RunID || rep.Files < 12 {
				t.Errorf("Verify of the archive of %s = intact %t, run %s, %d files, problems %q; want an intact one of at least 12 files",
					r.Run.RunID, rep.OK, rep.RunID, rep.Files, problems(rep))
			}
			dir := unpack(t, name)
			if rep := verify(t, dir); !rep.OK {
				t.Errorf("Verify of the unpacked archive: problems %q, want none", problems(rep))
			}
			run(t, dir, "sha256sum", "--check", "--quiet", "--strict", "MANIFEST")
			if !x.o.ByReference && x.o.MaxBytes == 0 && r.Run.State == "succeeded" {
				run(t, dir, "sha256sum", "--check", "--quiet", "--strict", "outputs.sha256")
			}
		})
	}
}

// No byte of an archive is free: whichever of its structure is changed, and whichever file's first, middle or last byte, the check finds
// it.
func TestEveryByte(t *testing.T) {
	r, store := made(t)
	data := archive(t, r, store, Options{})
	list := value(readDirectory(bytes.NewReader(data), int64(len(data))))(t)
	inside := map[int64]bool{} // bytes of files that are not tried
	for _, e := range list {
		first := e.offset + int64(len(e.local()))
		for i := range e.size {
			inside[first+i] = i != 0 && i != e.size/2 && i != e.size-1
		}
	}
	for i := range data {
		if inside[int64(i)] {
			continue
		}
		changed := bytes.Clone(data)
		changed[i] ^= 0x20
		rep, err := verifyBytes(t, changed)
		if err == nil && rep.OK {
			t.Fatalf("byte %d (%q) was changed, and nothing was found", i, data[max(0, i-20):min(len(data), i+20)])
		}
	}
}

// verifyBytes checks an archive in memory as [Verify] checks a file.
func verifyBytes(t testing.TB, data []byte) (Report, error) {
	t.Helper()
	c := newChecker("test.zip")
	c.contents = newTree()
	c.part = func(name string, r io.ReaderAt, size int64) error { return c.checkRun(t.Context(), name, r, size) }
	if err := c.contents.archive(t.Context(), bytes.NewReader(data), int64(len(data)), c.bad); err != nil {
		return *c.Report, err
	}
	return c.check()
}

func unpack(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, "python3", "-m", "zipfile", "-e", name, dir)
	return dir
}

func problems(rep Report) string {
	var b strings.Builder
	for _, p := range rep.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.File, p.Message)
	}
	return b.String()
}
