package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
)

type Token struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token. It is printed only once; the gateway stores only its hash."`
	List   tokenListCmd   `cmd:"" default:"withargs" help:"List the tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke a token permanently, effective immediately."`
}

type tokenCreateCmd struct {
	Name       string            `arg:"" help:"Name of the principal, e.g. lab-assistant; tokens with the same name are the same principal."`
	Capability []string          `help:"Capabilities: gateway, read, import, slurm, operate, approve, admin, or *." default:"gateway,read" placeholder:"NAME,…"`
	Project    []string          `help:"Projects it can see: names or ids, or *. Default: the caller's default project." placeholder:"NAME,…"`
	Account    map[string]string `help:"Slurm account that jobs of a project charge." mapsep:"," placeholder:"PROJECT=ACCOUNT"`
	Expires    time.Duration     `help:"Lifetime, at most 366 days." default:"720h" placeholder:"DURATION"`
}

// Run creates a token.
func (c tokenCreateCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		if len(c.Project) == 0 {
			c.Project = []string{s.site.Gateway.DefaultProject}
		}
		var t app.TokenCreated
		if err := s.call(ctx, "token.create", app.TokenCreateArgs{Name: c.Name, Capabilities: c.Capability, Projects: c.Project,
			Accounts: c.Account, ExpiresInSeconds: int64(c.Expires / time.Second)},
			&t); err != nil {
			return err
		}
		if t.Note != "" { // the gateway died after it had made the token, before its text came
			return fault.New(fault.Unknown, "token.create", "secret_lost", t.TokenID+" was made, but its text did not arrive, and it is not stored").
				WithSteps(fault.Do("token.revoke", "token_id", t.TokenID)).WithNext("revoke it, then create another")
		}
		return a.show(t, func(w io.Writer) {
			fmt.Fprintf(w, "%s\n", t.Token)
			a.Say("token %s for %s, valid until %s: store it now, it is not shown again. Next: Authorization: Bearer sgt_…", t.TokenID,
				t.Principal, t.ExpiresAt.Local().Format(time.RFC3339))
		})
	})
}

type tokenListCmd struct{}

// Run lists tokens.
func (tokenListCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var l app.TokenList
		if err := s.call(ctx, "token.list", struct{}{}, &l); err != nil {
			return err
		}
		return a.show(l, func(w io.Writer) {
			if len(l.Tokens) == 0 {
				fmt.Fprintln(w, "no tokens")
				printNext(w, fault.Do("token.create"))
				return
			}
			var rows [][]string
			for _, t := range l.Tokens {
				rows = append(rows, []string{t.TokenID, t.Name, t.State, strings.Join(t.Capabilities, ","), strings.Join(t.Projects, ","),
					t.ExpiresAt.Local().Format("2006-01-02 15:04"), t.CreatedBy})
			}
			table(w, "token|name|state|capabilities|projects|expires|made by", rows)
			footer(w, len(l.Tokens), exactly(l.Total), "tokens")
		})
	})
}

type tokenRevokeCmd struct {
	TokenID string `arg:"" name:"token" help:"Token id, tok_… (not the token itself)."`
}

// Run revokes a token.
func (c tokenRevokeCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var t app.TokenDoc
		if err := s.call(ctx, "token.revoke", app.TokenArgs{TokenID: c.TokenID}, &t); err != nil {
			return err
		}
		return a.show(t, func(w io.Writer) { fmt.Fprintf(w, "%s  %s  %s\n", t.TokenID, t.Name, t.State) })
	})
}

type Approvals struct {
	All bool `help:"Also list those answered or expired."`
}

