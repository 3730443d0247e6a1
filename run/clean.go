package run

import (
	"slurmgate/secrets"
	"slurmgate/visible"
)

// margin is how many bytes around what is read of a job's log are searched with it, so that a secret at its edge is found.
const margin = secrets.Margin

// clean takes secrets out of what a transition says of a run: the words of jobs, of Slurm and of callers go into the ledger and stay there.
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

// maxDetail bounds the detail of a run, in bytes: a job decides how much there is to say of its outputs.
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
