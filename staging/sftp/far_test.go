package sftp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/remote"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

func onlySFTP(c *Config) { c.Shell, c.SyncsFolders = nil, true }

// eachForm runs a test with a shell on the far side, and with SFTP alone.
func eachForm(t *testing.T, f func(t *testing.T, far *farSide)) {
	t.Run("shell", func(t *testing.T) { t.Parallel(); f(t, newFar(t, nil)) })
	t.Run("SFTP alone", func(t *testing.T) { t.Parallel(); f(t, newFar(t, onlySFTP)) })
}

func anInput(content, dest string) (plan.Input, run.Opener) {
	sum := sha256.Sum256([]byte(content))
	return plan.Input{Role: "r", ChecksumSHA256: hex.EncodeToString(sum[:]), DestRelpath: dest},
		func(context.Context, string) (io.ReadCloser, int64, error) {
			return io.NopCloser(strings.NewReader(content)), int64(len(content)), nil
		}
}

// A server without exclusive links, or without durable files, is refused if it is used alone. With a shell it needs
// neither.
//
// proves SITE-01
func TestServersThatAreRefused(t *testing.T) {
	for _, missing := range []string{"hardlink", "fsync", "posix-rename"} {
		far := newFar(t, onlySFTP)
		far.config.Data = server{args: []string{"-P", missing}}
		_, err := New(t.Context(), far.config)
		wantFault(t, err, fault.Validation, "sftp_extension")
		if !strings.Contains(err.Error(), missing) {
			t.Error(err)
		}
		far.config.Shell = shell{}
		w := far.open(t, nil)
		in, open := anInput("x", "in/x")
		must(t, w.StageInputs(t.Context(), runA, []plan.Input{in}, open))
	}
}

// A runs_dir is marked once. A runs_dir of another gateway is refused, and so are one that lost its mark and a data
// host that shows another folder.
func TestRunsDirMark(t *testing.T) {
	eachForm(t, func(t *testing.T, far *farSide) {
		far.open(t, nil)
		c := far.config
		c.GatewayID = "gw-2"
		_, err := New(t.Context(), c)
		wantFault(t, err, fault.Conflict, "runs_dir_of_another_gateway")
		must(t, os.Remove(far.path(".gateway-id")))
		c = far.config
		c.Marked = true
		_, err = New(t.Context(), c)
		wantFault(t, err, fault.Transport, "runs_dir_unavailable")
		must(t, os.Chmod(far.dir, 0o777))
		_, err = New(t.Context(), far.config)
		wantFault(t, err, fault.Validation, "runs_dir")
		must(t, os.Chmod(far.dir, 0o700))
		must(t, os.Mkdir(far.dir+"2", 0o700))
		must(t, os.WriteFile(far.dir+"2/.gateway-id", []byte("gw-7\n"), 0o600))
		c = far.config
		if c.Shell != nil {
			c.DataRunsDir = far.dir + "2"
			_, err = New(t.Context(), c)
			wantFault(t, err, fault.Validation, "runs_dir")
		}
		c.LoginRunsDir, c.DataRunsDir = far.dir+"3", far.dir+"3"
		_, err = New(t.Context(), c)
		wantFault(t, err, fault.Validation, "runs_dir")
	})
}

// While the filesystem is away, no file counts as absent: every call returns a fault that can be retried.
//
// proves SITE-04
func TestFilesystemAway(t *testing.T) {
	eachForm(t, func(t *testing.T, far *farSide) {
		w := far.open(t, nil)
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
		must(t, os.Rename(far.dir, far.dir+".away"))
		for _, away := range []string{"no folder", "an empty folder"} {
			if away != "no folder" {
				must(t, os.Mkdir(far.dir, 0o700))
			}
			for name, err := range far.everything(t, w) {
				if fault.KindOf(err) != fault.Transport || fault.CodeOf(err) != "runs_dir_unavailable" {
					t.Errorf("with %s the call %s gives %v, want the transport fault runs_dir_unavailable", away, name, err)
				}
			}
		}
	})
}

