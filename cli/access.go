package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
)

// Token are the verbs on bearer tokens.
type Token struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token. It is printed only once; the gateway stores only its hash."`
	List   tokenListCmd   `cmd:"" default:"withargs" help:"List the tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke a token permanently, effective immediately."`
}

type tokenCreateCmd struct {
	Name       string            `arg:"" help:"Name for lists and records, e.g. lab-assistant. Each token is a principal of its own, also beside others of the same name."`
	Capability []string          `help:"Capabilities: gateway, read, import, slurm, operate, approve, admin, metrics, or *." default:"gateway,read" placeholder:"NAME,…"`
	Project    []string          `help:"Projects it can see: names or ids, or *. Default: the caller's default project." placeholder:"NAME,…"`
	Account    map[string]string `help:"Slurm account that jobs of a project charge." mapsep:"," placeholder:"PROJECT=ACCOUNT"`
	UnixUser   string            `help:"User of the cluster whom the token's jobs run as where slurm.run_as is caller. Default: none, so that it cannot start jobs there." placeholder:"USER"`
	Tool       []string          `help:"Tools that its chats list first; no right." placeholder:"ID,…"`
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

type tokenListCmd struct{}

// Run lists tokens.
func (tokenListCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "token.list", nothing, func(w io.Writer, l app.TokenList) {
		if len(l.Tokens) == 0 {
			fmt.Fprintln(w, "no tokens")
			printNext(w, fault.Do("token.create"))
			return
		}
		list(w, "token|name|state|capabilities|projects|unix user|expires|made by", l.Tokens, func(t app.TokenDoc) []string {
			return []string{t.TokenID, t.Name, t.State, strings.Join(t.Capabilities, ","), strings.Join(t.Projects, ","),
				cmp.Or(t.UnixUser, "-"), t.ExpiresAt.Local().Format("2006-01-02 15:04"), t.CreatedBy}
		})
		footer(w, len(l.Tokens), exactly(l.Total), "tokens")
	})
}

type tokenRevokeCmd struct {
	TokenID     string `arg:"" name:"token" help:"Token id, tok_… (not the token itself)."`
	Descendants bool   `help:"Also revoke the tokens that were created with it, directly or through other tokens."`
}

// Run revokes a token.
func (c tokenRevokeCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "token.revoke", app.TokenRevokeArgs{TokenID: c.TokenID, Descendants: c.Descendants},
		func(w io.Writer, t app.TokenRevoked) {
			fmt.Fprintf(w, "%s  %s  %s\n", t.TokenID, t.Name, t.State)
			for _, id := range t.Descendants {
				fmt.Fprintf(w, "%s  created with it, %s\n", id, map[bool]string{true: "revoked too", false: "still valid"}[c.Descendants])
			}
		})
}

// Approvals is the verb that lists approvals.
type Approvals struct {
	All bool `help:"Also list those answered or expired."`
}

