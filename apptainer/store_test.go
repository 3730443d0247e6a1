package apptainer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sylabs/sif/v2/pkg/sif"

	"slurmgate/fault"
)

// writeSIF writes a SIF around content, which the store never examines.
func writeSIF(t *testing.T, path string, content []byte, fs sif.FSType, part sif.PartType, arch string) {
	t.Helper()
	in, err := sif.NewDescriptorInput(sif.DataPartition, bytes.NewReader(content), sif.OptPartitionMetadata(fs, part, arch),
		sif.OptObjectAlignment(4096))
	must(t, err)
	img, err := sif.CreateContainerAtPath(path, sif.OptCreateDeterministic(), sif.OptCreateWithDescriptors(in))
	must(t, err)
	must(t, img.UnloadContainer())
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// archAt is the offset of the architecture in the header of a SIF: two digits and a NUL, before the id of 16 bytes.
const archAt = 45

func patchedArch(t *testing.T, file func(string, []byte) string, data []byte, at int) string {
	t.Helper()
	d := bytes.Clone(data)
	if d[at+2] != 0 || d[at] < '0' || d[at] > '1' {
		t.Fatalf("no architecture at byte %d: %q", at, d[at:at+3])
	}
	d[at], d[at+1] = '1', '1' // s390x
	return file("header-arch", d)
}

// If the architecture of the machines is unknown, images of any architecture are accepted, listed and used.
func TestUnknownMachines(t *testing.T) {
	s := openStore(t)
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		path := filepath.Join(t.TempDir(), arch)
		writeSIF(t, path, []byte("x"), sif.FsSquash, sif.PartPrimSys, arch)
		s.Archs = nil
		img, err := s.Add(t.Context(), path)
		if err != nil || img.Arch != arch {
			t.Errorf("Add = architecture %q, %v, want %s", img.Arch, err, arch)
		}
		if _, err := s.Verify(t.Context(), img.Digest); err != nil {
			t.Errorf("Verify of an image for %s = %v, want no error", arch, err)
		}
		s.Archs = []string{"ppc64le", "s390x"}
		_, err = s.Add(t.Context(), path)
		wantFault(t, err, fault.Validation, "IMAGE-ARCH")
	}
}

// An image that was put into the store without Add, with another architecture in its header, is not used and is marked
// in the list; errors of a lock about a file are reported.
func TestArchitectures(t *testing.T) {
	path, digest := goodSIF(t, "x")
	s := openStore(t)
	if _, err := s.Add(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	bad := patchedArch(t, func(_ string, d []byte) string {
		sum := sha256.Sum256(d)
		p := filepath.Join(s.dir, hex.EncodeToString(sum[:])+".sif")
		must(t, os.WriteFile(p, d, 0o444))
		return p
	}, data, archAt)
	badDigest := sha(t, bad)
	_, err = s.Verify(t.Context(), badDigest)
	wantFault(t, err, fault.Validation, "IMAGE-ARCH")
	list, err := s.List()
	if err != nil || len(list) != 2 {
		t.Fatalf("List = %v, %v, want two images", list, err)
	}
	for _, i := range list {
		if want := map[string]string{digest: "", badDigest: "IMAGE-ARCH"}[i.Digest]; i.Bad != want {
			t.Errorf("List marks the image %s as %q, want %q", i.Digest, i.Bad, want)
		}
	}
	size := int64(len(data))
	locked := []Named{{Name: "good", Digest: "sha256:" + digest, Arch: runtime.GOARCH, SizeBytes: size},
		{Name: "small", Digest: "sha256:" + digest, Arch: runtime.GOARCH, SizeBytes: size - 1},
		{Name: "arch", Digest: "sha256:" + digest, Arch: "vax", SizeBytes: size}, {Name: "bad", Digest: "sha256:" + badDigest,
			Arch: runtime.GOARCH, SizeBytes: size},
		{Name: "gone", Digest: "sha256:" + strings.Repeat("0", 64), Arch: runtime.GOARCH, SizeBytes: size}}
	var got []string
	for _, p := range Misfits("f", locked, list) {
		got = append(got, p.Code+" "+p.Field)
	}
	want := []string{"IMAGE-LOCK images[1].size_bytes", "IMAGE-LOCK images[2].arch", "IMAGE-LOCK images[3].digest",
		"IMAGE-NOT-STORED images[4].digest"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func goodSIF(t *testing.T, content string) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "good.sif")
	writeSIF(t, path, []byte(content), sif.FsSquash, sif.PartPrimSys, runtime.GOARCH)
	return path, sha(t, path)
}

func sha(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func openStore(t *testing.T) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "images"))
	must(t, err)
	s.settle, s.Archs = 0, []string{runtime.GOARCH}
	return s
}