// everything calls all operations and returns their errors.
func (f *farSide) everything(t *testing.T, w *Workspace) map[string]error {
	in, open := anInput("x", "in/x")
	errs := map[string]error{"stage": w.StageInputs(t.Context(), runA, []plan.Input{in}, open),
		"open": w.OpenAttempt(t.Context(), runA, 1, tokenA)}
	_, errs["read"] = run.ReadControl(t.Context(), w, runA, 1, run.ExitFile, 10, false)
	_, errs["claim"] = w.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA))
	_, _, errs["output"] = w.OpenOutput(t.Context(), runA, 1, "out/x")
	_, errs["undeclared"] = w.Undeclared(t.Context(), runA, 1, nil, 5)
	_, errs["remove"] = w.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, func() (bool, error) { return true, nil })
	_, errs["size"] = w.RunSize(t.Context(), runA)
	errs["each"] = w.EachFile(t.Context(), runA, func(func() (io.ReadCloser, error)) (bool, error) { return true, nil })
	return errs
}

// lost is a host without a connection.
type lost struct{ Shell }

func (lost) Run(context.Context, remote.Call) (remote.Output, error) {
	return remote.Output{}, fault.New(fault.Transport, remote.Unreachable, "no connection")
}

// half is a login node whose answers are cut short.
type half struct{ shell }

func (h half) Run(ctx context.Context, c remote.Call) (remote.Output, error) {
	out, err := h.shell.Run(ctx, c)
	out.Stdout = out.Stdout[:len(out.Stdout)/2]
	return out, err
}

// A lost connection, and half an answer, are faults and prove no absence.
func TestNoAnswerIsNoAbsence(t *testing.T) {
	far := newFar(t, nil)
	w := far.open(t, nil)
	must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
	w.far = newShelled(Config{Shell: lost{}})
	for name, err := range far.everything(t, w) {
		if fault.CodeOf(err) != remote.Unreachable {
			t.Errorf("without an answer the call %s gives %v, want the code %s", name, err, remote.Unreachable)
		}
	}
	c := w.cfg
	c.Shell = half{}
	w.far = newShelled(c)
	must(t, os.MkdirAll(far.path(runA, "a1", "out"), 0o700))
	must(t, os.WriteFile(far.path(runA, "a1", "out", "x"), []byte("x"), 0o600))
	errs := far.everything(t, w)
	for _, name := range []string{"stage", "output", "undeclared"} {
		if fault.KindOf(errs[name]) != fault.Transport || fault.CodeOf(errs[name]) != "far_shell" {
			t.Errorf("with half an answer the call %s gives %v, want the transport fault far_shell", name, errs[name])
		}
	}
}

// If the answer to a link is lost, the next one shows only that the name exists, and the content shows who has the
// claim.
//
// proves SITE-04
func TestLostAnswerToLink(t *testing.T) {
	for _, word := range []string{"hardlink@openssh.com", "/ctl/claim"} {
		far := newFar(t, onlySFTP)
		w := far.open(t, nil)
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
		lossy := &cut{word: word}
		far.config.Data = server{cut: lossy}
		w = far.open(t, nil)
		lossy.state.Store(0)
		got, err := w.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA))
		if err != nil || string(got) != string(run.VoidClaim(tokenA)) || lossy.state.Load() != 2 {
			t.Errorf("%q, %v, cut %d", got, err, lossy.state.Load())
		}
	}
}

