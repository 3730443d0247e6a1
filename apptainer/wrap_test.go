package apptainer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sylabs/sif/v2/pkg/sif"
)

// rootFS writes a file that is accepted as a squashfs: only its first bytes are examined. Its odd length tests the
// padding.
func rootFS(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.squashfs")
	data := append([]byte("hsqs"), bytes.Repeat([]byte{0xa5, 0, 7}, 5001)...)
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestTwoBuildsAreIdentical(t *testing.T) {
	// Input and output differ in folder and name, so that no path can get into the image.
	a := filepath.Join(t.TempDir(), "a.sif")
	b := filepath.Join(t.TempDir(), "other-name.sif")
	for _, out := range []string{a, b} {
		must(t, Wrap(out, rootFS(t), "amd64"))
	}
	first, err := os.ReadFile(a)
	must(t, err)
	second, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same root filesystem gave two different images")
	}
}

func TestHeaderIsReadable(t *testing.T) {
	root := rootFS(t)
	out := filepath.Join(t.TempDir(), "x.sif")
	must(t, Wrap(out, root, "arm64"))
	img, err := sif.LoadContainerFromPath(out, sif.OptLoadWithFlag(os.O_RDONLY))
	must(t, err)
	defer func() {
		if err := img.UnloadContainer(); err != nil {
			t.Error(err)
		}
	}()
	if got := img.PrimaryArch(); got != "arm64" {
		t.Errorf("primary architecture %q, want arm64", got)
	}
	part, err := img.GetDescriptor(sif.WithPartitionType(sif.PartPrimSys))
	must(t, err)
	if fs, _, _, err := part.PartitionMetadata(); err != nil || fs != sif.FsSquash {
		t.Errorf("filesystem %v, error %v, want squashfs", fs, err)
	}
	if part.Offset()%partitionAlign != 0 {
		t.Errorf("partition at offset %d, not aligned to %d", part.Offset(), partitionAlign)
	}
	got, err := part.GetData()
	must(t, err)
	want, err := os.ReadFile(root)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the partition is not the root filesystem that went in")
	}
}

func TestRefusalLeavesTheOldImage(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	must(t, os.WriteFile(text, []byte("not a filesystem"), 0o600))
	for _, tc := range []struct{ name, root, arch, want string }{
		{"no such file", filepath.Join(dir, "none"), "amd64", "no such file"},
		{"not a squashfs", text, "amd64", "not a squashfs"},
		{"unknown architecture", rootFS(t), "pdp11", `"pdp11"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dst := t.TempDir()
			out := filepath.Join(dst, "x.sif")
			must(t, os.WriteFile(out, []byte("old"), 0o600))
			err := Wrap(out, tc.root, tc.arch)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if data, err := os.ReadFile(out); err != nil || string(data) != "old" {
				t.Errorf("old image now %q, error %v", data, err)
			}
			if left, err := os.ReadDir(dst); err != nil || len(left) != 1 {
				t.Errorf("left behind %v, error %v", left, err)
			}
		})
	}
}
