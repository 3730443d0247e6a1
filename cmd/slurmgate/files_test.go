package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/access"
	"slurmgate/httpapi"
	"slurmgate/site"
)

// TestMain lets a test run this program as a separate process, to send it signals.
func TestMain(m *testing.M) {
	if os.Getenv("SLURMGATE_TEST_AS_PROGRAM") != "" {
		main()
	}
	os.Exit(m.Run())
}

// writeSite writes the site file of a site.
func writeSite(t *testing.T, s *site.Site) string {
	t.Helper()
	text := value(s.Effective())(t)
	name := filepath.Join(t.TempDir(), "site.yaml")
	must(t, os.WriteFile(name, text, 0o600))
	return name
}

// What is not a regular file is refused at once, wherever a verb takes a file or a folder.
func TestNoRegularFile(t *testing.T) {
	dir := value(os.MkdirTemp("", "sg"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	fifo, socket, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket"), filepath.Join(dir, "file")
	l, err := net.Listen("unix", socket)
	must(t, errors.Join(err, syscall.Mkfifo(fifo, 0o600), os.WriteFile(file, nil, 0o600)))
	t.Cleanup(func() { l.Close() })
	conf := writeSite(t, shellSite(t))
	for path, want := range map[string]string{fifo: "a named pipe", socket: "a socket or a device", "/dev/zero": "a device",
		"/dev/tty": "device", dir: "a folder"} {
		if code, _, said := verb(t, "submit", path); code != 2 || !strings.Contains(said, path) || !strings.Contains(said, want) {
			t.Errorf("submit: %d %s", code, said)
		}
		fails(t, 2, path, "--site", path, "runs", "list")
		if code, _, said := verb(t, "--site", conf, "image", "add", "x", path); code == 0 || !strings.Contains(said, path) ||
			!strings.Contains(said, "not a regular file") {
			t.Errorf("image add: %d %s", code, said)
		}
		if path == dir {
			continue
		}
		for _, words := range [][]string{{"tool", "check"}, {"domain", "check"}} {
			if code, _, said := verb(t, append(words, path)...); code != 2 || !strings.Contains(said, path) || !strings.Contains(said, "folder") {
				t.Errorf("%v: %d %s", words, code, said)
			}
		}
	}
	fails(t, 3, "there is no file", "submit", filepath.Join(dir, "none"))
}

// Words and names that JSON cannot carry are refused by name.
func TestNamesThatAreNoText(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "caf\xe9")
	must(t, os.Mkdir(bad, 0o700))
	for _, args := range [][]string{
		{"tool", "check", bad}, {"submit", bad}, {"artifact", "import", bad}, {"run", "a.b", "-i", "reads=" + bad},
		{"run", "a.b", "-p", "x=\xff"}, {"--site", bad, "config", "check"},
		{"artifact", "import", "x", "--label", "\xff"}, {"wait", "run_\xff"}, {"\xff"},
	} {
		if code, _, said := verb(t, args...); code != 2 || !strings.Contains(said, `\x`) || !strings.Contains(said, "is not valid UTF-8") ||
			!strings.Contains(said, "rename") {
			t.Errorf("%q: %d %s", args, code, said)
		}
		if code, out, _ := verb(t, append([]string{"--json"}, args...)...); code != 2 || !strings.Contains(out, `"not_utf8"`) {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
	control := filepath.Join(t.TempDir(), "a\nb")
	must(t, os.WriteFile(control, []byte("{}"), 0o600))
	for _, args := range [][]string{{"submit", control}, {"artifact", "import", control}, {"tool", "check", control},
		{"image", "add", "x", control}, {"--site", control, "config", "show"}, {"wait", "run_1", "--to", control}} {
		if code, _, said := verb(t, args...); code != 2 || !strings.Contains(said, `a\nb" contains control characters`) ||
			!strings.Contains(said, "rename") {
			t.Errorf("%q: %d %s", args, code, said)
		}
	}
	t.Chdir(bad)
	for _, args := range [][]string{{"artifact", "import", "x"}, {"tool", "check", "."}} {
		fails(t, 2, "is not valid UTF-8", args...)
	}
}

// A verb that reads standard input, also while it uploads, ends at the first signal, with the exit status of an interruption.
func TestSignalsEndReading(t *testing.T) {
	s := shellSite(t)
	g := operations(t)
	server, err := httpapi.Listen(httpapi.SocketConfig{Path: s.Gateway.Socket, Mode: 0o600}, httpapi.Handler(httpapi.Config{Gate: g.Gate,
		Auth: access.New(access.Config{}),
		Log:  g.Log}, nil),
		func() {}, g.Log)
	must(t, err)
	t.Cleanup(func() { server.Shutdown(context.Background()) })
	conf := writeSite(t, s)
	for _, words := range [][]string{{"submit", "-"}, {"artifact", "import", "-"}} {
		for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"--site", conf}, words...)...)
			cmd.Env = append(os.Environ(), "SLURMGATE_TEST_AS_PROGRAM=1")
			var said bytes.Buffer
			cmd.Stderr = &said
			in, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			must(t, err)
			// More than a pipe holds: when it is written, the program is reading.
			if _, err := in.Write(bytes.Repeat([]byte(" "), 512<<10)); err != nil {
				t.Error(words, err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 6 || !strings.Contains(said.String(), "standard input") {
				t.Errorf("%v after %v: %d %s", words, sig, code, said.String())
			}
			stop()
		}
	}
}