// The answer to any step of opening an attempt and of staging may be lost.
//
// proves SITE-04
func TestLostAnswers(t *testing.T) {
	in, open := anInput(strings.Repeat("x", 1<<20), "in/deep/x")
	for _, word := range []string{".a1." + tokenA, "/ctl/token", "/ctl/.claim.void", runA + "/a1", "posix-rename@openssh.com",
		"fsync@openssh.com", "/.stage", runA} {
		far := newFar(t, onlySFTP)
		lossy := &cut{word: word}
		far.config.Data = server{cut: lossy}
		w := far.open(t, nil)
		lossy.state.Store(0)
		must(t, w.StageInputs(t.Context(), runA, []plan.Input{in}, open))
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA, run.ControlFile{Name: run.ScriptFile, Data: []byte("script")}))
		if lossy.state.Load() != 2 {
			t.Errorf("%s: nothing was cut", word)
		}
		if got := content(t, far.path(runA, "a1/ctl", run.ScriptFile)) + content(t, far.path(runA, "a1/ctl/token")); got != "script"+tokenA+"\n" {
			t.Errorf("with a lost answer to %s the script and the token are %q, want both whole", word, got)
		}
		if left, err := filepath.Glob(far.path(runA, ".*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %q %v", word, left, err)
		}
	}
}

// With SFTP alone the gateway takes no claim that a crash of the server could lose. A job's claim still counts.
func TestClaimThatIsNotDurable(t *testing.T) {
	far := newFar(t, func(c *Config) { c.Shell = nil })
	w := far.open(t, nil)
	must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
	for range 2 {
		_, err := w.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA))
		wantFault(t, err, fault.Transport, "claim_not_durable")
	}
	if _, err := os.Lstat(far.path(runA, "a1/ctl/claim")); !errors.Is(err, os.ErrNotExist) {
		t.Error("TakeClaim left a claim:", err)
	}
	job := "slurmgate-claim 1 job=7 task=- restart=0 token=" + tokenA + " node=n1\n"
	must(t, os.WriteFile(far.path(runA, "a1/ctl/claim"), []byte(job), 0o600))
	if got, err := w.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA)); err != nil || string(got) != job {
		t.Errorf("TakeClaim gives %q %v, want the job's claim", got, err)
	}
}

// A ctl, an attempt or an out that was replaced by a link is detected, and nothing behind it is read, written or
// removed.
func TestReplacedFolders(t *testing.T) {
	eachForm(t, func(t *testing.T, far *farSide) {
		for _, what := range []string{"a1/ctl", "a1", "a1/out", "in"} {
			w := far.open(t, nil)
			must(t, os.RemoveAll(far.path(runA)))
			in, open := anInput("x", "in/x")
			must(t, w.StageInputs(t.Context(), runA, []plan.Input{in}, open))
			must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
			must(t, os.Mkdir(far.path(runA, "a1/out"), 0o700))
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			must(t, os.Rename(far.path(runA, what), elsewhere)) // with its content: even the token is right
			must(t, os.WriteFile(elsewhere+"/x", []byte("secret"), 0o600))
			must(t, os.Symlink(elsewhere, far.path(runA, what)))
			errs := far.everything(t, w)
			left, err := os.ReadDir(elsewhere)
			must(t, err)
			if got := content(t, elsewhere+"/x"); got != "secret" || len(left) != map[string]int{"a1/ctl": 3, "a1": 3, "a1/out": 1, "in": 1}[what] {
				t.Errorf("%s: %q of %d entries left", what, got, len(left))
			}
			if strings.HasPrefix(what, "a1/c") || what == "a1" {
				for _, name := range []string{"open", "read", "claim", "remove"} {
					if !fault.Is(errs[name], fault.Conflict) {
						t.Errorf("with %s replaced the call %s gives %v, want a conflict", what, name, errs[name])
					}
				}
			}
			if what == "a1/out" && fault.CodeOf(errs["output"]) != run.OutputSymlink {
				t.Errorf("the output below a symlink gives %v, want the code %s", errs["output"], run.OutputSymlink)
			}
		}
	})
}

