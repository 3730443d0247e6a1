package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/policy"
	"slurmgate/secrets"
	"slurmgate/visible"
)

// The gateway's log goes to standard error, a line for each record: as text (key=value), or as JSON. If standard error
// is the journal, each line begins with its priority (sd-daemon(3)), so that journalctl -p warning works. Before a line
// is written, secrets are removed and hidden characters are shown.

const formatJSON = "json"

// output is the gateway's log and its writer.
type output struct {
	log   *slog.Logger
	level slog.LevelVar // info until policy sets another

	to      io.Writer
	journal bool
	json    bool
}

// openLog makes the log of a format.
func openLog(w io.Writer, format string) *output {
	o := &output{to: &lockedWriter{to: w}, journal: isJournal(w, os.Getenv("JOURNAL_STREAM")), json: format == formatJSON}
	options := &slog.HandlerOptions{Level: &o.level, ReplaceAttr: withoutSecrets}
	h := priorities{}
	for i := range h {
		if to := o.prefixed(levels[i]); o.json {
			h[i] = slog.NewJSONHandler(jsonWriter{to}, options)
		} else {
			h[i] = slog.NewTextHandler(visible.Writer(to), options)
		}
	}
	o.log = slog.New(h)
	return o
}

// sayer returns where sentences for people go. In a log of JSON they are records too, so that a program can read every
// line.
func (o *output) sayer(level slog.Level) io.Writer {
	if o.json {
		return slog.NewLogLogger(o.log.Handler(), level).Writer()
	}
	return o.prefixed(level)
}

func (o *output) prefixed(level slog.Level) io.Writer {
	if !o.journal {
		return o.to
	}
	return prefixWriter{o.to, fmt.Sprintf("<%d>", priorityOf(level))}
}

// levels lists the levels of slog, and priorityOf returns their priorities in syslog(3).
var levels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func priorityOf(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}

// isJournal reports whether a file is the stream to the journal that systemd names in JOURNAL_STREAM, DEVICE:INODE (systemd.exec(5)).
func isJournal(w io.Writer, stream string) bool {
	f, ok := w.(*os.File)
	var st unix.Stat_t
	return ok && stream != "" && unix.Fstat(int(f.Fd()), &st) == nil && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// priorities has a handler for each of the levels, because only its writer can begin a line.
type priorities [len(levels)]slog.Handler

func (p priorities) at(l slog.Level) slog.Handler {
	for i := len(levels) - 1; i > 0; i-- {
		if l >= levels[i] {
			return p[i]
		}
	}
	return p[0]
}

// Enabled implements slog.Handler.
func (p priorities) Enabled(ctx context.Context, l slog.Level) bool { return p.at(l).Enabled(ctx, l) }

// Handle implements slog.Handler.
func (p priorities) Handle(ctx context.Context, r slog.Record) error {
	return p.at(r.Level).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (p priorities) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range p {
		p[i] = p[i].WithAttrs(attrs)
	}
	return p
}

// WithGroup implements slog.Handler.
func (p priorities) WithGroup(name string) slog.Handler {
	for i := range p {
		p[i] = p[i].WithGroup(name)
	}
	return p
}

// lockedWriter writes one line at a time.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// prefixWriter begins what is written to it with a prefix. Each write is a line.
type prefixWriter struct {
	to     io.Writer
	prefix string
}

// Write implements io.Writer.
func (w prefixWriter) Write(p []byte) (int, error) {
	if _, err := w.to.Write(append([]byte(w.prefix), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// jsonWriter writes hidden characters in a JSON document as \u escapes.
type jsonWriter struct{ to io.Writer }

// Write implements io.Writer.
func (w jsonWriter) Write(p []byte) (int, error) {
	if _, err := w.to.Write(visible.JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// withoutSecrets takes secrets out of the words of jobs, callers and commands that are logged.
func withoutSecrets(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(secrets.Default().Redact(v))
	case error:
		a.Value = slog.StringValue(secrets.Default().Redact(v.Error()))
	}
	return a
}

// setLevel sets the log's level to policy's logging.level, if it has a level to set.
func setLevel(log *slog.Logger, level *slog.LevelVar, p *policy.Policy) {
	if level == nil {
		return
	}
	if err := level.UnmarshalText([]byte(p.Logging.Level)); err != nil {
		log.Error("policy's logging.level cannot be used", "err", err) // its reader accepts only levels that can
	}
}
