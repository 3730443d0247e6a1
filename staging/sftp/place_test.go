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

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan/tree"
)

// Hashing in place reports its progress, by file and within a large file, and continues after the files that an earlier
// call hashed. A path whose state has changed is not hashed.
//
// proves DATA-05
func TestHashingInPlace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "it's [a] folder")
	must(t, os.MkdirAll(dir+"/sub", 0o755))
	total := int64(0)
	for i := range 600 { // more than one process is given
		text := strings.Repeat("x", i)
		must(t, os.WriteFile(fmt.Sprintf("%s/sub/file %03d", dir, i), []byte(text), 0o644))
		total += int64(len(text))
	}
	must(t, os.WriteFile(dir+"/-a", nil, 0o644))
	state, about, err := LookInPlace(t.Context(), shell{}, root, dir)
	if err != nil || about < total || !strings.HasPrefix(state, tree.StatePrefix) {
		t.Fatalf("LookInPlace gives %q, %d bytes, %v, want a state and at least %d bytes", state, about, err, total)
	}
	hash := func(before []tree.File) (list, told []tree.File, p *files.Progress, err error) {
		p = &files.Progress{}
		ctx := files.Watched(t.Context(), p)
		list, err = HashTreeInPlace(ctx, shell{}, root, dir, state, before, func(f tree.File) { told = append(told, f) })
		return list, told, p, err
	}
	all, told, p, err := hash(nil)
	if done, _ := p.Bytes(); err != nil || len(all) != 601 || len(told) != 601 || done != total || p.Skipped() != 0 {
		t.Fatalf("%d files, %d reported, %d bytes of %d, %v", len(all), len(told), done, total, err)
	}
	for i, f := range all[1:] {
		sum := sha256.Sum256([]byte(strings.Repeat("x", i)))
		if f != (tree.File{SHA256: hex.EncodeToString(sum[:]), Size: int64(i), Path: fmt.Sprintf("sub/file %03d", i)}) {
			t.Fatalf("hashed in place the file is %+v, want its own digest, size and path", f)
		}
	}
	rest, told, p, err := hash(all[:400])
	if done, _ := p.Bytes(); err != nil || len(rest) != 601 || rest[600] != all[600] || len(told) != 201 || done != total || p.Skipped() == 0 {
		t.Errorf("%d files, %d reported, %d bytes of %d, %v", len(rest), len(told), done, total, err)
	}
	must(t, os.WriteFile(dir+"/sub/file 000", []byte("other"), 0o644))
	if _, told, _, err := hash(all[:400]); fault.CodeOf(err) != "import_changed" || told != nil {
		t.Errorf("%d files reported, %v", len(told), err)
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
		t.Errorf("HashInPlace gives %d bytes, %v, want 3 GiB and no error", size, err)
	}
	if done, _ := p.Bytes(); done == 0 {
		t.Error("no progress was reported for a large file")
	}
}

// Hashing in place syncs the file first, so a later write through a memory page that was written to before shows in its
// state.
//
// proves DATA-05
func TestHashedInPlaceShowsEveryChange(t *testing.T) {
	root, err := os.MkdirTemp("/var/tmp", "slurmgate-") // a file in memory (tmpfs) has no times of such writes
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	file := filepath.Join(root, "data")
	f, err := os.Create(file)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(8192))
	memory, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { unix.Munmap(memory) })
	memory[0] = 'x'
	state, _, err := LookInPlace(t.Context(), shell{}, root, file)
	must(t, err)
	_, _, err = HashInPlace(t.Context(), shell{}, root, file, state)
	must(t, err)
	memory[0] = 'y'
	now, err := StatesInPlace(t.Context(), shell{}, []string{file})
	must(t, err)
	if now[0] == state {
		t.Errorf("after a write through memory the file has the state %s, as when it was registered", now[0])
	}
}

// A file or folder that another user could replace has no state.
//
// proves DATA-05
func TestExposedInPlace(t *testing.T) {
	root, err := os.MkdirTemp("/var/tmp", "slurmgate-") // the folders above it belong to root
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	must(t, os.MkdirAll(root+"/it's/deep", 0o755))
	must(t, os.WriteFile(root+"/it's/deep/file", nil, 0o644))
	states := func() []string {
		t.Helper()
		now, err := StatesInPlace(t.Context(), shell{}, []string{root + "/it's/deep", root + "/it's/deep/file", root + "/none"})
		must(t, err)
		return now
	}
	if now := states(); !strings.HasPrefix(now[0], tree.StatePrefix) || strings.Count(now[1], " ") != 3 ||
		!strings.Contains(now[2], "No such file") {
		t.Errorf("where all folders are root's the states are %q, want one of a tree, one of a file, and an error", now)
	}
	must(t, os.Chmod(root+"/it's", 0o775))
	for i, is := range states()[:2] {
		if want := "exposed " + root + "/it's"; is != want {
			t.Errorf("where a group may write to a folder above, state %d is %q, want %q", i, is, want)
		}
	}
	must(t, os.Chmod(root+"/it's", 0o755))
	must(t, os.Chown(root+"/it's/deep", 1001, 0))
	if now, want := states(), "exposed "+root+"/it's/deep"; now[1] != want || now[0] == want {
		t.Errorf("where a folder is another user's, the states are %q, want %q for the file in it", now, want)
	}
}