// Run lists approvals.
func (c Approvals) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var l app.ApprovalList
		if err := s.call(ctx, "approval.list", app.ApprovalListArgs{All: c.All}, &l); err != nil {
			return err
		}
		return a.show(l, func(w io.Writer) {
			for _, p := range l.Approvals {
				fmt.Fprintf(w, "%s  %s  %s requests %s %s\n  requested %s, expires %s, uses left %d\n  %s\n", p.ID, p.Status, p.Principal, p.ToolID,
					p.ToolVersion,
					p.RequestedAt.Local().Format(time.DateTime), p.ExpiresAt.Local().Format(time.DateTime), p.UsesLeft,
					a.printable(clipLine(string(p.Payload), 400)))
			}
			if len(l.Approvals) == 0 {
				fmt.Fprintln(w, "no calls are waiting for approval")
				return
			}
			footer(w, len(l.Approvals), exactly(l.Total), "approvals")
			if !c.All {
				fmt.Fprintln(w, "--json shows the whole payload")
				printNext(w, fault.Do("approval.answer"), fault.Do("deny"))
			}
		})
	})
}

type Approve struct {
	ID      string        `arg:"" name:"approval" help:"Approval id, apr_…"`
	Uses    int           `help:"Number of calls with exactly these arguments that it allows (1 to 1000)." default:"1"`
	Expires time.Duration `help:"How long it is valid. Default: set by policy." placeholder:"DURATION"`
	Reason  string        `help:"Reason, for the record." placeholder:"TEXT"`
}

// Run approves.
func (c Approve) Run(ctx context.Context, a *Shell) error {
	return a.answer(ctx, app.ApprovalAnswerArgs{ApprovalID: c.ID, Approve: true, Uses: c.Uses,
		ExpiresInSeconds: int64(c.Expires / time.Second), Reason: c.Reason})
}

type Deny struct {
	ID     string `arg:"" name:"approval" help:"Approval id, apr_…"`
	Reason string `help:"Reason; the caller sees it." placeholder:"TEXT"`
}

// Run denies.
func (c Deny) Run(ctx context.Context, a *Shell) error {
	return a.answer(ctx, app.ApprovalAnswerArgs{ApprovalID: c.ID, Reason: c.Reason})
}

func (a *Shell) answer(ctx context.Context, args app.ApprovalAnswerArgs) error {
	return a.With(ctx, func(s *Session) error {
		var p gate.Approval
		if err := s.call(ctx, "approval.answer", args, &p); err != nil {
			return err
		}
		return a.show(p, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s\n", p.ID, p.Status)
			if p.Status == gate.Approved {
				often := "once"
				if p.UsesLeft != 1 {
					often = fmt.Sprint(p.UsesLeft, " times")
				}
				fmt.Fprintf(w, "%s may make this call of %s %s until %s\n", p.Principal, p.ToolID, often, p.ExpiresAt.Local().Format(time.DateTime))
			}
		})
	})
}

// rehearse shows what a call would do.
func (a *Shell) rehearse(ctx context.Context, s *Session, toolID, version string, args any) error {
	var r gate.Rehearsal
	if err := s.callTool(ctx, toolID, version, args, &r); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		var p run.Preview
		if json.Unmarshal(r.Would, &p) != nil || p.RunID == "" {
			fmt.Fprintf(w, "%s would be called with %s\n", r.ToolID, r.Args)
			return
		}
		what := "would be created"
		if p.Exists {
			what = fmt.Sprintf("already exists (%s)", *p.State)
		}
		fmt.Fprintf(w, "run      %s  %s\npolicy   %s\nparams   %s\n", p.RunID, what, p.PolicyHash, p.ParamsHash)
		if place := placeText("", p.Placement); place != "" {
			fmt.Fprintf(w, "place    %s\n", place)
		}
		if r.ConsentRequired {
			fmt.Fprintln(w, "consent  a person's approval would be needed")
		}
		var plan any
		if json.Unmarshal(p.Params, &plan) == nil {
			pretty, _ := json.MarshalIndent(plan, "", "  ") // it is valid JSON
			fmt.Fprintf(w, "%s\n", pretty)
		}
		if p.Script != "" {
			fmt.Fprintf(w, "--- job script (a real attempt has its token instead of the zeros)\n%s", a.printable(p.Script))
		}
		if len(r.LeftOut) > 0 {
			a.Say("left out because it is too large for a dry run: %s", strings.Join(r.LeftOut, ", "))
		}
		a.Say("nothing was changed. Next: the same without --dry-run")
	})
}

