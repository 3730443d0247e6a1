package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/httpapi"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// collectHere does the work of a process that is killed: it collects the files listed in a file, into a folder, from a
// socket.
func collectHere(t *testing.T, socket, list, dir string) (int, error) {
	t.Helper()
	text, err := os.ReadFile(list)
	must(t, err)
	var files []placed
	var all []struct {
		collected
		Doc app.ArtifactDoc
		Row int
	}
	must(t, json.Unmarshal(text, &all))
	for _, x := range all {
		files = append(files, placed{x.collected, x.Doc, x.Row})
	}
	l, err := newLink(t.Context(), func(ctx context.Context) (*httpapi.Client, Gateway, error) {
		c, err := httpapi.Dial(ctx, socket)
		return c, nil, err
	})
	must(t, err)
	s := &Session{link: l}
	return s.collectAll(t.Context(), &Shell{Out: io.Discard, Err: io.Discard}, "batch_x", files, dir)
}

// A collect that is killed leaves no file and no directory under its name that is not whole: the next one completes it, and removes what
// was unfinished. What another collect is writing at the time is left alone.
//
// proves MANY-01
func TestKilledCollect(t *testing.T) {
	if at := strings.Split(os.Getenv("COLLECT_UNTIL_KILLED"), "|"); len(at) == 3 {
		n, err := collectHere(t, at[0], at[1], at[2])
		t.Fatal("it was not killed", n, err)
	}
	large, small := bytes.Repeat([]byte("0123456789abcdef"), 200<<10), []byte("small")
	var folder, manifest bytes.Buffer
	pack, lines := tree.NewTarWriter(&folder), tree.NewWriter(&manifest)
	sum := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
	for _, name := range []string{"a", "b"} {
		must(t, pack.Add(name, int64(len(large)), bytes.NewReader(large)))
		must(t, lines.Add(tree.File{SHA256: sum(large), Size: int64(len(large)), Path: name}))
	}
	must(t, pack.Close())
	if _, err := lines.Close(); err != nil {
		t.Fatal(err)
	}
	type file struct {
		Sample, Tool, Role, Path string
		Size                     int64
		SHA256, Run              string
		Doc                      app.ArtifactDoc
		Row                      int
	}
	var list []file
	add := func(path, id, typ, checksum string, size int) {
		list = append(list, file{Path: path, Size: int64(size), SHA256: checksum, Row: len(list) + 2,
			Doc: app.ArtifactDoc{ArtifactID: id, Type: typ, SizeBytes: int64(size), ChecksumSHA256: checksum}})
	}
	add("S/large", "art_large", "BAM", sum(large), len(large))
	add("S/folder", "art_folder", plan.Directory, sum(manifest.Bytes()), manifest.Len())
	for i := range 2 * fewOutputs {
		add(fmt.Sprintf("S/small%d", i), fmt.Sprintf("art_small%d", i), "TEXT", sum(small), len(small))
	}
	raw, err := json.Marshal(list)
	must(t, err)
	for _, stalls := range []string{"art_large", "art_folder", "batch_x"} {
		t.Run(stalls, func(t *testing.T) {
			tmp, err := os.MkdirTemp("", "sg") // a socket's path is short
			must(t, err)
			defer os.RemoveAll(tmp)
			var cut atomic.Bool
			cut.Store(true)
			m := &mortal{t: t, path: filepath.Join(tmp, "s")}
			m.face = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body []byte
				switch at := strings.Split(r.URL.Path, "/"); {
				case strings.Contains(r.URL.Path, "art_large"):
					body = large
				case strings.Contains(r.URL.Path, "art_folder"):
					body = folder.Bytes()
				case strings.Contains(r.URL.Path, "art_small"):
					body = small
				case at[len(at)-1] == "contents":
					var b bytes.Buffer
					p := tar.NewWriter(&b)
					for i := range 2 * fewOutputs {
						p.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("art_small%d", i), Size: int64(len(small))})
						p.Write(small)
					}
					p.Close()
					body = b.Bytes()
				}
				if !cut.Load() || !strings.Contains(r.URL.Path, stalls) {
					w.Write(body)
					return
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				w.Write(body[:len(body)/2])
				w.(http.Flusher).Flush()
				<-r.Context().Done() // the process was killed
			})
			if _, _, err := m.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer m.die()
			dir := filepath.Join(tmp, "to")
			listed := filepath.Join(tmp, "list")
			must(t, os.WriteFile(listed, raw, 0o600))
			child := exec.Command(os.Args[0], "-test.run=^TestKilledCollect$")
			child.Env = append(os.Environ(), "COLLECT_UNTIL_KILLED="+m.path+"|"+listed+"|"+dir)
			must(t, child.Start())
			// A transfer that stalls stays unfinished: a file with bytes, or a folder with something in it, which is
			// held by then.
			unfinished := filepath.Join(dir, "S", "."+strings.TrimPrefix(stalls, "art_")+".*.part")
			halfway := func() bool {
				if stalls == "batch_x" {
					done, _ := filepath.Glob(filepath.Join(dir, "S", "small*"))
					return len(done) > 0
				}
				parts, _ := filepath.Glob(unfinished)
				within, _ := filepath.Glob(filepath.Join(unfinished, "*"))
				return len(within) > 0 || slices.ContainsFunc(parts, func(part string) bool {
					st, err := os.Stat(part)
					return err == nil && st.Mode().IsRegular() && st.Size() > 0
				})
			}
			for until := time.Now().Add(time.Minute); !halfway(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(until) {
					child.Process.Kill()
					t.Fatal("the collect did not begin")
				}
			}
			dropParts(filepath.Join(dir, "S"), func(string) bool { return true })
			if left, _ := filepath.Glob(unfinished); stalls != "batch_x" && len(left) != 1 {
				t.Errorf("a removal of unfinished parts left %q, want the one that is being written", left)
			}
			child.Process.Kill()
			child.Wait()
			for _, f := range list {
				if _, err := os.Lstat(filepath.Join(dir, f.Path)); err == nil && f.Doc.ArtifactID == stalls {
					t.Errorf("%s is there in part", f.Path)
				}
			}
			cut.Store(false)
			n, err := collectHere(t, m.path, listed, dir)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			for _, f := range list {
				x := placed{collected: collected{Path: f.Path, Size: f.Size, SHA256: f.SHA256}, doc: f.Doc}
				if gone, err := x.missing(dir); gone || err != nil {
					t.Error(f.Path, gone, err)
				}
			}
			for _, name := range []string{"a", "b"} {
				if got, err := os.ReadFile(filepath.Join(dir, "S/folder", name)); err != nil || !bytes.Equal(got, large) {
					t.Error(name, len(got), err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "S", ".*")); len(left) > 0 {
				t.Error("left over:", left)
			}
		})
	}
}

