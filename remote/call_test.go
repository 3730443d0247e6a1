package remote

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
)

func TestRun(t *testing.T) {
	_, c := serve(t, "")
	h := open(t, c)
	for _, once := range []bool{false, true} {
		out, err := h.Run(t.Context(), Call{Script: `printf '%s|' "$@"; cat; echo oops >&2; exit 7`, Args: []string{"a'b", "x\ny", ""},
			Limit: 100, Once: once})
		if err != nil || string(out.Stdout) != "a'b|x\ny||" || out.Stderr != "oops\n" || out.Exit != 7 {
			t.Errorf("%q %q %d %v", out.Stdout, out.Stderr, out.Exit, err)
		}
	}
	in := bytes.Repeat([]byte("exit 3\n"), 100<<10) // input that the script does not read is not executed
	out, err := h.Run(t.Context(), Call{Script: "head -c 700000 | md5sum; exit 4", Stdin: bytes.NewReader(in), Limit: 100})
	if err != nil || out.Exit != 4 || !strings.HasPrefix(string(out.Stdout), fmt.Sprintf("%x", md5.Sum(in[:700000]))) {
		t.Errorf("%q %d %v", out.Stdout, out.Exit, err)
	}
	out, err = h.Run(t.Context(), Call{Script: "read a; exit 4", Stdin: bytes.NewReader(in), Limit: 100})
	if err != nil || out.Exit != 4 {
		t.Errorf("%q %d %v", out.Stdout, out.Exit, err)
	}
	var sink bytes.Buffer
	out, err = h.Run(t.Context(), Call{Script: "yes | head -c 1000000", Limit: 1e6, Sink: &sink})
	if err != nil || sink.Len() != 1e6 || out.Stdout != nil {
		t.Errorf("%d %v", sink.Len(), err)
	}
	if _, err = h.Run(t.Context(), Call{Script: "yes", Limit: 1000}); err == nil || NotStarted(err) {
		t.Errorf("more than the limit: %v", err)
	}
	if _, err = h.Run(t.Context(), Call{Script: "yes >&2", Limit: 1000}); fault.CodeOf(err) != Cut {
		t.Errorf("endless complaints: %v", err)
	}
	out, err = h.Run(t.Context(), Call{Script: "umask", Limit: 1000})
	if err != nil || string(out.Stdout) != "0077\n" {
		t.Errorf("umask %q %v", out.Stdout, err)
	}
	if _, err = h.Run(t.Context(), Call{Script: "kill -9 $PPID", Limit: 1000}); fault.CodeOf(err) != Cut {
		t.Errorf("the shell was killed: %v", err)
	}
}

func TestRunTogether(t *testing.T) {
	s, c := serve(t, "")
	h := open(t, c)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			out, err := h.Run(t.Context(), Call{Script: "sleep 0.02; echo $1", Args: []string{fmt.Sprint(i)}, Limit: 100})
			if err != nil || string(out.Stdout) != fmt.Sprintln(i) {
				t.Errorf("%q %v", out.Stdout, err)
			}
		})
	}
	all.Wait()
	if n := s.Accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A profile may print, read a few lines, or echo its input; one that consumes the input or never ends is reported as
// the cause.
func TestProfiles(t *testing.T) {
	for name, c := range map[string]struct {
		profile string
		code    string
		says    string // in the error
	}{
		"prints":            {"echo 'Last login: today'; echo welcome >&2; printf 'no newline'; printf x >&2", "", ""},
		"asks":              {"printf 'Project? '; read p; echo \"you chose $p\"; read q", "", ""},
		"asks for ever":     {"while :; do printf 'Project? '; read p; sleep 1; done", NoShell, "it printed: Project?"},
		"asks on stderr":    {"printf 'Licence server \\033[31mdown\\033[0m, wait [y/n]? ' >&2; sleep 60", NoShell, "down"},
		"says much":         {"head -c 3000 /dev/zero | tr '\\000' x; echo THE END; sleep 60", NoShell, "xTHE END"},
		"changes directory": {"cd /nonexistent; cd /; umask 0; alias printf=false; export PATH=/nonexistent; set -C", "", ""},
		"has its own commands": {`d=$(mktemp -d); for c in env base64 sh printf; do printf '#!/bin/sh\necho forged\n' >$d/$c; chmod +x $d/$c; done
			export PATH=$d:$PATH ENV=$d/env BASH_ENV=$d/env`, "", ""},
		"exits":              {"echo This account is not available; exit 1", NoShell, "not available"},
		"never ends":         {"sleep 60", NoShell, ""},
		"takes all":          {"cat >/dev/null", NoShell, ""},
		"takes some":         {"head -c 100 >/dev/null", NoShell, ""},
		"echoes":             {"cat", NoShell, ""},
		"floods":             {"yes", NoShell, ""},
		"complains for ever": {"yes >&2", NoShell, "a MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, config := serve(t, c.profile)
			h := open(t, config)
			if c.code != "" {
				h.timing.hello = 4 * time.Second // enough for the profile's output
			}
			for _, once := range []bool{true, false} {
				ran := filepath.Join(t.TempDir(), "ran")
				out, err := h.Run(t.Context(), Call{Script: `echo ran | tee "$1"`, Args: []string{ran}, Limit: 100, Once: once})
				if c.code == "" && (err != nil || string(out.Stdout) != "ran\n" || out.Stderr != "") {
					t.Errorf("%q %q %v", out.Stdout, out.Stderr, err)
				}
				if c.code == "" {
					continue
				}
				if _, there := os.Stat(ran); there == nil {
					t.Error("the script was executed")
				}
				_, said, _ := strings.Cut(err.Error(), "it printed: ")
				if !strings.Contains(err.Error(), c.says) || len(said) > 900 || strings.Contains(said, "\033") {
					t.Errorf("%q does not show what the profile printed", err)
				}
				if code := fault.CodeOf(err); code != c.code && (once || code != Cut) || !strings.Contains(err.Error(), ".bashrc") {
					t.Error(err)
				}
			}
		})
	}
}

