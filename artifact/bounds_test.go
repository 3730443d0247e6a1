package artifact_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/plan/tree"
)

// Policy's limits of a directory hold for a copy, for one in place and for a list that another host made; what is beyond them is refused
// before the file is read. In place, somebody who watches sees how many bytes of how many are hashed.
//
// proves DATA-02 DATA-05
func TestDirectoryBounds(t *testing.T) {
	dir := t.TempDir()
	var list []tree.File
	for i := range 3 {
		name := fmt.Sprintf("sub/deep/%d", i)
		if err := os.MkdirAll(filepath.Dir(dir+"/top/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/top/"+name, []byte("four"), 0o644); err != nil {
			t.Fatal(err)
		}
		list = append(list, tree.File{SHA256: strings.Repeat("a", 64), Size: 4, Path: name})
	}
	store, err := artifact.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	im, err := artifact.NewImporter(store, artifact.ImportPolicy{Roots: []artifact.Root{{Folder: dir}}, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	all := artifact.Scope{Every: true}
	for want, b := range map[string]artifact.Bounds{"": {Files: 3, Depth: 2, Bytes: 12}, "max_files: at most 2": {Files: 2},
		"max_depth: at most 1": {Depth: 1}, "max_bytes: at most 11": {Bytes: 11}} {
		_, copied := im.Bounded(b).ImportFolder(t.Context(), dir+"/top", all)
		_, placed := im.Bounded(b).RegisterFolder(t.Context(), dir+"/top", all)
		for how, err := range map[string]error{"copied": copied, "in place": placed, "far": b.Allow(list)} {
			p := fault.ProblemsOf(err)
			if want == "" && err != nil || want != "" && (len(p) != 1 || p[0].Code != "POLICY-DIRECTORY" || !strings.Contains(p[0].Rule, want)) {
				t.Errorf("%s, %+v: %v %+v", how, b, err, p)
			}
		}
	}
	p := &artifact.Progress{}
	if _, err := im.RegisterFolder(artifact.Watched(t.Context(), p), dir+"/top", all); err != nil {
		t.Fatal(err)
	}
	if done, of := p.Bytes(); done != 12 || of != 12 {
		t.Errorf("%d of %d bytes", done, of)
	}
}
