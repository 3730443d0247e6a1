package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

func TestReadControl(t *testing.T) {
	s, a := opened(t)
	put(t, a+"/ctl/exit", "0123456789")
	must(t, os.Symlink("exit", a+"/ctl/link"))
	must(t, unix.Mkfifo(a+"/ctl/pipe", 0o600))
	must(t, os.Mkdir(a+"/ctl/folder", 0o700))
	for _, c := range []struct {
		limit int64
		tail  bool
		want  string
	}{{100, false, "0123456789"}, {100, true, "0123456789"}, {4, false, "0123"}, {4, true, "6789"}, {0, false, ""}, {0, true, ""}} {
		got, err := s.ReadControl(t.Context(), runA, 1, "exit", c.limit, c.tail)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	for _, c := range []struct {
		n    int
		name string
		kind fault.Kind
		code string
	}{
		{1, "manifest", fault.NotFound, "control_missing"},
		{7, "exit", fault.NotFound, "attempt_missing"},
		{1, "link", fault.Conflict, "workspace_foreign_entry"},
		{1, "pipe", fault.Conflict, "workspace_foreign_entry"},
		{1, "folder", fault.Conflict, "workspace_foreign_entry"},
		{1, "../token", fault.Validation, "control_name"},
		{0, "exit", fault.Validation, "attempt_number"},
	} {
		soon(t, func() {
			_, err := s.ReadControl(t.Context(), runA, c.n, c.name, 10, false)
			if fault.KindOf(err) != c.kind || fault.CodeOf(err) != c.code {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// A claim that is there stays, whoever asks.
func TestTakeClaimLoses(t *testing.T) {
	s, a := opened(t)
	job := "slurmgate-claim 1 job=7 task=- restart=0 token=" + tokenA + " node=n1\n"
	put(t, a+"/ctl/.claim.7.0", job)
	must(t, os.Link(a+"/ctl/.claim.7.0", a+"/ctl/claim"))
	for range 2 {
		got, err := s.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA))
		must(t, err)
		if string(got) != job {
			t.Errorf("got %q", got)
		}
	}
	if diff := cmp.Diff([]string{"-rw------- .claim.7.0", "-rw------- claim", "-rw------- token"}, list(t, a+"/ctl")); diff != "" {
		t.Error(diff)
	}
}

// Of fifty callers with fifty contents exactly one wins, and all are told the same.
func TestTakeClaimRace(t *testing.T) {
	s, a := opened(t)
	var wg sync.WaitGroup
	winners, told := make([]bool, 50), make([]string, 50)
	for i := range 50 {
		wg.Go(func() {
			mine := fmt.Sprintf("claim of %d\n", i)
			got, err := s.TakeClaim(t.Context(), runA, 1, []byte(mine))
			if err != nil {
				t.Error(err)
			}
			winners[i], told[i] = string(got) == mine, string(got)
		})
	}
	wg.Wait()
	won := 0
	for i := range winners {
		if winners[i] {
			won++
		}
		if told[i] != told[0] {
			t.Errorf("caller %d was told %q, caller 0 %q", i, told[i], told[0])
		}
	}
	if won != 1 {
		t.Errorf("%d winners", won)
	}
	if got := content(t, a+"/ctl/claim"); got != told[0] {
		t.Errorf("the claim is %q", got)
	}
	if got := list(t, a+"/ctl"); len(got) != 2 {
		t.Error("left behind:", got)
	}
}

// A claim that cannot be read is no answer, and no claim is made in a workspace that is not there.
func TestTakeClaimNoAnswer(t *testing.T) {
	s, a := opened(t)
	_, err := s.TakeClaim(t.Context(), runA, 2, []byte("x"))
	wantFault(t, err, fault.NotFound, "attempt_missing")
	must(t, os.Symlink("token", a+"/ctl/claim"))
	_, err = s.TakeClaim(t.Context(), runA, 1, []byte("x"))
	wantFault(t, err, fault.Conflict, "workspace_foreign_entry")
	_, err = s.TakeClaim(t.Context(), runA, 1, nil)
	wantFault(t, err, fault.Internal, "claim_content")
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
		t.Error(diff)
	}
}

// A folder that should hold workspaces and is not marked is another one, or was emptied: it is neither made nor marked.
func TestNewSharedUnmounted(t *testing.T) {
	dir := t.TempDir() + "/runs"
	for range 2 { // not there, then empty
		_, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1", Marked: true})
		wantFault(t, err, fault.Transport, "runs_dir_unavailable")
		if !strings.Contains(err.Error(), "write gw-1 into "+dir+"/.gateway-id") {
			t.Error(err)
		}
		if err := os.Mkdir(dir, 0o700); err == nil {
			continue
		}
		if left := list(t, dir); len(left) != 0 {
			t.Error(left)
		}
	}
	put(t, dir+"/.gateway-id", "gw-1\n")
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1", Marked: true})
	must(t, err)
	put(t, dir+"/.gateway-id", "gw-2\n")
	_, err = s.ReadControl(t.Context(), runA, 1, "exit", 100, false)
	wantFault(t, err, fault.Transport, "runs_dir_unavailable")
	if n := strings.Count(err.Error(), "Next: "); n != 1 {
		t.Errorf("%d next steps: %v", n, err)
	}
}

// Many gateways that find the same new folder: one gets it.
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

// An unmounted or exchanged runs_dir is not mistaken for one in which nothing was left.
func TestRunsDirGone(t *testing.T) {
	s, a := opened(t)
	put(t, a+"/ctl/exit", "x")
	dir := filepath.Dir(filepath.Dir(a))
	must(t, os.Rename(dir, dir+".away"))
	t.Cleanup(func() { os.RemoveAll(dir + ".away") })
	check := func() {
		t.Helper()
		_, err := s.ReadControl(t.Context(), runA, 1, "exit", 10, false)
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
	_, err := s.ReadControl(t.Context(), runA, 1, "exit", 10, false)
	must(t, err)
}

func TestFilesystem(t *testing.T) {
	for path, want := range map[string]string{"/proc": "0x9fa0", "/": ""} {
		name, network, err := Filesystem(path)
		if err != nil || network || name == "" || want != "" && name != want {
			t.Errorf("%s: %s %v %v", path, name, network, err)
		}
	}
	if _, _, err := Filesystem("/nowhere/at/all"); err == nil {
		t.Error("no error")
	}
}
