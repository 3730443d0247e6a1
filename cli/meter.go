package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/gate"
	"slurmgate/run"
)

// How often a transfer's progress is read and shown.
const (
	firstShown = 400 * time.Millisecond // a call that ends before this shows nothing
	askedEvery = 500 * time.Millisecond
	linesEvery = 10 * time.Second // where standard error is no terminal
)

// meter shows how far bytes are: one live line on a terminal; elsewhere a line at the start, one every ten seconds, and one at the end.
type meter struct {
	shell *Shell
	name  string // of what is moved; may be empty
	began time.Time
	last  time.Time // when the last line was printed; zero: none was
	seen  run.Moving
}

func (m *meter) show(now run.Moving) {
	m.seen = now
	if m.shell.tty {
		fmt.Fprintf(m.shell.Err, "\r%s\x1b[K", m.text(now))
		m.last = time.Now()
	} else if time.Since(m.last) >= linesEvery {
		m.shell.Say("%s", m.text(now))
		m.last = time.Now()
	}
}

// end clears the live line, or prints the last one: how much it was, or how far it came.
func (m *meter) end(err error) {
	switch {
	case m.last.IsZero():
	case m.shell.tty:
		fmt.Fprint(m.shell.Err, "\r\x1b[K")
	case err != nil:
		far := run.Moving{DoneBytes: m.seen.DoneBytes, TotalBytes: m.seen.TotalBytes}
		m.shell.Say("%s%s: stopped after %s", m.seen.What, m.of(), movingText(far))
	default:
		took := time.Since(m.began)
		m.shell.Say("%s%s: %s in %s", m.seen.What, m.of(), bytesText(max(m.seen.TotalBytes, m.seen.DoneBytes)), took.Round(100*time.Millisecond))
	}
}

func (m *meter) of() string {
	if m.name == "" {
		return ""
	}
	return " " + m.name
}

func (m *meter) text(now run.Moving) string { return now.What + m.of() + "  " + movingText(now) }

// movingText returns how many bytes of how many, how fast, and how long it still takes.
func movingText(m run.Moving) string {
	out := bytesText(m.DoneBytes)
	if m.TotalBytes > 0 {
		out = fmt.Sprintf("%s of %s (%d %%)", out, bytesText(m.TotalBytes), min(100, 100*m.DoneBytes/m.TotalBytes))
	}
	if m.BytesPerSecond > 0 {
		out += fmt.Sprintf("  %s/s", bytesText(m.BytesPerSecond))
	}
	if m.SecondsLeft != nil {
		out += fmt.Sprintf("  %s left", time.Duration(*m.SecondsLeft)*time.Second)
	}
	return out
}

// meanwhile carries out a call and shows how far it is.
func (s *Session) meanwhile(ctx context.Context, req gate.Request, name string, call func() error) (err error) {
	if !operation(app.Host{}, req.ToolID).Moves || req.DryRun {
		return call()
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		m := meter{shell: s.app, name: name, began: time.Now()}
		defer func() { m.end(err) }() // of the call, which has ended then
		for wait := firstShown; ; wait = askedEvery {
			select {
			case <-time.After(wait):
			case <-over:
				return
			}
			if now := s.progress(ctx, req.ToolCallID); now != nil {
				m.show(*now)
			}
		}
	}()
	defer func() {
		close(over)
		<-ended
	}()
	err = call()
	return err
}

// progress returns how far a call is; nil: unknown.
func (s *Session) progress(ctx context.Context, toolCallID string) *run.Moving {
	args, err := json.Marshal(app.ProgressArgs{ToolCallID: toolCallID})
	if err != nil {
		return nil
	}
	res, err := s.way().Call(ctx, gate.NewRequest("call.progress", app.BuiltinVersion, args))
	var p app.ProgressAnswer
	if err != nil || decode(res, &p) != nil {
		return nil
	}
	return p.Moving
}

// metered is a stream that is read here, with its progress.
type metered struct {
	io.Reader
	meter *meter
	what  string
	done  int64
	asked time.Time
}

// Read implements io.Reader.
func (r *metered) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.done += int64(n)
	if took := time.Since(r.meter.began); took >= firstShown && time.Since(r.asked) >= askedEvery {
		r.asked = time.Now()
		r.meter.show(run.NewMoving(r.what, r.done, 0, 0, took))
	}
	return n, err
}
