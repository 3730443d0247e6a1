package run_test

import (
	"strings"
	"testing"

	"slurmgate/run"
	"slurmgate/secrets/corpus"
)

// logs reads a stream from a byte on until a part is empty, and returns all of it and where the next part begins.
func (l *life) logs(t *testing.T, id, stream string, from, limit int64) (text string, next int64, last run.LogsAnswer) {
	t.Helper()
	for {
		a, err := l.engine.Logs(t.Context(), id, stream, run.LogPart{Limit: limit, From: &from})
		if err != nil || a.NextByte == nil {
			t.Fatalf("Logs(%s from %d) gave %v and the next byte %v, want a part", stream, from, err, a.NextByte)
		}
		if text += a.Text; a.Text == "" {
			return text, *a.NextByte, a
		}
		from = *a.NextByte
	}
}

// A caller who follows a stream part by part gets each byte of it once, whatever the size of the parts: a line when it
// is whole, the rest when the run has ended.
func TestFollowedLog(t *testing.T) {
	for _, limit := range []int64{20, 100_000} {
		bubble(t, func(t *testing.T, w *world) {
			l := w.life()
			id := l.submit(order()).RunID
			write := func(text string) {
				w.with(func() {
					a := w.attempt(id, 1)
					a.ctl["stdout"] = append(a.ctl["stdout"], text...)
				})
			}
			if text, next, last := l.logs(t, id, "stdout", -100, limit); text != "" || next != 0 || last.Final {
				t.Errorf("the stream of a run that has not begun is %q up to %d, final %v; want nothing", text, next, last.Final)
			}
			w.startJob(id)
			many := strings.Repeat("a line of it\n", 500)
			write(many + "half a ")
			text, next, _ := l.logs(t, id, "stdout", 0, limit)
			if text != many || next != int64(len(many)) {
				t.Errorf("in parts of %d bytes the stream has %d bytes up to %d, want the %d of whole lines", limit, len(text), next, len(many))
			}
			write("line\nand more")
			if text, next, _ = l.logs(t, id, "stdout", next, limit); text != "half a line\n" {
				t.Errorf("what came then is %q, want the line that was half", text)
			}
			kept := many + "half a line\nand more"
			w.with(func() { w.finish(w.jobs[0]); w.attempt(id, 1).ctl["stdout"] = []byte(kept) })
			w.until(id, done)
			text, next, last := l.logs(t, id, "stdout", next, limit)
			if text != "and more" || next != int64(len(kept)) || !last.Final || last.Attempt != 1 {
				t.Errorf("after the end came %q up to %d of attempt %d, final %v; want the rest of attempt 1", text, next, last.Attempt, last.Final)
			}
			if text, _, _ = l.logs(t, id, "stdout", -15, limit); text != "a line\nand more" {
				t.Errorf("the last 15 bytes are %q", text)
			}
		})
	}
}

// No part shows half a secret, wherever it begins or ends.
func TestFollowedLogHidesSecrets(t *testing.T) {
	secret := corpus.Planted(5)[0].Core
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		id := l.submit(order()).RunID
		w.startJob(id)
		whole := "first\nkey " + secret + " and more\nlast\n"
		for n := range len(whole) + 1 {
			w.with(func() { w.attempt(id, 1).ctl["stderr"] = []byte(whole[:n]) })
			for from := range int64(n) {
				a, err := l.engine.Logs(t.Context(), id, "stderr", run.LogPart{Limit: 4096, From: &from})
				if err != nil {
					t.Fatal(err)
				}
				for _, half := range halves(secret) {
					if strings.Contains(a.Text, half) {
						t.Fatalf("of %d bytes those from %d on are %q, with a part of the secret", n, from, a.Text)
					}
				}
			}
		}
	})
}
