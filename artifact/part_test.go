package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"slurmgate/fault"
)

// A part of an upload that is cut is kept; the next part must continue there, in another process too. The whole
// upload is checked in the end.
//
// proves DATA-05
func TestUploadGoesOn(t *testing.T) {
	dir := t.TempDir()
	var whole bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&whole, "@r%d\nACGT\n+\nIIII\n", i)
	}
	data := whole.Bytes()
	send := func(owner string, at, to int, size int64) (Imported, error) {
		im := value(NewImporter(openStore(t, dir), ImportPolicy{MaxBytes: 1 << 30}))(t)
		r := io.Reader(bytes.NewReader(data[at:to]))
		if to < len(data) {
			r = io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF))
		}
		return im.ImportStream(t.Context(), r, size, "r.fastq", &Part{owner, "of-monday", int64(at)})
	}
	wantOffset := func(err error, at int) {
		t.Helper()
		var off *OffsetError
		if !errors.As(err, &off) || fault.CodeOf(err) != "upload_offset" || off.Stored != int64(at) || off.SHA256 != sumOf(data[:at]) {
			t.Errorf("%v, want %d", err, at)
		}
	}
	third, half := len(data)/3, len(data)/2
	for _, c := range []struct{ at, to, stored int }{{0, third, third}, {third, half, half}} {
		_, err := send("p alice", c.at, c.to, int64(len(data)-c.at))
		wantFault(t, err, fault.Transport, "filesystem")
		_, err = send("p alice", 0, len(data), -1)
		wantOffset(err, c.stored)
	}
	_, err := send("p alice", half+1, len(data), -1)
	wantOffset(err, half)
	_, err = send("p bob", half, len(data), -1) // bob's upload of the name has no bytes
	wantOffset(err, 0)
	got, err := send("p alice", half, len(data), -1)
	if err != nil || got.SHA256 != sumOf(data) || got.SizeBytes != int64(len(data)) || got.Type != "TEXT" {
		t.Errorf("the whole upload is %s %s of %d bytes, %v; want TEXT %s of %d", got.Type, got.SHA256, got.SizeBytes, err,
			sumOf(data), len(data))
	}
	if left := parts(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	_, err = send("p alice", half, len(data), int64(len(data)-half)) // the upload has ended
	wantOffset(err, 0)
	got, err = send("p alice", 0, len(data), int64(len(data)))
	if err != nil || got.SHA256 != sumOf(data) {
		t.Errorf("a new upload is %s, %v; want %s", got.SHA256, err, sumOf(data))
	}
}

// What is wrong with the whole is found out at its end, whichever part it is in. An upload that is only not of its
// type is kept: the same bytes are imported as another type without sending them again. A size that is known is
// refused before anything is read.
func TestUploadRefused(t *testing.T) {
	store, dir := newStore(t)
	im, err := NewImporter(store, ImportPolicy{MaxBytes: 100})
	must(t, err)
	part := func(at int64) *Part { return &Part{"p", "some.json", at} }
	cut := io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(io.ErrUnexpectedEOF))
	_, err = im.As("JSON").ImportStream(t.Context(), cut, 10, "", part(0))
	wantFault(t, err, fault.Transport, "filesystem")
	_, err = im.As("JSON").ImportStream(t.Context(), strings.NewReader(`]`), 1, "", part(5))
	var off *OffsetError
	if fault.CodeOf(err) != ImportFormat || !errors.As(err, &off) || off.Stored != 6 || off.SHA256 != sumOf([]byte(`{"a":]`)) ||
		!strings.Contains(err.Error(), "offset=6") {
		t.Errorf("an upload that is not of its type: %v, want %s and that 6 bytes are kept", err, ImportFormat)
	}
	got, err := im.As("TEXT").ImportStream(t.Context(), strings.NewReader(""), 0, "", part(6))
	if err != nil || got.SHA256 != sumOf([]byte(`{"a":]`)) || got.Type != "TEXT" || len(parts(t, dir)) != 0 {
		t.Errorf("the same upload as TEXT, without its bytes: %s %s, %v, left %q; want the stored bytes", got.Type,
			got.SHA256, err, parts(t, dir))
	}
	must(t, os.RemoveAll(dir+"/objects"))
	_, err = im.ImportStream(t.Context(), iotest.ErrReader(io.ErrUnexpectedEOF), 100, "", part(1))
	wantFault(t, err, fault.Policy, "artifact_too_large")
	_, err = im.ImportStream(t.Context(), strings.NewReader(""), 0, "", part(0))
	wantFault(t, err, fault.Validation, ImportSize)
	if left := listed(t, dir); left != nil {
		t.Errorf("left: %v", left)
	}
}

// One request at a time sends an upload, and the number of cut uploads of one owner is bounded: the owner's oldest is
// removed.
func TestUploadsOfOne(t *testing.T) {
	store, dir := newStore(t)
	im, err := NewImporter(store, ImportPolicy{MaxBytes: 1 << 20})
	must(t, err)
	old := time.Now().Add(-time.Hour)
	begin := func(owner string, i int) {
		r := io.MultiReader(strings.NewReader("some"), iotest.ErrReader(io.ErrUnexpectedEOF))
		_, err := im.ImportStream(t.Context(), r, -1, "", &Part{owner, fmt.Sprint("key-", i), 0})
		wantFault(t, err, fault.Transport, "filesystem")
		old = old.Add(time.Second) // files differ in their time
		must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() && info.ModTime().After(old) {
				return os.Chtimes(path, old, old)
			}
			return err
		}))
	}
	begin("bob", 0)
	for i := range uploadsOfOne + 2 {
		begin("alice", i)
	}
	for key, stored := range map[*Part]int64{{"bob", "key-0", 99}: 4, {"alice", "key-0", 99}: 0, {"alice", "key-17", 99}: 4} {
		_, err := im.ImportStream(t.Context(), strings.NewReader("x"), -1, "", key)
		var off *OffsetError
		if !errors.As(err, &off) || off.Stored != stored {
			t.Errorf("%s's upload %s at byte 99: %v, want an error with %d bytes stored", key.Owner, key.Key, err, stored)
		}
	}
	slow := &paused{Reader: strings.NewReader("slow"), begun: make(chan struct{}), on: make(chan struct{})}
	done := make(chan error)
	go func() {
		_, err := im.ImportStream(t.Context(), slow, -1, "", &Part{"carol", "key-0001", 0})
		done <- err
	}()
	<-slow.begun
	_, err = im.ImportStream(t.Context(), strings.NewReader("x"), -1, "", &Part{"carol", "key-0001", 0})
	wantFault(t, err, fault.Transport, "upload_busy")
	close(slow.on)
	must(t, <-done)
	if n := len(parts(t, dir)); n > 2*(uploadsOfOne+2) {
		t.Errorf("%d files are left", n)
	}
}
