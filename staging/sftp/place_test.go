package sftp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan/tree"
)

// What is hashed where it lies tells how far it is, file by file and within a large one, and goes on behind the files that an earlier call
// hashed. What has another state by then is not hashed.
//
// proves DATA-05
func TestHashingInPlace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "it's [a] folder")
	must(t, os.MkdirAll(dir+"/sub", 0o755))
	total := int64(0)
	for i := range 600 { // more than one process hashes
		text := strings.Repeat("x", i)
		must(t, os.WriteFile(fmt.Sprintf("%s/sub/file %03d", dir, i), []byte(text), 0o644))
		total += int64(len(text))
	}
	must(t, os.WriteFile(dir+"/-a", nil, 0o644))
	state, about, err := LookInPlace(t.Context(), shell{}, root, dir)
	if err != nil || about < total || !strings.HasPrefix(state, tree.StatePrefix) {
		t.Fatal(state, about, err)
	}
	hash := func(before []tree.File) (list, told []tree.File, p *files.Progress, err error) {
		p = &files.Progress{}
		ctx := files.Watched(t.Context(), p)
		list, err = HashTreeInPlace(ctx, shell{}, root, dir, state, before, func(f tree.File) { told = append(told, f) })
		return list, told, p, err
	}
	all, told, p, err := hash(nil)
	if done, _ := p.Bytes(); err != nil || len(all) != 601 || len(told) != 601 || done != total || p.Skipped() != 0 {
		t.Fatalf("%d files, %d told, %d bytes of %d, %v", len(all), len(told), done, total, err)
	}
	for i, f := range all[1:] {
		sum := sha256.Sum256([]byte(strings.Repeat("x", i)))
		if f != (tree.File{SHA256: hex.EncodeToString(sum[:]), Size: int64(i), Path: fmt.Sprintf("sub/file %03d", i)}) {
			t.Fatalf("%+v", f)
		}
	}
	rest, told, p, err := hash(all[:400])
	if done, _ := p.Bytes(); err != nil || len(rest) != 601 || rest[600] != all[600] || len(told) != 201 || done != total || p.Skipped() == 0 {
		t.Errorf("%d files, %d told, %d bytes of %d, %v", len(rest), len(told), done, total, err)
	}
	must(t, os.WriteFile(dir+"/sub/file 000", []byte("other"), 0o644))
	if _, told, _, err := hash(all[:400]); fault.CodeOf(err) != "import_changed" || told != nil {
		t.Errorf("%d told, %v", len(told), err)
	}

	big := filepath.Join(root, "big")
	must(t, os.WriteFile(big, nil, 0o644))
	must(t, os.Truncate(big, 3<<30))
	state, _, err = LookInPlace(t.Context(), shell{}, root, big)
	must(t, err)
	p = &files.Progress{}
	ctx, stop := context.WithCancel(files.Watched(t.Context(), p))
	defer stop()
	if _, size, err := HashInPlace(ctx, shell{}, root, big, state); err != nil || size != 3<<30 {
		t.Error(size, err)
	}
	if done, _ := p.Bytes(); done == 0 {
		t.Error("nothing was told of a large file")
	}
}