type Events struct {
	List   eventsListCmd   `cmd:"" default:"withargs" help:"List calls, newest first."`
	Show   eventsShowCmd   `cmd:"" help:"Show one call with its redacted arguments and result."`
	Verify eventsVerifyCmd `cmd:"" help:"Check the hash chains of all records."`
}

type eventsListCmd struct {
	Tool       string `help:"Only calls of this tool." placeholder:"ID"`
	Principal  string `help:"Only calls of this principal." placeholder:"NAME"`
	Provenance string `name:"run" help:"Only calls that answered with this provenance_run_id." placeholder:"RUN"`
	Chain      string `help:"Only effects, or only looks." enum:",effects,looks" default:"" placeholder:"CHAIN"`
	Failed     bool   `help:"Only calls that were refused or failed."`
	Limit      int    `help:"Maximum number to list (1 to 200)." default:"20"`
	Cursor     string `help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// eventDoc is the part of a ToolCallEvent that a line shows.
type eventDoc struct {
	ToolCallID string `json:"tool_call_id"`
	ToolID     string `json:"tool_id"`
	Transport  string `json:"transport"`
	OK         bool   `json:"ok"`
	Timing     gate.Timing
	Error      *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Run lists calls.
func (c eventsListCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var l app.EventList
		if err := s.call(ctx, "event.list", app.EventListArgs{RunID: c.Provenance, ToolID: c.Tool, Principal: c.Principal, Chain: c.Chain,
			Failed: c.Failed, Cursor: c.Cursor, Limit: c.Limit}, &l); err != nil {
			return err
		}
		return a.show(l, func(w io.Writer) {
			var rows [][]string
			for _, e := range l.Events {
				var d eventDoc
				if json.Unmarshal(e.Event, &d) != nil {
					continue
				}
				how := "ok"
				if d.Error != nil {
					how = d.Error.Code
				}
				rows = append(rows, []string{fmt.Sprintf("%s/%d", e.Chain, e.Seq), e.At.Local().Format(time.DateTime), e.Principal, d.Transport,
					d.ToolID, how, d.ToolCallID})
			}
			table(w, "record|at|principal|by|tool|outcome|call", rows)
			footer(w, len(l.Events), l.Listed, "calls")
			if l.Cursor != nil {
				printNext(w, fault.Do("event.list", "cursor", *l.Cursor))
			}
		})
	})
}

type eventsShowCmd struct {
	ID string `arg:"" name:"call" help:"Id of the call, a UUID."`
}

// Run shows a call.
func (c eventsShowCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var e app.EventStory
		if err := s.call(ctx, "event.show", app.EventShowArgs{ToolCallID: c.ID}, &e); err != nil {
			return err
		}
		return a.show(e, func(w io.Writer) {
			fmt.Fprintf(w, "record     %s/%d\nat         %s\nprincipal  %s\nhash       %s\n", e.Chain, e.Seq, e.At.Local().
				Format(time.RFC3339Nano), e.Principal, e.Hash)
			fmt.Fprintf(w, "event      %s\n", a.printable(string(e.Event)))
			for _, p := range e.Payloads {
				fmt.Fprintf(w, "%-10s %s\n           sha256:%s\n", p.Kind, a.printable(string(p.Payload)), p.SHA256)
			}
		})
	})
}

type eventsVerifyCmd struct{}

// Run verifies.
func (eventsVerifyCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var v app.EventsVerified
		if err := s.call(ctx, "event.verify", struct{}{}, &v); err != nil {
			return err
		}
		return a.show(v, func(w io.Writer) {
			for _, c := range v.Calls {
				fmt.Fprintf(w, "%-8s %d records intact, %d dropped by age; head %s\n", c.Chain, c.Kept, c.Dropped, c.Head)
			}
			fmt.Fprintf(w, "%-8s %d events intact\n", "history", v.History)
		})
	})
}
