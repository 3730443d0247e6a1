package main

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What systemd hears, at a socket with a path and at an abstract one, and that no child process inherits the right to say it. proves OPS-01
func TestServiceManager(t *testing.T) {
	for _, socket := range []string{filepath.Join(t.TempDir(), "n"), "@slurmgate-test-" + filepath.Base(t.TempDir())} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		t.Setenv("NOTIFY_SOCKET", socket)
		t.Setenv("WATCHDOG_USEC", "120000000")
		t.Setenv("WATCHDOG_PID", "")
		m := findServiceManager(slog.New(slog.DiscardHandler))
		if m.watchdog != 2*time.Minute {
			t.Errorf("a sign of life every %s, want 2m", m.watchdog)
		}
		for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
			if v, there := os.LookupEnv(name); there {
				t.Errorf("child processes inherit %s=%s", name, v)
			}
		}
		m.say("3 runs\nqueued")
		m.say("3 runs\nqueued") // once
		m.reloading()
		m.tell("READY=1")
		for _, want := range []string{`^STATUS=3 runs queued$`, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*$`, `^READY=1$`} {
			b := make([]byte, 1000)
			if err := l.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := l.Read(b)
			if err != nil || !regexp.MustCompile(want).Match(b[:n]) {
				t.Errorf("%q %v, want %s", b[:n], err, want)
			}
		}
	}
	t.Setenv("NOTIFY_SOCKET", "/nowhere/s")
	t.Setenv("WATCHDOG_USEC", "1")
	t.Setenv("WATCHDOG_PID", "1")
	var log bytes.Buffer
	m := findServiceManager(slog.New(slog.NewTextHandler(&log, nil)))
	if m.watchdog != 0 {
		t.Error("the watchdog of another process is taken for this one's")
	}
	if m.tell("READY=1"); !strings.Contains(log.String(), "systemd cannot be notified") {
		t.Errorf("%q", &log)
	}
}

// A gateway that is configured wrongly ends with a status of its own, before it touches anything. proves OPS-01
func TestMisconfiguredStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	for _, text := range []string{"", "version: 1\nslurm: {run_as: alice}\n"} {
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"serve"}, {"serve", "--check"}} {
			var out, errs bytes.Buffer
			if status := realMain(t.Context(), append(args, "--site", file), &out, &errs); status != 78 || errs.Len() == 0 {
				t.Errorf("%v with the site file %q: status %d, want 78: %s", args, text, status, &errs)
			}
		}
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}
