package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

// A claim must have content, and taking it leaves no other file, for the winner and for later calls.
func TestTakeClaimLeavesNothing(t *testing.T) {
	s, a := opened(t)
	_, err := s.TakeClaim(t.Context(), runA, 1, nil)
	wantFault(t, err, fault.Internal, "claim_content")
	for _, mine := range []string{"first", "second"} {
		if got, err := s.TakeClaim(t.Context(), runA, 1, []byte(mine)); err != nil || string(got) != "first" {
			t.Errorf("TakeClaim(%s) = %q, %v; want first", mine, got, err)
		}
	}
	if diff := cmp.Diff([]string{"-rw------- claim", "-rw------- token"}, list(t, a+"/ctl")); diff != "" {
		t.Errorf("the control folder (-want +got):\n%s", diff)
	}
}

func TestNewShared(t *testing.T) {
	base := t.TempDir()
	put(t, base+"/file", "")
	must(t, os.Mkdir(base+"/open", 0o700))
	must(t, os.Chmod(base+"/open", 0o777))
	must(t, os.Mkdir(base+"/good", 0o700))
	for _, dir := range []string{"", "relative", base + "/none", base + "/file", base + "/open", base + "/good/", base + "/x/../good", "/"} {
		_, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1"})
		wantFault(t, err, fault.Validation, "runs_dir")
	}
	for _, id := range []string{"", "a\nb", strings.Repeat("x", 200)} {
		_, err := NewShared(Config{RunsDir: base + "/good", GatewayID: id})
		wantFault(t, err, fault.Validation, "gateway_id")
	}
	for range 2 {
		_, err := NewShared(Config{RunsDir: base + "/good", GatewayID: "gw-1"})
		must(t, err)
	}
	_, err := NewShared(Config{RunsDir: base + "/good", GatewayID: "gw-2"})
	wantFault(t, err, fault.Conflict, "runs_dir_of_another_gateway")
	if diff := cmp.Diff([]string{"-rw------- .gateway-id"}, list(t, base+"/good")); diff != "" ||
		content(t, base+"/good/.gateway-id") != "gw-1\n" {
		t.Errorf("the runs directory of gw-1 has another mark or other files (-want +got):\n%s", diff)
	}
}

// A folder that should hold workspaces and has no mark is another one, or was emptied: it is neither created nor
// marked.
func TestNewSharedUnmounted(t *testing.T) {
	dir := t.TempDir() + "/runs"
	for range 2 { // missing, then empty
		_, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1", Marked: true})
		wantFault(t, err, fault.Transport, "runs_dir_unavailable")
		if !strings.Contains(err.Error(), "write gw-1 into "+dir+"/.gateway-id") {
			t.Error(err)
		}
		if err := os.Mkdir(dir, 0o700); err == nil {
			continue
		}
		if left := list(t, dir); len(left) != 0 {
			t.Errorf("the unmounted runs directory has %q, want it empty", left)
		}
	}
	put(t, dir+"/.gateway-id", "gw-1\n")
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1", Marked: true})
	must(t, err)
	put(t, dir+"/.gateway-id", "gw-2\n")
	_, err = run.ReadControl(t.Context(), s, runA, 1, "exit", 100, false)
	wantFault(t, err, fault.Transport, "runs_dir_unavailable")
	if n := strings.Count(err.Error(), "Next: "); n != 1 {
		t.Errorf("%d next steps: %v", n, err)
	}
}

// Of many gateways that find the same new folder only one gets it.
func TestNewSharedRace(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	var wg sync.WaitGroup
	errs := make([]error, 30)
	for i := range errs {
		wg.Go(func() { _, errs[i] = NewShared(Config{RunsDir: dir, GatewayID: fmt.Sprintf("gw-%d", i)}) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if fault.CodeOf(err) != "runs_dir_of_another_gateway" {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d gateways took the folder", won)
	}
}

// An unmounted or exchanged runs_dir does not count as one without files.
func TestRunsDirGone(t *testing.T) {
	s, a := opened(t)
	put(t, a+"/ctl/exit", "x")
	dir := filepath.Dir(filepath.Dir(a))
	must(t, os.Rename(dir, dir+".away"))
	t.Cleanup(func() { os.RemoveAll(dir + ".away") })
	check := func() {
		t.Helper()
		_, err := run.ReadControl(t.Context(), s, runA, 1, "exit", 10, false)
		wantFault(t, err, fault.Transport, "runs_dir_unavailable")
		wantFault(t, s.StageInputs(t.Context(), runA, nil, nil), fault.Transport, "runs_dir_unavailable")
		wantFault(t, s.OpenAttempt(t.Context(), runA, 1, tokenA), fault.Transport, "runs_dir_unavailable")
		_, err = s.TakeClaim(t.Context(), runA, 1, []byte("x"))
		wantFault(t, err, fault.Transport, "runs_dir_unavailable")
		_, _, err = s.OpenOutput(t.Context(), runA, 1, "out/x")
		wantFault(t, err, fault.Transport, "runs_dir_unavailable")
	}
	check()
	must(t, os.Mkdir(dir, 0o700)) // the bare mount point
	check()
	put(t, dir+"/.gateway-id", "other\n")
	check()
	must(t, os.RemoveAll(dir))
	must(t, os.Rename(dir+".away", dir))
	_, err := run.ReadControl(t.Context(), s, runA, 1, "exit", 10, false)
	must(t, err)
}

func TestFilesystem(t *testing.T) {
	for path, want := range map[string]string{"/proc": "0x9fa0", "/": ""} {
		name, network, err := Filesystem(path)
		if err != nil || network || name == "" || want != "" && name != want {
			t.Errorf("Filesystem(%q) = %q, network %v, %v, want the local one %q", path, name, network, err, want)
		}
	}
	if _, _, err := Filesystem("/nowhere/at/all"); err == nil {
		t.Error("no error")
	}
}
