package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

func newStore(t testing.TB) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s := value(Open(dir))(t)
	t.Cleanup(func() { s.Close() })
	return s, dir
}

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

func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Fatalf("got %v (kind %s, code %s), want kind %s, code %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// listed lists the regular files of the store.
func listed(t *testing.T, dir string) []string {
	t.Helper()
	var got []string
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			got = append(got, info.Mode().String()+" "+strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	return got
}

func TestStore(t *testing.T) {
	s, dir := newStore(t)
	data := []byte("hello\n")
	const sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	if s.Has(sum) {
		t.Error("an empty store has it")
	}
	for range 2 {
		got, size, err := s.Put(t.Context(), bytes.NewReader(data), 6)
		if err != nil || got != sum || size != 6 {
			t.Fatal(got, size, err)
		}
	}
	if diff := cmp.Diff([]string{"-r-------- objects/58/" + sum}, listed(t, dir)); diff != "" {
		t.Error(diff)
	}
	f := value(s.Open(sum))(t)
	got, err := io.ReadAll(f)
	f.Close()
	if err != nil || string(got) != "hello\n" || !s.Has(sum) {
		t.Error(string(got), err)
	}
	must(t, s.Verify(t.Context(), sum))
	again := value(Open(dir))(t)
	defer again.Close()
	must(t, again.Verify(t.Context(), sum))
	empty, size, err := s.Put(t.Context(), strings.NewReader(""), 0)
	if err != nil || size != 0 || empty != sumOf(nil) {
		t.Error(empty, size, err)
	}
}

// Damage is found by hashing, and bytes that are stored again take the place of a damaged object of theirs, of whatever
// size it is. An intact one is left alone, and what is no file is not opened.
func TestDamagedObjectIsMended(t *testing.T) {
	im, root, dir := newImporter(t, 1<<20)
	const text = "the good bytes\n"
	put(t, root+"/original", text)
	sum := sumOf([]byte(text))
	object := dir + "/objects/" + sum[:2] + "/" + sum
	number := func() uint64 {
		t.Helper()
		info := value(os.Stat(object))(t)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	_, err := im.ImportFile(t.Context(), root+"/original", inP)
	must(t, err)
	for name, damage := range map[string]string{"of the same size": "the evil bytes\n", "cut": "the good", "longer": text + text} {
		must(t, os.Remove(object))
		must(t, os.WriteFile(object, []byte(damage), 0o400))
		wantFault(t, im.store.Verify(t.Context(), sum), fault.Conflict, "artifact_corrupt")
		_, err := im.ImportFile(t.Context(), root+"/original", inP)
		must(t, err)
		if err := im.store.Verify(t.Context(), sum); err != nil {
			t.Errorf("an object with damage %s, imported again, is verified as %v, want no error", name, err)
		}
	}
	before := number()
	_, err = im.ImportFile(t.Context(), root+"/original", inP)
	must(t, err)
	if after := number(); after != before {
		t.Errorf("an intact object that is stored again has the inode %d, want %d as before", after, before)
	}
	must(t, os.Remove(object))
	must(t, unix.Mkfifo(object, 0o600))
	_, err = im.store.Open(sum)
	wantFault(t, err, fault.Internal, "artifact_corrupt")
}

func TestStoreRefuses(t *testing.T) {
	s, dir := newStore(t)
	_, _, err := s.Put(t.Context(), strings.NewReader("1234567"), 6)
	wantFault(t, err, fault.Policy, "artifact_too_large")
	_, _, err = s.Put(t.Context(), strings.NewReader("1"), 0)
	wantFault(t, err, fault.Policy, "artifact_too_large")
	_, _, err = s.Put(t.Context(), strings.NewReader("1"), -1)
	wantFault(t, err, fault.Internal, "limit")
	_, _, err = s.Put(t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("boom"))), 100)
	wantFault(t, err, fault.Transport, "filesystem")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = s.Put(ctx, strings.NewReader("1"), 1)
	wantFault(t, err, fault.Canceled, "canceled")
	if got := listed(t, dir); got != nil {
		t.Error("left behind:", got)
	}
	absent := strings.Repeat("0", 64)
	_, err = s.Open(absent)
	wantFault(t, err, fault.NotFound, "artifact_bytes_missing")
	wantFault(t, s.Verify(t.Context(), absent), fault.NotFound, "artifact_bytes_missing")
	for _, bad := range []string{"", "../../etc/passwd", strings.Repeat("A", 64), strings.Repeat("0", 63)} {
		_, err = s.Open(bad)
		wantFault(t, err, fault.Validation, "checksum")
		if s.Has(bad) {
			t.Errorf("it has %q", bad)
		}
	}
	_, err = Open("relative")
	wantFault(t, err, fault.Validation, "artifact_store")
}

// A temp file whose writer has ended is removed at the next start; one being written is not.
func TestStoreStaleTemp(t *testing.T) {
	s, dir := newStore(t)
	must(t, os.WriteFile(dir+"/tmp/crashed", []byte("half"), 0o600))
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Put(context.Background(), pr, 100)
		done <- err
	}()
	_, err := pw.Write([]byte("slow ")) // returns when Put has read it: its temp file exists
	must(t, err)
	again := value(Open(dir))(t)
	defer again.Close()
	if got := listed(t, dir); len(got) != 1 || strings.Contains(got[0], "crashed") {
		t.Error(got)
	}
	_, err = pw.Write([]byte("bytes"))
	must(t, err)
	pw.Close()
	must(t, <-done)
	must(t, again.Verify(t.Context(), sumOf([]byte("slow bytes"))))
}

