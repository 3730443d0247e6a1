package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"slurmgate/cli"
)

// A signer that is configured wrongly, or that root starts, ends with the status after which systemd does not start it again.
//
// proves SITE-08
func TestSignerMisconfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "signer.yaml")
	for text, want := range map[string]string{
		"":                            "docs/run/callers.md",
		"ca: {key: ca}\nminutes: 0\n": "minutes: 0 is out of range",
		"ca: {key: /nosuch/ca}\ngateway_users: [root]\nsource_addresses: [127.0.0.1]\nlog: /nosuch/log\n": "root",
	} {
		if text != "" {
			must(t, os.WriteFile(file, []byte(text), 0o600))
		}
		for _, more := range []string{"", "--check", "--public-key"} {
			args := []string{"signer", "--config", file}
			if more != "" {
				args = append(args, more)
			}
			var out, errs bytes.Buffer
			if status := realMain(t.Context(), args, &out, &errs); status != 78 || !strings.Contains(errs.String(), want) || out.Len() > 0 {
				t.Errorf("%v with %q: status %d, want 78: %s%s", args, text, status, &out, &errs)
			}
		}
		os.Remove(file)
	}
}

// systemd gets the gateway's messages, at a socket with a path and at an abstract one, and no child process inherits
// the right to send them. proves OPS-01
func TestServiceManager(t *testing.T) {
	for _, socket := range []string{filepath.Join(t.TempDir(), "n"), "@slurmgate-test-" + filepath.Base(t.TempDir())} {
		l := value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(t)
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
		m.notify("READY=1")
		for _, want := range []string{`^STATUS=3 runs queued$`, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*$`, `^READY=1$`} {
			b := make([]byte, 1000)
			must(t, l.SetReadDeadline(time.Now().Add(time.Minute)))
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
	if m.notify("READY=1"); !strings.Contains(log.String(), "systemd cannot be notified") {
		t.Errorf("without systemd's socket the log is %q, want that it cannot be notified", &log)
	}
}

// A gateway that is configured wrongly ends with a separate exit status, before it touches anything. proves OPS-01
func TestMisconfiguredStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	for _, text := range []string{"", "version: 1\nslurm: {run_as: alice}\n"} {
		if text != "" {
			must(t, os.WriteFile(file, []byte(text), 0o600))
		}
		for _, args := range [][]string{{"serve"}, {"serve", "--check"}} {
			var out, errs bytes.Buffer
			if status := realMain(t.Context(), append(args, "--site", file), &out, &errs); status != 78 || errs.Len() == 0 {
				t.Errorf("%v with the site file %q: status %d, want 78: %s", args, text, status, &errs)
			}
		}
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("a misconfigured gateway left %v (%v), want only the site file", left, err)
	}
}

// The runtime's memory limit is the least of the control groups that the service is in.
func TestCgroupMemory(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"none":      {fstest.MapFS{}, math.MaxInt64},
		"unlimited": {fstest.MapFS{"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n")}, math.MaxInt64},
		"own": {fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/slurmgate.service\n"),
			"sys/fs/cgroup/system.slice/slurmgate.service/memory.max": file("2147483648\n")}, 2 << 30},
		"around": {fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/slurmgate.service\n"),
			"sys/fs/cgroup/system.slice/slurmgate.service/memory.max": file("2147483648\n"),
			"sys/fs/cgroup/system.slice/memory.max":                   file("1073741824\n")}, 1 << 30},
		"high": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.high": file("1000000\n")}, 1000000},
		"version 1": {fstest.MapFS{"proc/self/cgroup": file("9:name=systemd:/\n4:memory:/a/b\n0::/\n"),
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": file("5000000\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     file("9223372036854771712\n")}, 5000000},
		"broken": {fstest.MapFS{"proc/self/cgroup": file("x\n0::/../..\n::\n"), "sys/fs/cgroup/memory.max": file("-1")}, math.MaxInt64},
	} {
		if got := cgroupMemory(c.files, "self"); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The heap may grow by 32 MB, or double, whichever is more.
func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 3200, 1 << 20: 3200, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 1 << 40: 100} {
		if got := garbagePercent(live); got != want {
			t.Errorf("%d bytes alive: %d, want %d", live, got, want)
		}
	}
}

// The share follows what is alive: it is set after each collection.
func TestCollectSeldom(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	collectSeldom()
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for range 2 {
		if metrics.Read(now); now[0].Value.Uint64() < 100 {
			t.Errorf("the share is %d", now[0].Value.Uint64())
		}
		debug.SetGCPercent(77)
		for metrics.Read(now); now[0].Value.Uint64() == 77; metrics.Read(now) {
			runtime.GC() // the finalizer runs after it, in another goroutine
		}
	}
}

// A program that make builds names its tag or commit; a release's setting has precedence.
//
// slow: builds the program
func TestVersion(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "slurmgate")
	if out, err := exec.Command("make", "-C", "../..", "build", "BIN="+bin, "VERSION=v9.8.7", "COMMIT=abc").CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	out := value(exec.Command(bin, "version", "--json").Output())(t)
	var b cli.Build
	must(t, json.Unmarshal(out, &b))
	if b.Version != "v9.8.7" || b.Commit != "abc" || !strings.HasPrefix(b.Go, "go1.") || !strings.HasPrefix(b.SQLite, "3.") {
		t.Errorf("version --json of a release v9.8.7 of commit abc = %s", out)
	}
	text, err := exec.Command(bin, "version").Output()
	if err != nil || !strings.HasPrefix(string(text), "slurmgate v9.8.7\n") || strings.Contains(string(text), "not committed") != b.Dirty {
		t.Errorf("version of a release v9.8.7, dirty %t = %q, %v", b.Dirty, text, err)
	}
	release, err := exec.Command("git", "describe", "--tags", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return // not a checkout: nothing names a commit
	}
	commit := value(exec.Command("git", "rev-parse", "HEAD").Output())(t)
	steps, err := exec.Command("make", "-C", "../..", "--dry-run", "build").Output()
	flags := fmt.Sprintf("-X main.release=%s -X main.commit=%s", strings.TrimSpace(string(release)), strings.TrimSpace(string(commit)))
	if err != nil || !strings.Contains(string(steps), flags) {
		t.Errorf("make --dry-run build = %q, %v; want %q in it", steps, err, flags)
	}
}
