package app

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"slurmgate/gate"
	"slurmgate/notify"
)

// noticesPerRun is how many notices of one run a principal may ask for.
const noticesPerRun = 8

// notices are the operations of being told.
func (g *Gateway) notices() []Operation {
	return []Operation{{
		ID: "run.notify", Title: "Tell when a run is over", Verb: "notify",
		Description: "Tells a URL, or a mail address (mailto:), when a run is over; at once if it is. Only places that the site allows are " +
			"told. A URL gets a POST signed with the key of receipts, repeated for a day until it is answered with 2xx. The answer lists all " +
			"notices that you asked for this run; without a url it only does that.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapSlurm, Needs: Ledger, Faces: everywhere,
		Input: object("run_id", prop("run_id", runIDSchema),
			prop("url", `{"type":"string","minLength":1,"maxLength":2048,"description":"https://…, http://… or mailto:ADDRESS"}`)),
		Does: look(g, g.notify),
	}}
}

// NotifyArgs are the arguments of run.notify.
type NotifyArgs struct {
	RunID string `json:"run_id"`
	URL   string `json:"url,omitzero"`
}

// NoticeDoc is one notice.
type NoticeDoc struct {
	NoticeID  string     `json:"notice_id"`
	URL       string     `json:"url"`
	State     string     `json:"state"` // waiting: the run is not over; due; delivered; given_up
	AskedAt   time.Time  `json:"asked_at"`
	Tries     int        `json:"tries"`
	Result    string     `json:"result"`      // of the newest try
	NextAt    *time.Time `json:"next_try_at"` // null: there is none
	SettledAt *time.Time `json:"settled_at"`
}

func noticeDoc(n notify.Notice) NoticeDoc {
	d := NoticeDoc{NoticeID: n.ID, URL: n.URL, State: "waiting", AskedAt: n.AskedAt, Tries: n.Tries, Result: n.Result, NextAt: n.NextAt,
		SettledAt: n.SettledAt}
	switch {
	case n.Delivered:
		d.State = "delivered"
	case n.SettledAt != nil:
		d.State = "given_up"
	case n.DueAt != nil:
		d.State = "due"
	}
	return d
}

// NotifyAnswer is the answer of run.notify.
type NotifyAnswer struct {
	CallRunID
	RunID   string      `json:"run_id"`
	Added   bool        `json:"added"`   // by this call
	Notices []NoticeDoc `json:"notices"` // the caller's own of this run, oldest first
}

// Unchanged reports whether the call recorded nothing new.
func (a NotifyAnswer) Unchanged() bool { return !a.Added }

func (g *Gateway) notify(ctx context.Context, c gate.Call, a NotifyArgs) (out NotifyAnswer, params any, err error) {
	out = NotifyAnswer{RunID: a.RunID, Notices: []NoticeDoc{}}
	if _, err := g.Ledger.Owner(ctx, a.RunID); err != nil {
		return out, nil, err
	}
	if a.URL != "" {
		origin, err := g.Places().Check(a.URL)
		if err != nil {
			return out, nil, err
		}
		id := "ntc_" + strings.ToLower(rand.Text()[:16])
		n, err := g.Ledger.AddNotice(ctx, notify.Notice{ID: id, RunID: a.RunID, URL: a.URL, Origin: origin, By: c.Caller.Name, ByID: c.Caller.ID},
			noticesPerRun)
		if err != nil {
			return out, nil, err
		}
		out.Added = n.ID == id
	}
	list, err := g.Ledger.Notices(ctx, a.RunID)
	for _, n := range list {
		if n.By == c.Caller.Name && n.ByID == c.Caller.ID {
			out.Notices = append(out.Notices, noticeDoc(n))
		}
	}
	return out, map[string]any{"run_id": a.RunID, "url": a.URL}, err
}

// Places is what the site file allows to be told.
func (g *Gateway) Places() notify.Places {
	return notify.Places{Origins: g.Site.Notify.Origins, Domains: g.Site.Notify.Mail.Domains}
}

// SendNotices tells places until ctx ends.
func (g *Gateway) SendNotices(ctx context.Context) {
	m := g.Site.Notify.Mail
	notify.NewSender(g.Ledger, notify.Config{Places: g.Places(), MailsPerHour: m.PerHour, Sendmail: m.Sendmail, From: m.From, Log: g.Log,
		Now: time.Now}).Run(ctx)
}
