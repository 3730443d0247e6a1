package run

import (
	"slurmgate/secrets"
	"slurmgate/visible"
)

// margin is the number of bytes around the requested part of a job's log that are also searched for secrets, so that
// one at the edge is found.
const margin = secrets.Margin

// clean removes secrets from a transition: texts from jobs, Slurm and callers are stored in the ledger for good.
func (e *Engine) clean(w Write) Write {
	s := e.cfg.Secrets
	w.Run.Detail, w.Run.CancelReason = short(s.Redact(w.Run.Detail)), s.Redact(w.Run.CancelReason)
	w.Run.Warnings = cleanAll(s, w.Run.Warnings)
	if w.Send != nil {
		send := *w.Send
		send.Text = s.Redact(send.Text)
		w.Send = &send
	}
	if data, ok := w.Event.Data.(map[string]any); ok {
		cleaned := make(map[string]any, len(data))
		for k, v := range data {
			if text, ok := v.(string); ok {
				v = s.Redact(text)
			}
			cleaned[k] = v
		}
		w.Event.Data = cleaned
	}
	return w
}

// maxDetail bounds a run's detail, in bytes: a job decides how long the text about its outputs gets.
const maxDetail = 8 << 10

func short(s string) string { return visible.Clip(s, maxDetail) }

func cleanAll(s *secrets.Scanner, texts []string) []string {
	for i, t := range texts {
		if c := s.Redact(t); c != t {
			texts = append(append(texts[:i:i], c), cleanAll(s, texts[i+1:])...)
			break
		}
	}
	return texts
}