// Run lists approvals.
func (c Approvals) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "approval.list", app.ApprovalListArgs{All: c.All}, func(w io.Writer, l app.ApprovalList) {
		for _, p := range l.Approvals {
			printApproval(w, p)
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
}

// printApproval shows all that an approval is bound to.
func printApproval(w io.Writer, p gate.Approval) {
	fmt.Fprintf(w, "%s  %s  %s requests %s %s\n  requested %s, expires %s, uses left %d\n", p.ID, p.Status, p.Principal, p.ToolID,
		p.ToolVersion, dateTime(p.RequestedAt), dateTime(p.ExpiresAt), p.UsesLeft)
	line := func(name, text string) { fmt.Fprintf(w, "  %-10s %s\n", name, text) }
	if p.PrincipalID == "" {
		line("void", "it is older than this version of slurmgate and does not say what it covers")
		return
	}
	by := p.Principal + " (" + p.PrincipalID + ")"
	if p.MadeBy != nil {
		by += ", a token made by " + *p.MadeBy
	}
	line("asked by", by)
	c := p.Covers
	if c.ExecutedAs != "" {
		line("runs as", "the Unix user "+c.ExecutedAs)
	}
	line("project", cmp.Or(c.ProjectID, "none: the call concerns the whole site"))
	if c.Resources != nil {
		var where []string
		for _, x := range [][2]string{{"site", c.Site}, {"partition", c.Partition}, {"account", c.Account}, {"QOS", c.QOS},
			{"constraint", c.Constraint}} {
			if x[1] != "" {
				where = append(where, x[0]+" "+x[1])
			}
		}
		line("job", strings.Join(where, ", "))
		line("image", strings.TrimSpace(c.Image+" "+c.ImageDigest))
		gpus := ""
		if c.Resources.GPUs != nil {
			gpus = fmt.Sprintf(", %d GPUs", *c.Resources.GPUs)
		}
		line("resources", fmt.Sprintf("%d CPUs, %d MiB%s, %s", c.Resources.CPUs, c.Resources.MemMB, gpus,
			time.Duration(c.Resources.TimeLimitSeconds)*time.Second))
	}
	for _, name := range slices.Sorted(maps.Keys(c.References)) {
		line("reference", name+" is "+c.References[name])
	}
	line("contract", c.ContractVersion)
	line("arguments", clipLine(string(p.Payload), 400))
	if p.Replaces != nil {
		line("replaces", *p.Replaces+", which covered something else and is void")
	}
}

// Approve is the verb that approves a call.
type Approve struct {
	ID      string        `arg:"" name:"approval" help:"Approval id, apr_…"`
	Uses    int           `help:"Number of calls with exactly these arguments that it allows (1 to 1000)." default:"1"`
	Expires time.Duration `help:"How long it is valid. Default: set by policy." placeholder:"DURATION"`
	Reason  string        `help:"Reason, for the record." placeholder:"TEXT"`
}

// Run approves.
func (c Approve) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "approval.answer", app.ApprovalAnswerArgs{ApprovalID: c.ID, Approve: true, Uses: c.Uses,
		ExpiresInSeconds: int64(c.Expires / time.Second), Reason: c.Reason}, printAnswered)
}

// Deny is the verb that denies a call.
type Deny struct {
	ID     string `arg:"" name:"approval" help:"Approval id, apr_…"`
	Reason string `help:"Reason; the caller sees it." placeholder:"TEXT"`
}

// Run denies.
func (c Deny) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "approval.answer", app.ApprovalAnswerArgs{ApprovalID: c.ID, Reason: c.Reason}, printAnswered)
}

func printAnswered(w io.Writer, p gate.Approval) {
	fmt.Fprintf(w, "%s  %s\n", p.ID, p.Status)
	if p.Status == gate.Approved {
		often := "once"
		if p.UsesLeft != 1 {
			often = fmt.Sprint(p.UsesLeft, " times")
		}
		fmt.Fprintf(w, "%s may make this call of %s %s until %s\n", p.Principal, p.ToolID, often, dateTime(p.ExpiresAt))
	}
}

// Events are the verbs on the records of calls.
type Events struct {
	List   eventsListCmd   `cmd:"" default:"withargs" help:"List calls, newest first."`
	Show   eventsShowCmd   `cmd:"" help:"Show one call with its redacted arguments and result."`
	Verify eventsVerifyCmd `cmd:"" help:"Check the hash chains of all records."`
}

