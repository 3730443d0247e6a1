package apptainer

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

func named(name, digit string) Named {
	return Named{Name: name, Digest: "sha256:" + strings.Repeat(digit, 64), Arch: "amd64", SizeBytes: 4096, Source: "from: a \"file\"\n",
		AddedAt: lockTime}
}

func TestLockRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	if l, err := ReadLock(path); err != nil || l.Version != 1 || l.Images != nil {
		t.Fatalf("a missing file reads as %v, %v", l, err)
	}
	for _, n := range []Named{named("seqkit", "b"), named("minimap2", "c"), named("samtools", "a")} {
		if changed, err := Record(path, n, false); err != nil || !changed {
			t.Fatalf("%v, %v", changed, err)
		}
	}
	l, err := ReadLock(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Lock{Version: 1, Images: []Named{named("minimap2", "c"), named("samtools", "a"), named("seqkit", "b")}}
	for i := range want.Images {
		want.Images[i].AddedAt = lockTime.UTC().Truncate(time.Second)
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
	if n, ok := l.Find("samtools"); !ok || n.Digest != named("", "a").Digest {
		t.Errorf("Find: %v, %v", n, ok)
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
	if diff := cmp.Diff([]string{LockFile}, names(t, filepath.Dir(path))); diff != "" {
		t.Error(diff)
	}

	// The same again changes nothing; another digest needs replace.
	again := named("samtools", "a")
	again.Source = "elsewhere"
	if changed, err := Record(path, again, true); err != nil || changed {
		t.Errorf("%v, %v", changed, err)
	}
	_, err = Record(path, named("samtools", "d"), false)
	wantFault(t, err, fault.Conflict, "IMAGE-NAME-TAKEN")
	if changed, err := Record(path, named("samtools", "d"), true); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if l, err = ReadLock(path); err != nil || len(l.Images) != 3 || l.Images[1].Digest != named("", "d").Digest {
		t.Errorf("%v, %v", l, err)
	}
}

func TestConcurrentRecordsAllStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if _, err := Record(path, named(fmt.Sprintf("tool%d", i), "a"), false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if l, err := ReadLock(path); err != nil || len(l.Images) != 10 {
		t.Errorf("%d images, %v", len(l.Images), err)
	}
}

func TestLockRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockFile)
	for _, n := range []Named{named("Upper", "a"), named("", "a"), named("a b", "a"), {Name: "x", Digest: "latest", Arch: "amd64",
		SizeBytes: 1}} {
		_, err := Record(path, n, false)
		wantFault(t, err, fault.Validation, "IMAGE-NAME")
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
		if _, err := ReadLock(path); !fault.Is(err, fault.Validation) || fault.CodeOf(err) != "IMAGE-LOCK" {
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
