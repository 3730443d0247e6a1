package run

import (
	"fmt"
	"time"

	"slurmgate/fault"
)

// Drained is the reason of a run that waits because its site starts no new runs.
const Drained = "drained"

// Drain stops new runs of a site for now. Jobs that Slurm has continue and are collected.
type Drain struct {
	Site   string    `json:"site"`
	Queue  bool      `json:"queue"` // new runs are accepted and wait; else they are refused
	Reason string    `json:"reason"`
	By     string    `json:"by"` // who drained it
	Since  time.Time `json:"since"`
}

func (d Drain) String() string {
	text := fmt.Sprintf("site %s is drained by %s since %s", d.Site, d.By, d.Since.UTC().Format(time.RFC3339))
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

// forever is longer than any drain.
const forever = 100 * 365 * 24 * time.Hour

// setDrain holds all sends, or resumes them (nil).
func (b *backPressure) setDrain(d *Drain) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.drained
	b.drain, b.drained = d, nil
	if d != nil {
		b.drained = &pause{until: b.now().Add(forever), code: Drained, detail: d.String() + ". The run is sent when the site is resumed"}
		if was != nil {
			b.drained.held = was.held
		}
		return
	}
	if was == nil {
		return
	}
	for _, id := range was.held {
		delete(b.notBefore, id)
	}
	b.resumed()
}

// draining returns the current drain, or nil.
func (b *backPressure) draining() *Drain {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drain
}

// accepts returns an error for a new run or attempt while the site is drained, unless such runs are queued.
func (e *Engine) accepts() error {
	d := e.pressure.draining()
	if d == nil || d.Queue {
		return nil
	}
	return fault.New(fault.Transport, Drained, d.String()+". No new run is accepted").
		WithNext("submit again when the site is resumed; runs that exist are still shown, collected and replayed").WithRetry(LongWait)
}

// SetDrains makes exactly these sites drained.
func (s *Sites) SetDrains(drains []Drain) {
	of := map[string]*Drain{}
	for _, d := range drains {
		of[d.Site] = &d
	}
	for _, m := range s.order {
		m.pressure.setDrain(of[m.name])
	}
}

// Drains lists the drained sites.
func (s *Sites) Drains() []Drain {
	out := []Drain{}
	for _, m := range s.order {
		if d := m.pressure.draining(); d != nil {
			out = append(out, *d)
		}
	}
	return out
}