// A job may leave huge, deep or unreadable folders, or loops: the listing is bounded, and they can be removed.
func TestHostileOutputs(t *testing.T) {
	eachForm(t, func(t *testing.T, far *farSide) {
		w := far.open(t, nil)
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
		out := far.path(runA, "a1/out")
		must(t, os.MkdirAll(out+strings.Repeat("/d", 300), 0o700))
		must(t, os.Symlink("..", out+"/loop"))
		must(t, os.WriteFile(out+"/a\nb", []byte("12345"), 0o600))
		must(t, os.MkdirAll(out+"/closed/in", 0o700))
		must(t, os.Chmod(out+"/closed", 0))
		for i := range 3000 {
			must(t, os.WriteFile(fmt.Sprintf("%s/f%04d", out, i), nil, 0o600))
		}
		got, err := w.Undeclared(t.Context(), runA, 1, nil, 10)
		if err != nil || len(got) != 10 {
			t.Errorf("Undeclared gives %q %v, want 10 names", got, err)
		}
		all, err := w.Undeclared(t.Context(), runA, 1, []string{"out/f0000"}, 1_000_000)
		text := "\n" + strings.Join(all, "\n") + "\n"
		if err != nil || len(all) < 3001 || strings.Contains(text, "f0000") || !strings.Contains(text, "\nout/loop\n") ||
			!strings.Contains(text, "\n\"out/a\\nb\"\n") || !strings.Contains(text, "\nout"+strings.Repeat("/d", 32)+"/\n") {
			t.Errorf("%d of them, %v", len(all), err)
		}
		if n, err := w.RunSize(t.Context(), runA); err != nil || n < 5 || n > 1000 {
			t.Errorf("%d bytes, %v", n, err)
		}
		if _, err := w.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, func() (bool, error) { return true, nil }); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(far.path(runA)); err != nil || len(left) != 1 || left[0].IsDir() {
			t.Errorf("the removed run's directory has %v %v, want one file", left, err)
		}
	})
}

// liar reports files larger than they are.
type liar struct {
	far
	more int64
}

func (l liar) output(ctx context.Context, runID string, n int, rel string) (entry, error) {
	e, err := l.far.output(ctx, runID, n, rel)
	e.size += l.more
	return e, err
}

// Wrong sizes from a server cause a fault, not wrong bytes; a file that keeps growing is read up to its size when it
// was opened.
func TestLyingSizes(t *testing.T) {
	eachForm(t, func(t *testing.T, far *farSide) {
		w := far.open(t, nil)
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
		must(t, os.Mkdir(far.path(runA, "a1/out"), 0o700))
		name := far.path(runA, "a1/out/x")
		must(t, os.WriteFile(name, []byte("result"), 0o600))
		honest := w.far
		for _, more := range []int64{1, -1, 1 << 40} {
			w.far = liar{honest, more}
			_, _, err := w.OpenOutput(t.Context(), runA, 1, "out/x")
			wantFault(t, err, fault.Transport, "data_host_stale")
		}
		w.far = honest
		r, size, err := w.OpenOutput(t.Context(), runA, 1, "out/x")
		must(t, err)
		must(t, os.Truncate(name, 1<<40))
		got, err := io.ReadAll(r)
		if err != nil || string(got) != "result" || size != 6 {
			t.Errorf("the output is %q of %d bytes, %v, want \"result\" of 6 bytes", got, size, err)
		}
		must(t, os.Truncate(name, 64<<20)) // more than is read ahead
		r, _, err = w.OpenOutput(t.Context(), runA, 1, "out/x")
		must(t, err)
		must(t, os.Truncate(name, 3))
		_, err = io.ReadAll(r)
		wantFault(t, err, fault.Transport, "output_short")
	})
}