func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if !fault.Is(err, kind) || fault.CodeOf(err) != code {
		t.Errorf("error is %s %s, want %s %s: %v", fault.KindOf(err), fault.CodeOf(err), kind, code, err)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestAddAndVerify(t *testing.T) {
	s := openStore(t)
	path, digest := goodSIF(t, strings.Repeat("image ", 10_000))
	st, err := os.Stat(path)
	must(t, err)
	want := Image{Digest: digest, Arch: runtime.GOARCH, SizeBytes: st.Size()}
	for range 2 { // the second call changes nothing
		img, err := s.Add(t.Context(), path)
		must(t, err)
		if diff := cmp.Diff(want, img); diff != "" {
			t.Error(diff)
		}
	}
	stored, err := s.Verify(t.Context(), digest)
	must(t, err)
	if stored != filepath.Join(s.dir, digest+".sif") || sha(t, stored) != digest {
		t.Errorf("stored as %s with digest %s", stored, sha(t, stored))
	}
	if st, err = os.Stat(stored); err != nil || st.Mode() != 0o444 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	must(t, os.WriteFile(filepath.Join(s.dir, "README"), []byte("x"), 0o600))
	list, err := s.List()
	must(t, err)
	if diff := cmp.Diff([]Image{want}, list); diff != "" {
		t.Error(diff)
	}
	_, err = s.Verify(t.Context(), strings.Repeat("0", 64))
	wantFault(t, err, fault.NotFound, "IMAGE-NOT-FOUND")
	if !strings.Contains(err.Error(), "Next: image add") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	for _, ref := range []string{"", "../x", "sha256:" + digest, strings.ToUpper(digest)} {
		_, err = s.Verify(t.Context(), ref)
		wantFault(t, err, fault.Validation, "IMAGE-REF")
	}
}

func TestAddRefuses(t *testing.T) {
	dir := t.TempDir()
	good, _ := goodSIF(t, strings.Repeat("x", 100_000))
	data, err := os.ReadFile(good)
	must(t, err)
	file := func(name string, content []byte) string {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, content, 0o600))
		return p
	}
	made := func(name string, fs sif.FSType, part sif.PartType, arch string) string {
		p := filepath.Join(dir, name)
		writeSIF(t, p, []byte("x"), fs, part, arch)
		return p
	}
	patched := func(name string, at int, n int64) string {
		d := bytes.Clone(data)
		binary.LittleEndian.PutUint64(d[at:], uint64(n))
		return file(name, d)
	}
	link := filepath.Join(dir, "link.sif")
	must(t, os.Symlink(good, link))
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for _, c := range []struct {
		what, path string
		kind       fault.Kind
		code       string
	}{
		{"missing", filepath.Join(dir, "none.sif"), fault.NotFound, "IMAGE-FILE"},
		{"symlink", link, fault.Validation, "IMAGE-FILE"},
		{"folder", dir, fault.Validation, "IMAGE-FILE"},
		{"empty", file("empty", nil), fault.Validation, "IMAGE-FORMAT"},
		{"a program", file("elf", bytes.Repeat([]byte("\x7fELF"), 100)), fault.Validation, "IMAGE-FORMAT"},
		{"header only", file("header", data[:128]), fault.Validation, "IMAGE-FORMAT"},
		{"half a descriptor list", file("list", data[:1000]), fault.Validation, "IMAGE-FORMAT"},
		{"truncated", file("truncated", data[:len(data)-1]), fault.Validation, "IMAGE-TRUNCATED"},
		{"other architecture", made("arch", sif.FsSquash, sif.PartPrimSys, other), fault.Validation, "IMAGE-ARCH"},
		{"header and partition of different architectures", patchedArch(t, file, data, archAt), fault.Validation, "IMAGE-ARCH"},
		{"no primary partition", made("data", sif.FsSquash, sif.PartData, runtime.GOARCH), fault.Validation, "IMAGE-FORMAT"},
		{"ext3", made("ext3", sif.FsExt3, sif.PartPrimSys, runtime.GOARCH), fault.Validation, "IMAGE-FILESYSTEM"},
		{"encrypted", made("enc", sif.FsEncryptedSquashfs, sif.PartPrimSys, runtime.GOARCH), fault.Validation, "IMAGE-FILESYSTEM"},
		{"endless descriptors", patched("many", totalOffset, 1<<60), fault.Validation, "IMAGE-FORMAT"},
		{"negative descriptors", patched("negative", totalOffset, -1), fault.Validation, "IMAGE-FORMAT"},
		{"list beyond the end", patched("beyond", descrOffset, 1<<62), fault.Validation, "IMAGE-FORMAT"},
		{"list of endless size", patched("size", descrSizeOffset, 1<<62), fault.Validation, "IMAGE-FORMAT"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := openStore(t)
			_, err := s.Add(t.Context(), c.path)
			wantFault(t, err, c.kind, c.code)
			if left := names(t, s.dir); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestAddGivenUpLeavesNothing(t *testing.T) {
	s := openStore(t)
	path, _ := goodSIF(t, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Add(ctx, path)
	if !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := names(t, s.dir); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// proves: what ran is what was pinned, the gateway's half
func TestChangedImageIsFound(t *testing.T) {
	s := openStore(t)
	path, digest := goodSIF(t, strings.Repeat("y", 50_000))
	if _, err := s.Add(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Verify(t.Context(), digest)
	must(t, err)
	before, err := os.Stat(stored)
	must(t, err)
	// The owner forces the mode, changes one byte and sets size, mode and modification time back.
	data, err := os.ReadFile(stored)
	must(t, err)
	data[len(data)-1] ^= 1
	for _, err := range []error{os.Chmod(stored, 0o600), os.WriteFile(stored, data, 0o600), os.Chmod(stored, 0o444),
		os.Chtimes(stored, before.ModTime(), before.ModTime())} {
		must(t, err)
	}
	for range 2 {
		_, err = s.Verify(t.Context(), digest)
		wantFault(t, err, fault.Tool, "IMAGE-DIGEST")
		for _, d := range []string{digest, sha(t, stored)} {
			if !strings.Contains(err.Error(), d) {
				t.Errorf("the error does not name %s: %v", d, err)
			}
		}
	}
	// Adding the original again repairs the store.
	if _, err := s.Add(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(t.Context(), digest); err != nil {
		t.Error(err)
	}
}

func TestVerdictIsRememberedOnlyWhenSettled(t *testing.T) {
	s := openStore(t)
	path, digest := goodSIF(t, "z")
	if _, err := s.Add(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	s.settle = 1 << 60
	if _, err := s.Verify(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	if s.verdicts.byDigest[digest].good != (stamp{}) {
		t.Error("a verdict on a just changed file was recorded, want none")
	}
	s.settle = 0
	if _, err := s.Verify(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	if s.verdicts.byDigest[digest].good == (stamp{}) {
		t.Error("the verdict on a settled file was not recorded")
	}
	// A symlink in its place is not followed, with or without a recorded verdict.
	stored := s.path(digest)
	must(t, os.Rename(stored, stored+".moved"))
	must(t, os.Symlink(stored+".moved", stored))
	_, err := s.Verify(t.Context(), digest)
	wantFault(t, err, fault.Validation, "IMAGE-FILE")
}

func TestConcurrentAdd(t *testing.T) {
	s := openStore(t)
	path, digest := goodSIF(t, strings.Repeat("c", 300_000))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			img, err := s.Add(t.Context(), path)
			if err != nil || img.Digest != digest {
				t.Errorf("%v, %v", img, err)
			}
			if _, err := s.Verify(t.Context(), digest); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff([]string{digest + ".sif"}, names(t, s.dir)); diff != "" {
		t.Error(diff)
	}
}

func FuzzCheckSIF(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.sif")
	in, err := sif.NewDescriptorInput(sif.DataPartition, strings.NewReader("x"), sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys,
		runtime.GOARCH), sif.OptObjectAlignment(4096))
	must(f, err)
	img, err := sif.CreateContainerAtPath(path, sif.OptCreateDeterministic(), sif.OptCreateWithDescriptors(in),
		sif.OptCreateWithDescriptorCapacity(2))
	must(f, err)
	must(f, img.UnloadContainer())
	seed, err := os.ReadFile(path)
	must(f, err)
	f.Add(seed)
	f.Add(seed[:128])
	f.Fuzz(func(t *testing.T, data []byte) {
		arch, err := checkSIF(sif.NewBuffer(data), "fuzz", int64(len(data)), []string{runtime.GOARCH})
		if (err == nil) != (arch == runtime.GOARCH) {
			t.Errorf("arch %q, error %v", arch, err)
		}
	})
}
