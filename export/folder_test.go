package export

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// list adds a directory artifact with these files, by path, and returns it.
func (o objects) list(t testing.TB, texts map[string]string) (sum string, size int64, files []tree.File) {
	t.Helper()
	for _, path := range []string{"a.txt", "it's x", "sub/b.txt", "sub.c"} { // the order of a list
		if text, there := texts[path]; there {
			files = append(files, tree.File{SHA256: o.add(text), Size: int64(len(text)), Path: path})
			size += int64(len(text))
		}
	}
	var b bytes.Buffer
	w := tree.NewWriter(&b)
	for _, f := range files {
		must(t, w.Add(f))
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return o.add(b.String()), size, files
}

// folders returns a run with a directory as input and another as output.
func folders(t testing.TB) (Record, objects) {
	t.Helper()
	r, store := made(t)
	p := value(plan.DecodeParams(r.Params))(t)
	r.Directories = map[string][]tree.File{}
	index, size, files := store.list(t, map[string]string{"a.txt": "one\n", "it's x": "two\n", "sub/b.txt": ""})
	r.Directories[index] = files
	p.Spec.IO.Inputs = append([]plan.Input{{Role: "index", ChecksumSHA256: index, DestRelpath: "in/index", Directory: true}},
		p.Spec.IO.Inputs...)
	r.Run.Inputs = append(r.Run.Inputs, Artifact{Role: "index", Relpath: "in/index", ArtifactID: "art_00000000000000000000000005",
		Type: plan.Directory, Label: "an index", SizeBytes: size, SHA256: index, ReferenceName: "genome"})
	report, size, files := store.list(t, map[string]string{"a.txt": "4\n", "sub/b.txt": "5\n", "sub.c": "6\n"})
	r.Directories[report] = files
	p.Spec.IO.Outputs = append(p.Spec.IO.Outputs, plan.Output{Role: "report", SrcRelpath: "out/report", Type: plan.Directory, Label: "report"})
	r.Run.Outputs = append(r.Run.Outputs, Artifact{Role: "report", Relpath: "out/report", ArtifactID: "art_00000000000000000000000006",
		Type: plan.Directory, Label: "report", SizeBytes: size, SHA256: report})
	r.Params = value(p.Canonical())(t)
	r.Run.ParamsHash = plan.Hash(r.Params)
	r.Run.RunID, r.Run.PlanHash = r.Run.identity().RunID(), r.Run.identity().PlanHash()
	for i := range r.Events {
		r.Events[i].RunID = r.Run.RunID
		r.Events[i].PrevHash = plan.Hash(nil)
		if i > 0 {
			r.Events[i].PrevHash = r.Events[i-1].Hash
		}
		r.Events[i].Hash = value(r.Events[i].Sum())(t)
	}
	return r, store
}

// An archive has the files of directory artifacts, and they are held against the artifact's checksum: a file that was changed, removed or
// added is found even where MANIFEST was written again.
//
// proves DATA-02 EXP-01
func TestFoldersInArchives(t *testing.T) {
	r, store := folders(t)
	data := archive(t, r, store, Options{})
	name := saved(t, data)
	dir := unpack(t, name)
	for _, at := range []string{name, dir} {
		if rep := verify(t, at); !rep.OK {
			t.Fatalf("Verify(%s): problems %q, want none", at, problems(rep))
		}
	}
	for _, list := range []string{"MANIFEST", "outputs.sha256"} {
		run(t, dir, "sha256sum", "--check", "--quiet", "--strict", list)
	}
	run(t, dir, "sh", "-c", "grep -v images/ pinned.sha256 | sha256sum --check --quiet --strict -")
	for what, change := range map[string]func(files map[string][]byte){
		"a changed file": func(files map[string][]byte) { files["out/report/sub/b.txt"] = []byte("6\n") },
		"a removed file": func(files map[string][]byte) { delete(files, "in/index/it's x") },
		"an added file":  func(files map[string][]byte) { files["in/index/more"] = []byte{} },
		"a hidden file":  func(files map[string][]byte) { files["in/index/.x"] = []byte("x") },
		"a renamed file": func(files map[string][]byte) {
			files["in/index/b.txt"] = files["in/index/a.txt"]
			delete(files, "in/index/a.txt")
		},
		"an empty folder": func(files map[string][]byte) {
			maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasPrefix(name, "out/report/") })
		},
	} {
		files := members(t, data)
		change(files)
		if rep, err := verifyBytes(t, packed(files)); err != nil || rep.OK {
			t.Errorf("Verify of an archive with %s: %v, no problem; want one", what, err)
		}
		relist(files)
		rep, err := verifyBytes(t, packed(files))
		if err != nil || rep.OK || !strings.Contains(problems(rep), "art_0000000000000000000000000") {
			t.Errorf("Verify of an archive with %s and its MANIFEST: %v, problems %q; want one that names the artifact", what, err, problems(rep))
		}
	}
}

