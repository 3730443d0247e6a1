package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"time"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/notify"
	"slurmgate/site"
)

// noticesPerRun is how many notices of one run a principal may ask for, and how many of one batch may wait at the
// same time.
const noticesPerRun = 8

// notices returns the operations on notices.
func (g *Gateway) notices() []Operation {
	return []Operation{{
		ID: "run.notify", Title: "Tell when a run or a batch is over", Verb: "notify",
		Description: "Tells a URL, a mail address (mailto:), or a receiver that the site has a name for (receiver:NAME) when a run or a batch " +
			"is over; at once if it is. Only places that the site allows are told. A URL gets a POST signed with the key of receipts, repeated " +
			"for a day until it is answered with 2xx. The answer lists all notices that you asked for this run or batch; without a url it only " +
			"does that.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapSlurm, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.notify),
	}}
}

// NotifyArgs are the arguments of run.notify.
type NotifyArgs struct {
	RunID     string `json:"run_id,omitzero" kind:"run"`
	Batch     string `json:"batch,omitzero" kind:"batch"`
	ProjectID string `json:"project_id,omitzero" kind:"project"` // of the batch
	URL       string `json:"url,omitzero" min:"1" max:"2048" about:"https://…, http://…, mailto:ADDRESS or receiver:NAME"`
}

// NoticeDoc is one notice.
type NoticeDoc struct {
	NoticeID  string     `json:"notice_id"`
	URL       string     `json:"url"`
	State     string     `json:"state" enum:"waiting,due,delivered,given_up"` // waiting: the run or batch has not ended
	AskedAt   time.Time  `json:"asked_at"`
	Tries     int        `json:"tries"`
	Result    string     `json:"result"`      // of the latest try
	NextAt    *time.Time `json:"next_try_at"` // null: there will be no other try
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
	RunID   string      `json:"run_id,omitzero"`
	BatchID string      `json:"batch_id,omitzero"`
	Added   bool        `json:"added"`   // by this call
	Notices []NoticeDoc `json:"notices"` // the caller's own for this run or batch, oldest first
}

// Unchanged reports whether the call recorded nothing new.
func (a NotifyAnswer) Unchanged() bool { return !a.Added }

// Says implements [blocks.Answer].
func (a NotifyAnswer) Says() blocks.Document {
	of := cmp.Or(a.RunID, a.BatchID)
	if len(a.Notices) == 0 {
		return blocks.Document{blocks.Say("You asked for no notice of %v.", of)}
	}
	t := Listed{int64(len(a.Notices)), true}.table("notices", "oldest first", "place", "state", "tries", "result")
	for _, n := range a.Notices {
		t.Rows = append(t.Rows, []any{blocks.Data(n.URL), n.State, n.Tries, blocks.Data(n.Result)})
	}
	d := blocks.Document{t}
	if a.Added {
		d = blocks.Document{blocks.Say("A notice is sent when %v is over.", of), t}
	}
	return d
}

func (g *Gateway) notify(ctx context.Context, c gate.Call, a NotifyArgs) (out NotifyAnswer, err error) {
	out = NotifyAnswer{Notices: []NoticeDoc{}}
	of, err := g.noticeOf(ctx, c, a)
	if err != nil {
		return out, err
	}
	out.RunID, out.BatchID = of.RunID, of.BatchID
	if of.URL != "" {
		if of.Origin, err = g.Places().Check(of.URL); err != nil {
			return out, err
		}
		n, err := g.Ledger.AddNotice(ctx, of, noticesPerRun)
		if err != nil {
			return out, err
		}
		out.Added = n.ID == of.ID
	}
	list, err := g.Ledger.Notices(ctx, of)
	for _, n := range list {
		if n.By == of.By && n.ByID == of.ByID {
			out.Notices = append(out.Notices, noticeDoc(n))
		}
	}
	return out, err
}

// noticeOf returns the notice that a call asks for. The run or batch must exist.
func (g *Gateway) noticeOf(ctx context.Context, c gate.Call, a NotifyArgs) (n notify.Notice, err error) {
	if (a.RunID == "") == (a.Batch == "") {
		return n, fault.Invalid("", fault.Problem{Code: "NOTICE-OF", Field: "run_id", Rule: "either run_id or batch",
			Msg: "run_id and batch are both given, or both missing"})
	}
	n = notify.Notice{ID: "ntc_" + strings.ToLower(rand.Text()[:16]), RunID: a.RunID, URL: a.URL, By: c.Caller.Name, ByID: c.Caller.ID}
	if a.RunID != "" {
		_, err = g.Ledger.Owner(ctx, a.RunID)
		return n, err
	}
	b, err := g.batchOf(ctx, c, BatchArgs{Batch: a.Batch, ProjectID: a.ProjectID})
	n.BatchID = b.ID
	return n, err
}

// Places returns the places to which the site file allows notices.
func (g *Gateway) Places() notify.Places {
	p := notify.Places{Origins: g.Site.Notify.Origins, Domains: g.Site.Notify.Mail.Domains, Receivers: map[string]notify.Receiver{}}
	for _, r := range g.Site.Notify.Receivers {
		p.Receivers[r.Name] = notify.Receiver{File: r.URLFile, Secret: r.SecretFile, Text: r.Body == site.TextBody}
	}
	return p
}

// SendNotices sends notices until ctx ends.
func (g *Gateway) SendNotices(ctx context.Context) {
	m := g.Site.Notify.Mail
	notify.NewSender(g.Ledger, notify.Config{Places: g.Places(), MailsPerHour: m.PerHour, MailsPerCaller: m.PerCaller,
		Sendmail: m.Sendmail, From: m.From, Log: g.Log, Now: time.Now}).Run(ctx)
}
