package sftp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"slurmgate/remote/transfer"
)

// left creates a file that was last written age ago.
func left(t *testing.T, name string, age time.Duration) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must(t, os.WriteFile(name, []byte("part"), 0o600))
	must(t, os.Chtimes(name, time.Time{}, time.Now().Add(-age)))
	return name
}

func remains(t *testing.T, name string, want bool) {
	t.Helper()
	if _, err := os.Lstat(name); (err == nil) != want || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want it to remain: %v", name, err, want)
	}
}

// Parts of interrupted transfers are removed a week after the last byte, at the start and with gc. Parts that may be in
// transfer, files with other names and files behind a link stay.
func TestSweep(t *testing.T) {
	const other = "run_1X8Z4D1X467KV94K4TXG0D9BXT"
	part, record := transfer.TempPrefix+"0123456789abcdef0123456789abcdef", transfer.TempPrefix+"0123456789abcdef0123456789abcdef.at"
	eachForm(t, func(t *testing.T, far *farSide) {
		old, young := leftoverAge+time.Hour, leftoverAge-time.Hour
		leave := func() (gone, stay []string) {
			return []string{left(t, far.path(other, stageDir, part), old), left(t, far.path(other, stageDir, record), old),
					left(t, far.path(other, stageDir, transfer.TempPrefix+"ABC"), old)},
				[]string{left(t, far.path(runA, stageDir, part), young), left(t, far.path(other, "in", part), old),
					left(t, far.path(other, stageDir, "whole"), old), left(t, far.path("mine", stageDir, part), old)}
		}
		check := func(gone, stay []string) {
			t.Helper()
			for _, name := range gone {
				remains(t, name, false)
			}
			for _, name := range stay {
				remains(t, name, true)
			}
		}
		outside := left(t, filepath.Join(t.TempDir(), part), old)
		must(t, os.Mkdir(far.path("run_linked"), 0o700))
		must(t, os.Symlink(filepath.Dir(outside), far.path("run_linked", stageDir)))
		gone, stay := leave()
		w := far.open(t, nil)
		check(gone, append(stay, outside))
		gone, _ = leave()
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
		remove := func() {
			t.Helper()
			_, err := w.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, func() (bool, error) { return true, nil })
			must(t, err)
		}
		remove() // the last sweep was just now
		check(nil, gone)
		yesterday := time.Now().Add(-sweepPause)
		w.swept.Store(&yesterday)
		remove()
		check(gone, nil)
	})
}

// Adding an image removes old parts of other images.
func TestSweepOfImages(t *testing.T) {
	for name, shell := range map[string]Shell{"shell": shell{}, "SFTP alone": nil} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := NewFolder(shell, dir, server{}, dir, poolOf(t, server{}))
			t.Cleanup(f.Close)
			old := left(t, filepath.Join(dir, transfer.TempPrefix+"0"), leftoverAge+time.Hour)
			adding := left(t, filepath.Join(dir, addingPrefix+"a.sif"), leftoverAge+time.Hour)
			young := left(t, filepath.Join(dir, transfer.TempPrefix+"1"), leftoverAge-time.Hour)
			image := left(t, filepath.Join(dir, "old.sif"), leftoverAge+time.Hour)
			data := []byte("image")
			sum := sha256.Sum256(data)
			must(t, f.Put(t.Context(), "new.sif", bytes.NewReader(data), int64(len(data)), hex.EncodeToString(sum[:])))
			for name, want := range map[string]bool{old: false, adding: false, young: true, image: true, filepath.Join(dir, "new.sif"): true} {
				remains(t, name, want)
			}
		})
	}
}
