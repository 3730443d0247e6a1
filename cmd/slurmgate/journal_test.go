package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Under systemd each line begins with its priority, and only there: JOURNAL_STREAM names the very stream that standard error is.
//
// proves OPS-03
func TestJournalPriorities(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for stream, isJournal := range map[string]bool{fmt.Sprintf("%d:%d", st.Dev, st.Ino): true, fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false,
		"": false, "x": false} {
		for _, format := range []string{"text", formatJSON} {
			t.Setenv("JOURNAL_STREAM", stream)
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
			_, _ = f.Seek(0, 0)
			out := openLog(f, format)
			out.level.Set(slog.LevelDebug)
			log := out.log.With("a", 1)
			log.Debug("d")
			log.Info("i")
			log.WithGroup("g").Warn("w", "b", 2)
			log.Error("e\nf")
			fmt.Fprintln(out.sayer(slog.LevelInfo), "said")
			data, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
			if len(lines) != 5 {
				t.Fatalf("%q", lines)
			}
			for i, want := range []string{"<7>", "<6>", "<4>", "<3>", "<6>"} {
				if got := strings.HasPrefix(lines[i], want); got != isJournal || !isJournal && lines[i][0] == '<' {
					t.Errorf("stream %q, %s: %q", stream, format, lines[i])
				}
			}
		}
	}
}

// A log of JSON is one object a line, whatever is logged or said, without secrets and without hidden characters.
//
// proves OPS-03
func TestLogOfJSON(t *testing.T) {
	var out bytes.Buffer
	o := openLog(&out, formatJSON)
	o.log.Warn("a job said password=hunter2hunter2", "err", errors.New("--export=DB_PASSWORD=hunter2hunter2"), "text",
		"a\n\u202e\U000e0041\x1b[2J\"")
	o.log.With("run_id", "run_x").Error("second")
	fmt.Fprintln(o.sayer(slog.LevelInfo), "slurmgate serves\ntwo lines")
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 3 || strings.Contains(out.String(), "hunter2") || strings.ContainsAny(out.String(), "\u202e\U000e0041\x1b") {
		t.Fatalf("%q", out.String())
	}
	for i, level := range []string{"WARN", "ERROR", "INFO"} {
		var d map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &d); err != nil || d["level"] != level || d["msg"] == "" {
			t.Errorf("%s: %v", lines[i], err)
		}
		if i == 0 && d["text"] != "a\n\u202e\U000e0041\x1b[2J\"" {
			t.Errorf("%q", d["text"])
		}
	}
}