// A script without its start line does not start, however late its login shell is.
func TestNeverLate(t *testing.T) {
	dir := t.TempDir()
	late := "touch " + dir + "/up; while [ -e " + dir + "/up ] && [ ! -e " + dir + "/go ]; do sleep 0.02; done"
	_, c := serve(t, late)
	h := open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		await(t, filepath.Join(dir, "up"))
		cancel()
	}()
	_, err := h.Run(ctx, Call{Script: "touch " + dir + "/ran", Limit: 1, Once: true})
	if !NotStarted(err) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1, Once: true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the script started after Run had reported that it was not started")
	}
}

func await(t *testing.T, path string) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Errorf("%s did not appear within 2 minutes", path)
}

// The end of a call's context does not end the script, and nothing is written to the sink afterwards.
func TestGivenUp(t *testing.T) {
	_, c := serve(t, "")
	h := open(t, c)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		await(t, dir+"/up")
		cancel()
	}()
	_, err := h.Run(ctx, Call{Script: `touch "$1"/up; while [ ! -e "$1"/go ]; do sleep 0.01; done; touch "$1"/end`, Args: []string{dir},
		Limit: 10, Once: true})
	if fault.CodeOf(err) != Cut || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, os.WriteFile(dir+"/go", nil, 0o600))
	await(t, dir+"/end")
}

// A caller without a deadline does not wait for ever for a session, nor for an SFTP server that never answers.
//
// proves SITE-04
func TestOpeningIsBounded(t *testing.T) {
	s, c := serve(t, "")
	h := open(t, c)
	h.timing.hello = 2 * time.Second
	s.Mute.Store(true)
	_, err := h.SFTP(t.Context())
	if fault.CodeOf(err) != NoShell || !strings.Contains(err.Error(), "it printed: Welcome!") || !strings.Contains(err.Error(), ".bashrc") {
		t.Error(err)
	}
	_, err = h.More(t.Context())
	if fault.CodeOf(err) != NoShell {
		t.Error(err)
	}
	s.Mute.Store(false)
	h.timing.hello = time.Minute
	for range sessions {
		client, err := h.SFTP(t.Context())
		must(t, err)
		defer client.Close()
	}
	h.timing.session = time.Second
	_, err = h.Run(t.Context(), Call{Script: "true", Limit: 1})
	if fault.CodeOf(err) != Busy || !NotStarted(err) {
		t.Error(err)
	}
}

func TestSFTP(t *testing.T) {
	s, c := serve(t, "")
	h := open(t, c)
	one, err := h.SFTP(t.Context())
	must(t, err)
	more, err := h.More(t.Context())
	must(t, err)
	for _, client := range []interface {
		Getwd() (string, error)
		Close() error
	}{one, more} {
		if _, err := client.Getwd(); err != nil {
			t.Error(err)
		}
	}
	if n := s.Accepted.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	for range 3 * MaxConnections { // a closed connection can be opened again
		more.Close()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if more, err = h.More(t.Context()); fault.CodeOf(err) != Busy || time.Now().After(end) {
				break
			}
		}
		must(t, err)
	}
	more.Close()
	one.Close()
	for range 3 * sessions {
		one, err = h.SFTP(t.Context())
		must(t, err)
		one.Close()
	}
}
