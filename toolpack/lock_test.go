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
	must(t, err)
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
	must(t, err)
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
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := ReadLock(path); !fault.Is(err, fault.Validation) || !strings.HasPrefix(fault.CodeOf(err), "LOCK-") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, os.WriteFile(path, []byte("version: 1\nimages:"+entry), 0o600))
	if _, err := ReadLock(path); err != nil {
		t.Error(err)
	}
}

// A registry's image is found by the digest of its source, whatever registry the file came from. Two files of one
// source are no answer.
//
// proves SRC-01
func TestPulledImages(t *testing.T) {
	oci := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	from := func(name, digit, source string) LockedImage {
		img := locked(name, digit)
		img.Source = source
		return img
	}
	path := filepath.Join(t.TempDir(), LockFile)
	for _, img := range []LockedImage{from("samtools", "a", "docker://quay.io/biocontainers/samtools@"+oci("1")),
		from("seqkit", "b", "quay.io/biocontainers/seqkit@"+oci("2")), from("plain", "c", "samtools.sif "+oci("3")),
		from("one", "d", "docker://r.example:5000/a/b:1.2@"+oci("4")), from("two", "e", "docker://r.example/a/b@"+oci("4")),
		from("same", "a", "docker://mirror.example/samtools@"+oci("1"))} {
		if _, err := Record(path, img, false); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ReadLock(path)
	must(t, err)
	for ref, want := range map[string]string{
		"quay.io/biocontainers/samtools@" + oci("1"): oci("a"), "mirror.example/samtools@" + oci("1"): oci("a"),
		"quay.io/biocontainers/seqkit@" + oci("2"): oci("b"),
		"quay.io/x/plain@" + oci("3"):              "no image of images.lock.yaml has the source docker://quay.io/x/plain@",
		"r.example/a/b@" + oci("4"):                "images.lock.yaml has different files with this source: one, two",
		"r.example/a/b@" + oci("5"):                "no image",
	} {
		if digest, msg := l.Pulled(ref); digest+msg == "" || !strings.HasPrefix(digest+msg, want) || digest != "" && msg != "" {
			t.Errorf("%s: %q %q, want %q", ref, digest, msg, want)
		}
	}
	// The source of a file that is known already is recorded; a file name does not replace it.
	for i, step := range []struct {
		source  string
		changed bool
		found   bool
	}{
		{"docker://quay.io/x/plain@" + oci("3"), true, true}, {"docker://quay.io/x/plain@" + oci("3"), false, true}, {"plain.sif", false, true},
	} {
		changed, err := Record(path, from("plain", "c", step.source), false)
		if err != nil || changed != step.changed {
			t.Errorf("%d: %v %v", i, changed, err)
		}
		l, err := ReadLock(path)
		if digest, _ := l.Pulled("quay.io/x/plain@" + oci("3")); err != nil || (digest != "") != step.found {
			t.Errorf("%d: %q %v", i, digest, err)
		}
	}
}
