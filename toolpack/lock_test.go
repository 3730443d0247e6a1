package toolpack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

var lockTime = time.Date(2026, 11, 21, 7, 0, 0, 999, time.FixedZone("", 3600))

func locked(name, digit string) LockedImage {
	return LockedImage{Name: name, Digest: "sha256:" + strings.Repeat(digit, 64), Arch: "amd64", SizeBytes: 4096, Source: "from: a\n\"file\"",
		AddedAt: lockTime}
}

func TestLockRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	if l, err := ReadLock(path); err != nil || len(l.List()) > 0 {
		t.Fatalf("a missing file reads as %v, %v", l, err)
	}
	for _, n := range []LockedImage{locked("seqkit", "b"), locked("minimap2", "c"), locked("samtools", "a")} {
		if changed, err := Record(path, n, false); err != nil || !changed {
			t.Fatalf("%v, %v", changed, err)
		}
	}
	l, err := ReadLock(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []LockedImage{locked("minimap2", "c"), locked("samtools", "a"), locked("seqkit", "b")}
	for i := range want {
		want[i].AddedAt = lockTime.UTC().Truncate(time.Second)
	}
	if diff := cmp.Diff(want, l.List()); diff != "" {
		t.Error(diff)
	}
	if n, ok := l.Lookup("samtools"); !ok || n.Digest != locked("", "a").Digest {
		t.Errorf("Lookup: %v, %v", n, ok)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"# Written by `slurmgate image add", "\n    added_at: 2026-11-21T06:00:00Z\n",
		"\nversion: 1\nimages:\n  - name: minimap2\n"} {
		if !strings.Contains(string(data), text) {
			t.Errorf("%q is not in\n%s", text, data)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}

	// The same again changes nothing; another digest needs replace.
	again := locked("samtools", "a")
	again.Source = "elsewhere"
	if changed, err := Record(path, again, true); err != nil || changed {
		t.Errorf("%v, %v", changed, err)
	}
	_, err = Record(path, locked("samtools", "d"), false)
	if !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "IMAGE-NAME-TAKEN" {
		t.Error(err)
	}
	if changed, err := Record(path, locked("samtools", "d"), true); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if l, err = ReadLock(path); err != nil || len(l.List()) != 3 || l.List()[1].Digest != locked("", "d").Digest {
		t.Errorf("%v, %v", l, err)
	}
}

func TestConcurrentRecordsAllStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if _, err := Record(path, locked(fmt.Sprintf("tool%d", i), "a"), false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if l, err := ReadLock(path); err != nil || len(l.List()) != 10 {
		t.Errorf("%d images, %v", len(l.List()), err)
	}
}

func TestLockRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	for _, n := range []LockedImage{locked("Upper", "a"), locked("", "a"), locked("a b", "a"), {Name: "x", Digest: "latest", Arch: "amd64",
		SizeBytes: 1}} {
		_, err := Record(path, n, false)
		if !fault.Is(err, fault.Validation) || fault.CodeOf(err) != "IMAGE-NAME" {
			t.Error(err)
		}
	}
	entry := "\n  - {name: a, digest: sha256:" + strings.Repeat("a", 64) + ", arch: amd64, size_bytes: 1, source: s, added_at: " +
		"2026-11-21T07:00:00Z}"
	for what, text := range map[string]string{
		"empty": "", "other version": "version: 2\nimages: []", "unknown key": "version: 1\nimgs: []",
		"two documents":  "version: 1\nimages: []\n---\nversion: 1\n",
		"duplicate name": "version: 1\nimages:" + entry + entry, "duplicate key": "version: 1\nversion: 1",
		"no digest": "version: 1\nimages: [{name: a}]",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLock(path); !fault.Is(err, fault.Validation) || !strings.HasPrefix(fault.CodeOf(err), "LOCK-") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.WriteFile(path, []byte("version: 1\nimages:"+entry), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLock(path); err != nil {
		t.Error(err)
	}
}