// Many writers, few contents: each is stored once, whole.
func TestStoreConcurrentPut(t *testing.T) {
	s, dir := newStore(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			data := bytes.Repeat([]byte(fmt.Sprint(i%4)), 300_000)
			sum, size, err := s.Put(t.Context(), iotest.HalfReader(bytes.NewReader(data)), 300_000)
			if err != nil || size != 300_000 || sum != sumOf(data) {
				t.Error(sum, size, err)
			}
			if err := s.Verify(t.Context(), sum); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := listed(t, dir); len(got) != 4 {
		t.Error(got)
	}
}

func TestStoreDiskFull(t *testing.T) {
	dir := smallDisk(t, 1<<20)
	s, err := Open(dir)
	must(t, err)
	defer s.Close()
	for range 3 { // and again: nothing piles up
		_, _, err = s.Put(t.Context(), bytes.NewReader(make([]byte, 2<<20)), 10<<20)
		wantFault(t, err, fault.Transport, "disk_full")
	}
	if got := listed(t, dir); got != nil {
		t.Error("left behind:", got)
	}
	_, _, err = s.Put(t.Context(), strings.NewReader("small"), 10)
	must(t, err)
}

// smallDisk returns a folder in which no more than about limit bytes can be written: a small filesystem for root,
// elsewhere a limit on file sizes, which fails writes in the same place with another errno.
func smallDisk(t *testing.T, limit int64) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", limit))
	if err == nil {
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	if !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(limit), Max: old.Max}))
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_FSIZE, &old) })
	return dir
}

// ledgered is documents that are no objects.
type ledgered map[string][]byte

func (l ledgered) Payload(_ context.Context, sum string) ([]byte, error) {
	b, ok := l[sum]
	switch {
	case !ok:
		return nil, fault.New(fault.NotFound, "payload_not_found", "none")
	case sumOf(b) != sum:
		return nil, fault.New(fault.Internal, "ledger_corrupt", "changed")
	}
	return b, nil
}

// A payload outside the store is opened, read in parts and verified like an object, and does not become one.
// proves ARC-08
func TestPayloads(t *testing.T) {
	s, dir := newStore(t)
	here, there, bad := sumOf([]byte("here")), sumOf([]byte("not here")), sumOf([]byte("damaged"))
	_, _, err := s.Put(t.Context(), strings.NewReader("here"), 10)
	must(t, err)
	_, err = s.Open(there)
	wantFault(t, err, fault.NotFound, "artifact_bytes_missing")
	s.Consult(ledgered{there: []byte("not here"), bad: []byte("changed"), here: []byte("an object goes first")})
	for sum, want := range map[string]string{here: "here", there: "not here"} {
		f := value(s.Open(sum))(t)
		info := value(f.Stat())(t)
		if !info.Mode().IsRegular() || info.Size() != int64(len(want)) {
			t.Error(info.Mode(), info.Size())
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%q %v", got, err)
		}
		part := make([]byte, 2)
		if _, err := f.ReadAt(part, 2); err != nil || string(part) != want[2:4] {
			t.Errorf("%q %v", part, err)
		}
		must(t, f.Close())
		must(t, s.Verify(t.Context(), sum))
	}
	_, err = s.Open(bad)
	wantFault(t, err, fault.Internal, "ledger_corrupt")
	wantFault(t, s.Verify(t.Context(), bad), fault.Internal, "ledger_corrupt")
	for _, call := range []func(string) error{func(sum string) error { _, err := s.Open(sum); return err },
		func(sum string) error { return s.Verify(t.Context(), sum) }} {
		wantFault(t, call(sumOf([]byte("nowhere"))), fault.NotFound, "artifact_bytes_missing")
		wantFault(t, call("../x"), fault.Validation, "checksum")
	}
	if s.Has(there) || !s.Has(here) || len(listed(t, dir)) != 1 {
		t.Error("a payload became an object:", listed(t, dir))
	}
}