// A full disk is reported, and leaves no partial file. The gateway's claim needs no room: its file was written when the
// attempt was opened.
func TestDiskFull(t *testing.T) {
	for name, change := range map[string]func(*Config){"shell": func(*Config) {}, "SFTP alone": onlySFTP} {
		t.Run(name, func(t *testing.T) {
			small := func() (*farSide, *Workspace) {
				far := newFar(t, change)
				far.dir = runtest.SmallDisk(t, 1<<20)
				far.config.LoginRunsDir, far.config.DataRunsDir = far.dir, far.dir
				w := far.open(t, nil)
				must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
				return far, w
			}
			far, w := small()
			in, open := anInput(strings.Repeat("x", 2<<20), "in/x")
			err := w.StageInputs(t.Context(), runA, []plan.Input{in}, open)
			if fault.CodeOf(err) != "disk_full" {
				t.Errorf("StageInputs on a full disk gives %v, want the code disk_full", err)
			}
			if _, err := os.Lstat(far.path(runA, "in/x")); !errors.Is(err, os.ErrNotExist) {
				t.Error("a part of the input is there:", err)
			}
			far, w = small() // the server may keep the input's space for a while
			fill(t, far.path("filler"))
			if got, err := w.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA)); err != nil || string(got) != string(run.VoidClaim(tokenA)) {
				t.Errorf("TakeClaim on a full disk gives %q %v, want the void claim", got, err)
			}
			if name != "shell" {
				return
			}
			err = w.OpenAttempt(t.Context(), runA, 2, tokenA)
			text := fmt.Sprint(err) // without the long path that dd names before the reason
			told := strings.Contains(text, "says: No space left on device") || strings.Contains(text, "says: File too large")
			if fault.CodeOf(err) != "disk_full" || !told {
				t.Errorf("OpenAttempt on a full disk gives %v, want the code disk_full and the reason", err)
			}
		})
	}
}

// fill uses up the free space, a page at a time.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EFBIG) {
		t.Fatal(err)
	}
}

// counting counts the scripts that are run.
type counting struct {
	shell
	n *atomic.Int64
}

func (c counting) Run(ctx context.Context, call remote.Call) (remote.Output, error) {
	c.n.Add(1)
	return c.shell.Run(ctx, call)
}

// With a shell every operation is one script: a round trip may take 200 ms.
func TestOneScriptAnOperation(t *testing.T) {
	var n atomic.Int64
	far := newFar(t, func(c *Config) { c.Shell = counting{n: &n} })
	w := far.open(t, nil)
	in, open := anInput("x", "in/x")
	for name, c := range map[string]struct {
		most int64
		call func() error
	}{
		"stage":        {2, func() error { return w.StageInputs(t.Context(), runA, []plan.Input{in}, open) }},
		"open attempt": {1, func() error { return w.OpenAttempt(t.Context(), runA, 1, tokenA) }},
		"claim": {1, func() error {
			_, err := w.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA))
			return ignoreMissing(err)
		}},
		"read": {1, func() error {
			_, err := run.ReadControl(t.Context(), w, runA, 1, run.ExitFile, 10, false)
			return ignoreMissing(err)
		}},
		"undeclared": {1, func() error { _, err := w.Undeclared(t.Context(), runA, 1, nil, 10); return ignoreMissing(err) }},
		"size":       {1, func() error { _, err := w.RunSize(t.Context(), runA); return err }},
	} {
		before := n.Load()
		must(t, c.call())
		if got := n.Load() - before; got > c.most {
			t.Errorf("%s: %d scripts", name, got)
		}
	}
	// Long lists do not fit into a command line.
	var many []plan.Input
	for i := range 700 {
		in, _ := anInput("x", fmt.Sprintf("in/%s/%04d", strings.Repeat("long", 10), i))
		many = append(many, in)
	}
	must(t, w.StageInputs(t.Context(), runA, many, open))
	if left, err := os.ReadDir(far.path(runA, "in", strings.Repeat("long", 10))); err != nil || len(left) != len(many) {
		t.Errorf("the directory with the long name has %d inputs, %v, want %d", len(left), err, len(many))
	}
}

func ignoreMissing(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
