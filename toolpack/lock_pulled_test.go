package toolpack

import (
	"path/filepath"
	"strings"
	"testing"
)

// A registry's image is found by the digest of its source, from whichever registry the file came. Two files of one source are no answer.
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
	if err != nil {
		t.Fatal(err)
	}
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
