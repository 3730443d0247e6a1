package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/policy"
	"slurmgate/site"
)

// The gateway's own log has no secret of a job, a command or a caller.
func TestLogWithoutSecrets(t *testing.T) {
	var out bytes.Buffer
	log, _ := newLog(&out)
	log.Warn("a job said password=hunter2hunter2", "err", errors.New("sbatch: --export=DB_PASSWORD=hunter2hunter2"), "text",
		"https://u:hunter2hunter2@host/")
	if got := out.String(); strings.Contains(got, "hunter2") || strings.Count(got, "[redacted]") != 3 {
		t.Error(got)
	}
}

// The gateway logs at the level of logging.level. proves AX-08
func TestLoggingLevel(t *testing.T) {
	words := []string{"debug", "info", "warn", "error"}
	for i, word := range append(words, "") {
		text := "version: 1\n"
		if word != "" {
			text += "logging: {level: " + word + "}\n"
		} else {
			i = 1 // info when policy sets none
		}
		p := value(policy.Parse("p", []byte(text), os.LookupEnv))(t)
		var out strings.Builder
		log, level := newLog(&out)
		setLevel(log, level, p)
		log.Debug("debug.")
		log.Info("info.")
		log.Warn("warn.")
		log.Error("error.")
		for k, other := range words {
			if got := strings.Contains(out.String(), other+"."); got != (k >= i) {
				t.Errorf("level %q, message %q: %v", word, other, got)
			}
		}
	}
}

// The level applies to the first line that depends on the domain: a gateway that logs errors only does not warn while it starts.
func TestLoggingLevelAtStart(t *testing.T) {
	for level, warns := range map[string]bool{"warn": true, "error": false} {
		dir := t.TempDir()
		must(t, os.CopyFS(dir, os.DirFS("../../app/testdata/demo/domain")))
		if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte("version: 1\ntool_allowlist: []\nlogging: {level: "+level+"}\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		s := &site.Site{DomainDir: dir, Gateway: site.Gateway{StateDir: t.TempDir()}}
		must(t, os.Chmod(s.Gateway.StateDir, 0o700))
		var out strings.Builder
		log, variable := newLog(&out)
		g, err := openGateway(t.Context(), s, toChange, log, variable)
		if err == nil {
			g.Close()
			t.Fatal("there is no site")
		}
		if got := strings.Contains(out.String(), "domain and policy do not fit"); got != warns {
			t.Errorf("level %s: %q (%v)", level, out.String(), err)
		}
	}
}

// Under systemd each line begins with its priority, and only there: JOURNAL_STREAM names the very stream that standard error is.
//
// proves OPS-03
func TestJournalPriorities(t *testing.T) {
	f := value(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	defer f.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	for stream, isJournal := range map[string]bool{fmt.Sprintf("%d:%d", st.Dev, st.Ino): true, fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false,
		"": false, "x": false} {
		for _, format := range []string{"text", formatJSON} {
			t.Setenv("JOURNAL_STREAM", stream)
			must(t, f.Truncate(0))
			_, _ = f.Seek(0, 0)
			out := openLog(f, format)
			out.level.Set(slog.LevelDebug)
			log := out.log.With("a", 1)
			log.Debug("d")
			log.Info("i")
			log.WithGroup("g").Warn("w", "b", 2)
			log.Error("e\nf")
			fmt.Fprintln(out.sayer(slog.LevelInfo), "said")
			data := value(os.ReadFile(f.Name()))(t)
			lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
			if len(lines) != 5 {
				t.Fatalf("the log has the lines %q, want 5", lines)
			}
			for i, want := range []string{"<7>", "<6>", "<4>", "<3>", "<6>"} {
				if got := strings.HasPrefix(lines[i], want); got != isJournal || !isJournal && lines[i][0] == '<' {
					t.Errorf("stream %q, %s: %q", stream, format, lines[i])
				}
			}
		}
	}
}

// A log of JSON is one object a line, for every kind of record, without secrets and without hidden characters.
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
		t.Fatalf("the log is %q, want 3 lines without secrets and hidden characters", out.String())
	}
	for i, level := range []string{"WARN", "ERROR", "INFO"} {
		var d map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &d); err != nil || d["level"] != level || d["msg"] == "" {
			t.Errorf("%s: %v", lines[i], err)
		}
		if i == 0 && d["text"] != "a\n\u202e\U000e0041\x1b[2J\"" {
			t.Errorf("the log has the text %q, want the text as it was", d["text"])
		}
	}
}

// newLog returns a log as text, and its level.
func newLog(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	o := openLog(w, "text")
	return o.log, &o.level
}
