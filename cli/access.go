package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Token groups the verbs on bearer tokens.
type Token struct {
	Create tokenCreateCmd                `cmd:"" help:"Create a token. It is printed only once; the gateway stores only its hash."`
	List   Call[struct{}, app.TokenList] `cmd:"" default:"withargs" help:"List the tokens."`
	Revoke tokenRevokeCmd                `cmd:"" help:"Revoke a token permanently, effective immediately."`
}

type tokenCreateCmd struct {
	Name       string            `arg:"" help:"Name for lists and records, e.g. lab-assistant. Each token is a separate principal, even if another has the same name."`
	Capability []string          `help:"Capabilities: gateway, read, import, slurm, operate, approve, admin, metrics, or *." default:"gateway,read" placeholder:"NAME,…"`
	Project    []string          `help:"Projects it can see: names or ids, {user} for the project of the Unix user's own, or *. Default: {user} with --unix-user, else the site's default project." placeholder:"NAME,…"`
	Account    map[string]string `help:"Slurm account that jobs of a project charge." mapsep:"," placeholder:"PROJECT=ACCOUNT"`
	UnixUser   string            `help:"User of the cluster whom the token's jobs run as where slurm.run_as is caller. Default: none, so that it cannot start jobs there." placeholder:"USER"`
	Tool       []string          `help:"Tools that its chats list first; no right." placeholder:"ID,…"`
	Expires    time.Duration     `help:"Lifetime, at most 366 days." default:"720h" placeholder:"DURATION"`
}

// Run creates a token.
func (c tokenCreateCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		switch {
		case len(c.Project) > 0:
		case c.UnixUser != "":
			c.Project = []string{plan.UserProject}
		default:
			c.Project = []string{s.site.Gateway.DefaultProject}
		}
		var t app.TokenCreated
		if err := s.call(ctx, "token.create", app.TokenCreateArgs{Name: c.Name, Capabilities: c.Capability, Projects: c.Project,
			Accounts: c.Account, UnixUser: c.UnixUser, Tools: c.Tool, ExpiresInSeconds: int64(c.Expires / time.Second)}, &t); err != nil {
			return err
		}
		if t.Note != "" { // the gateway died after it had made the token, before its text came
			return fault.New(fault.Unknown, "secret_lost", t.TokenID+" was made, but its text did not arrive, and it is not stored").
				WithSteps(fault.Do("token.revoke", "token_id", t.TokenID)).WithNext("revoke it, then create another")
		}
		return a.show(t, func(w io.Writer) {
			fmt.Fprintf(w, "%s\n", t.Token)
			a.Say("token %s for %s, valid until %s: store it now, it is not shown again. Next: Authorization: Bearer sgt_…", t.TokenID,
				t.Principal, t.ExpiresAt.Local().Format(time.RFC3339))
			if !slices.ContainsFunc(t.Capabilities, func(s string) bool { return s == gate.CapGateway || s == gate.CapMetrics || s == "*" }) {
				a.Say("without the capability %s it cannot look at runs, batches or artifacts", gate.CapGateway)
			}
		})
	})
}

type tokenRevokeCmd struct{ app.TokenRevokeArgs }

// Run revokes a token.
func (c tokenRevokeCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "token.revoke", c.TokenRevokeArgs,
		func(w io.Writer, t app.TokenRevoked) {
			fmt.Fprintf(w, "%s  %s  %s\n", t.TokenID, t.Name, t.State)
			for _, id := range t.Descendants {
				fmt.Fprintf(w, "%s  created with it, %s\n", id, map[bool]string{true: "revoked too", false: "still valid"}[c.Descendants])
			}
		})
}

// Approvals groups the verbs that show approvals.
type Approvals struct {
	List Call[app.ApprovalListArgs, app.ApprovalList]  `cmd:"" default:"withargs" help:"List the calls that are waiting for approval."`
	Show Call[app.ApprovalShowArgs, app.ApprovalShown] `cmd:"" help:"Show everything that a request for approval is about."`
}

// Approve is the verb that approves a call.
type Approve struct {
	app.ApprovalShowArgs
	Uses    int           `help:"Number of calls with exactly these arguments that it allows (1 to 1000)." default:"1"`
	Expires time.Duration `help:"How long it is valid. Default: set by policy." placeholder:"DURATION"`
	Reason  string        `help:"Reason, for the record." placeholder:"TEXT"`
	Seen    string        `help:"Code that approvals show ends with; needed where the list does not show everything." placeholder:"CODE"`
}

// Run approves.
func (c Approve) Run(ctx context.Context, a *Shell) error {
	args := app.ApprovalAnswerArgs{ApprovalShowArgs: c.ApprovalShowArgs, Approve: true, Uses: c.Uses,
		ExpiresInSeconds: int64(c.Expires / time.Second), Reason: c.Reason, Seen: c.Seen}
	return callAndPrint[app.ApprovalAnswered](ctx, a, "approval.answer", args)
}

// Deny is the verb that denies a call.
type Deny struct {
	app.ApprovalShowArgs
	Reason string `help:"Reason; the caller sees it." placeholder:"TEXT"`
}

// Run denies.
func (c Deny) Run(ctx context.Context, a *Shell) error {
	args := app.ApprovalAnswerArgs{ApprovalShowArgs: c.ApprovalShowArgs, Reason: c.Reason}
	return callAndPrint[app.ApprovalAnswered](ctx, a, "approval.answer", args)
}

// Events groups the verbs on the records of calls.
type Events struct {
	List   eventsListCmd                           `cmd:"" default:"withargs" help:"List calls, newest first."`
	Show   Call[app.EventShowArgs, app.EventStory] `cmd:"" help:"Show one call with its redacted arguments and result."`
	Verify Call[struct{}, app.EventsVerified]      `cmd:"" help:"Check the hash chains of all records."`
}

type eventsListCmd struct {
	app.EventListArgs
	Since string `help:"Only calls since this time: 2026-11-21, 2026-11-21T08:00:00Z, or how long ago: 90m, 12h, 7d." placeholder:"TIME"`
	Until string `help:"Only calls before this time, in the same format." placeholder:"TIME"`
}

// Run lists calls.
func (c eventsListCmd) Run(ctx context.Context, a *Shell) error {
	args := c.EventListArgs
	var err error
	if args.Since, err = when("--since", c.Since, time.Now()); err != nil {
		return err
	}
	if args.Until, err = when("--until", c.Until, time.Now()); err != nil {
		return err
	}
	return callAndPrint[app.EventList](ctx, a, "event.list", args)
}