type eventsListCmd struct {
	Tool      string `help:"Only calls of this tool." placeholder:"ID"`
	Principal string `help:"Only calls of this principal: its name (user:alice, token:ci), its id, a login name, or me." placeholder:"NAME"`
	About     string `name:"run" ids:"run" help:"Only calls about this run: that made it, asked for it, looked at it or changed it; or that answered with it as provenance_run_id." placeholder:"RUN"`
	Since     string `help:"Only calls since this time: 2026-11-21, 2026-11-21T08:00:00Z, or how long ago: 90m, 12h, 7d." placeholder:"TIME"`
	Until     string `help:"Only calls before this time, in the same format." placeholder:"TIME"`
	Face      string `help:"Only calls that came by this interface: shell, socket (other programs of this host), http or mcp." enum:",shell,socket,http,mcp" default:"" placeholder:"FACE"`
	Address   string `help:"Only calls from this client address." placeholder:"ADDRESS"`
	Chain     string `help:"Only effects, only looks, or only refused calls." enum:",effects,looks,refused" default:"" placeholder:"CHAIN"`
	Outcome   string `help:"Only calls with this outcome: the code of their error, such as unauthenticated." placeholder:"CODE"`
	Failed    bool   `help:"Only calls that were refused or failed."`
	Limit     int    `help:"Maximum number to list (1 to 200)." default:"20"`
	Cursor    string `help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// Run lists calls.
func (c eventsListCmd) Run(ctx context.Context, a *Shell) error {
	args := app.EventListArgs{Run: c.About, ToolID: c.Tool, Principal: c.Principal, Chain: c.Chain, Face: gate.Face(c.Face),
		Address: c.Address,
		Outcome: c.Outcome, Failed: c.Failed, Cursor: c.Cursor, Limit: c.Limit}
	var err error
	if args.Since, err = when("--since", c.Since, time.Now()); err != nil {
		return err
	}
	if args.Until, err = when("--until", c.Until, time.Now()); err != nil {
		return err
	}
	return ask(ctx, a, "event.list", args, func(w io.Writer, l app.EventList) {
		list(w, "record|at|calls|principal|by|from|tool|outcome|call", l.Events, func(e app.CallEvent) []string {
			var d struct {
				ToolCallID string                `json:"tool_call_id"`
				ToolID     string                `json:"tool_id"`
				Error      struct{ Code string } `json:"error"`
			}
			if json.Unmarshal(e.Event, &d) != nil {
				return nil
			}
			return []string{e.Name(), dateTime(e.At), fmt.Sprint(e.Count), e.Principal, nameOr(e.Face), nameOr(e.Address),
				d.ToolID,
				cmp.Or(d.Error.Code, "ok"), d.ToolCallID}
		})
		footer(w, len(l.Events), l.Listed, "calls")
		nextPage(w, l.Cursor, fault.Do("event.list", "cursor", text(l.Cursor)))
	})
}

type eventsShowCmd struct {
	ID string `arg:"" name:"call" help:"Id of the call, a UUID, or its record, such as looks/12."`
}

// Run shows a call.
func (c eventsShowCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "event.show", app.EventShowArgs{ToolCallID: c.ID}, func(w io.Writer, e app.EventStory) {
		fmt.Fprintf(w, "record     %s\nat         %s\nprincipal  %s\nby         %s\nfrom       %s\nhash       %s\n", e.Name(),
			e.At.Local().Format(time.RFC3339Nano), e.Principal, nameOr(e.Face), nameOr(e.Address), e.Hash)
		if e.Count > 1 {
			fmt.Fprintf(w, "calls      %d refused ones; the event is that of the last\n", e.Count)
		}
		if len(e.Others) > 0 {
			fmt.Fprintf(w, "others     %s: calls made later with the same id\n", strings.Join(e.Others, " "))
		}
		fmt.Fprintf(w, "event      %s\n", e.Event)
		for _, p := range e.Payloads {
			fmt.Fprintf(w, "%-10s %s\n           sha256:%s\n", p.Kind, string(p.Payload), p.SHA256)
		}
	})
}

type eventsVerifyCmd struct{}

// Run verifies.
func (eventsVerifyCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "event.verify", nothing, func(w io.Writer, v app.EventsVerified) {
		for _, c := range v.Calls {
			fmt.Fprintf(w, "%-8s %d records intact, %d dropped by age; head %s\n", c.Chain, c.Kept, c.Dropped, c.Head)
		}
		fmt.Fprintf(w, "%-8s %d events intact\n", "history", v.History)
		for _, e := range v.Erased {
			fmt.Fprintf(w, "%-8s %d records as %s left them, by %s on %s (%s)\n", "erased", e.Records, e.ID, e.Principal, dateTime(e.At),
				e.Reason)
		}
	})
}