// A directory that cannot be in the archive as a whole is by reference, with the reason.
func TestFolderByReference(t *testing.T) {
	for why, change := range map[string]func(r *Record, o *Options){
		"larger than":    func(_ *Record, o *Options) { o.MaxBytes = 5 },
		"not known":      func(r *Record, _ *Options) { r.Directories = nil },
		"in case only":   func(r *Record, _ *Options) { twin(r, "A.txt") },
		"lies elsewhere": func(r *Record, _ *Options) { r.Run.Outputs[1].Why = "it lies elsewhere" },
	} {
		t.Run(why, func(t *testing.T) {
			r, store := folders(t)
			o := Options{}
			change(&r, &o)
			a := value(New(sign(t, r, nil), o, store.open))(t)
			if x := a.Run().Outputs[1]; x.File != "" || !strings.Contains(x.Why, why) {
				t.Errorf("the folder is in the file %q because %q; want no file and %q", x.File, x.Why, why)
			}
			var b bytes.Buffer
			must(t, a.WriteTo(t.Context(), &b))
			if rep := verify(t, saved(t, b.Bytes())); !rep.OK {
				t.Errorf("Verify of the archive: problems %q, want none", problems(rep))
			}
		})
	}
}

// twin adds a file to the output folder whose name differs from another's in case.
func twin(r *Record, name string) {
	sum := r.Run.Outputs[1].SHA256
	list := r.Directories[sum]
	r.Directories[sum] = append([]tree.File{{SHA256: list[0].SHA256, Size: list[0].Size, Path: name}}, list...)
}

// The Nextflow module compares folders as the gateway does.
func TestModuleChecksFolders(t *testing.T) {
	store := objects{}
	texts := map[string]string{"a.txt": "one\n", "it's x": "two\n", "sub/b.txt": "", "sub.c": "three\n"}
	sum, _, _ := store.list(t, texts)
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/in/the index/sub", 0o700))
	for path, text := range texts {
		must(t, os.WriteFile(filepath.Join(dir, "in/the index", path), []byte(text), 0o600))
	}
	lines := check([][2]string{{sumOf([]byte("one\n")), "in/the index/a.txt"}}, [][2]string{{sum, "in/the index"}})
	check := func() (string, bool) { return try(t, dir, "bash", "-ue", "-c", strings.Join(lines, "\n")) }
	if out, ok := check(); !ok {
		t.Error(out)
	}
	must(t, os.WriteFile(dir+"/in/the index/sub/new", nil, 0o600))
	if out, ok := check(); ok || !strings.Contains(out, "in/the index: FAILED") {
		t.Error(out)
	}
}

// An archive of a hundred thousand files is written and verified.
//
// slow: writes a hundred thousand files
func TestManyFilesInArchive(t *testing.T) {
	r, store := folders(t)
	sum := store.add("x")
	var files []tree.File
	var b bytes.Buffer
	w := tree.NewWriter(&b)
	for i := range 100_000 {
		files = append(files, tree.File{SHA256: sum, Size: 1, Path: fmt.Sprintf("part/%06d.txt", i)})
		must(t, w.Add(files[i]))
	}
	_, err := w.Close()
	must(t, err)
	out := &r.Run.Outputs[1]
	out.SHA256, out.SizeBytes = store.add(b.String()), int64(len(files))
	r.Directories[out.SHA256] = files
	if rep, err := verifyBytes(t, archive(t, r, store, Options{})); err != nil || !rep.OK || rep.Files < len(files) {
		t.Errorf("Verify of an archive of %d files: %v, %d files, problems %q", len(files), err, rep.Files, problems(rep))
	}
}