// A command makes another unfinished file or folder if a parallel one removes the first before it is held.
func TestPartRemovedBeforeItIsHeld(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	tries := 0
	f, err := begin(name, func(part string) (*os.File, error) {
		f, err := os.Create(part)
		if tries++; tries <= 2 {
			dropParts(dir, func(string) bool { return true })
		}
		return f, err
	})
	if err != nil {
		t.Fatalf("beginning %s failed: %v", name, err)
	}
	defer f.Close()
	if _, err := os.Lstat(f.Name()); err != nil || tries != 3 {
		t.Errorf("after %d tries, the part is there: %v; want 3 tries, with the part in place", tries, err)
	}
	dropParts(dir, func(string) bool { return true })
	if _, err := os.Lstat(f.Name()); err != nil {
		t.Errorf("a part that is held was removed: %v", err)
	}
}

// A new file replaces no existing one, and an error leaves nothing.
func TestNewFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, strings.Repeat("n", 255))
	must(t, newFile(name, func(f *os.File) error { _, err := f.WriteString("one"); return err }))
	for _, err := range []error{
		newFile(name, func(*os.File) error { t.Error("written"); return nil }),
		newFolder(name, func(*os.Root) error { t.Error("written"); return nil }),
		newFile(filepath.Join(dir, "x"), func(*os.File) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600) }),
		newFile(filepath.Join(dir, "y"), func(*os.File) error { return io.ErrUnexpectedEOF }),
		newFolder(filepath.Join(dir, "z"), func(r *os.Root) error { r.Mkdir("sub", 0o700); return io.ErrUnexpectedEOF }),
		newFolder(filepath.Join(dir, "none/z"), func(*os.Root) error { return nil }),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	if got, err := os.ReadFile(name); string(got) != "one" {
		t.Error(string(got), err)
	}
}
