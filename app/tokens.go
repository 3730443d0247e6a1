package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// TokenDoc is a bearer token without its secret.
type TokenDoc struct {
	TokenID      string            `json:"token_id"`
	Name         string            `json:"name"`
	Principal    string            `json:"principal"` // name
	PrincipalID  string            `json:"principal_id"`
	Capabilities []string          `json:"capabilities"`
	Projects     []string          `json:"projects"`
	Accounts     map[string]string `json:"accounts"`
	Tools        []string          `json:"tools"`     // listed first in its chats
	UnixUser     string            `json:"unix_user"` // user of its jobs where slurm.run_as is caller; empty: the token starts none there
	State        string            `json:"state"`     // valid, expired, revoked
	CreatedBy    string            `json:"created_by"`
	CreatedAt    time.Time         `json:"created_at"`
	ExpiresAt    time.Time         `json:"expires_at"`
	RevokedAt    *time.Time        `json:"revoked_at"`
	RevokedBy    *string           `json:"revoked_by"`
}

func tokenDocOf(t gate.Token, state string) TokenDoc {
	return TokenDoc{t.ID, t.Name, access.TokenPrincipal(t.Name), t.PrincipalID, t.Capabilities, t.Projects, t.Accounts,
		append([]string{}, t.Tools...), t.UnixUser, state,
		t.CreatedBy, t.CreatedAt, t.ExpiresAt, t.RevokedAt, t.RevokedBy}
}

// TokenCreateArgs are the arguments of token.create.
type TokenCreateArgs struct {
	Name             string            `json:"name" pattern:"^[a-z0-9][a-z0-9._-]{0,63}$"`
	Capabilities     []string          `json:"capabilities" count:"1-64" min:"1" max:"128"`
	Projects         []string          `json:"projects" count:"1-64" min:"1" max:"128"` // {user}: the Unix user's own project
	Accounts         map[string]string `json:"accounts,omitzero" count:"-64" pattern:"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$"`
	UnixUser         string            `json:"unix_user,omitzero" min:"1" max:"256" about:"whom its jobs run as (run_as: caller)"`
	Tools            []string          `json:"tools,omitzero" count:"-64" max:"128" pattern:"^[a-z0-9_]+(\\.[a-z0-9_]+)+$" about:"ids of tools that its chats list first"`
	ExpiresInSeconds int64             `json:"expires_in_seconds" min:"60" max:"31622400"`
}

// TokenAnswer is an answer about one token.
type TokenAnswer struct {
	tokensAsked
	TokenDoc
}

// TokenCreated is the answer of token.create.
type TokenCreated struct {
	TokenAnswer
	Token string `json:"token"`         // only in this answer; "[redacted]" in the answer to a repeated call
	Note  string `json:"note,omitzero"` // of a repeated call: see [gate.Tool.Reveals]
}

// tokensAsked is the first part of an answer about tokens.
type tokensAsked struct {
	CallRunID
	Snapshot *ledger.TokenSnapshot `json:"snapshot"` // null for an answer about one token, which needs none
}

// TokenRevokeArgs are the arguments of token.revoke.
type TokenRevokeArgs struct {
	TokenID     string `json:"token_id" pattern:"^tok_[A-Z2-7]{16}$" arg:"" name:"token" help:"Token id, tok_… (not the token itself)."`
	Descendants bool   `json:"descendants,omitzero" about:"revoke the tokens created with it too, directly or through other tokens" help:"Also revoke the tokens that were created with it, directly or through other tokens."`
}

// TokenRevoked is the answer of token.revoke.
type TokenRevoked struct {
	TokenAnswer
	Descendants []string `json:"descendants"` // ids of the valid tokens created with it; revoked too if the call asked for that
}

// TokenList is the answer of token.list.
type TokenList struct {
	tokensAsked
	Total  int64      `json:"total"`
	Tokens []TokenDoc `json:"tokens"`
}

const maxTokenSeconds = 366 * 24 * 3600

// tokens returns the operations on bearer tokens.
func (g *Gateway) tokens() []Operation {
	return []Operation{{
		ID: "token.create", Title: "Create a token", Verb: "token create",
		Description: "Creates a bearer token for a program or a person with the given capabilities, projects and lifetime. The token itself " +
			"is returned only once; the gateway stores only its hash.",
		Effect: gate.Write, Repeat: gate.NonIdempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Reveals: []string{"token"},
		Does:    withProvenance(g, g.createToken),
	}, {
		ID: "token.list", Title: "List tokens", Verb: "token list",
		Description: "Lists the bearer tokens of this gateway, without their secrets.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.listTokens),
	}, {
		ID: "token.revoke", Title: "Revoke a token", Verb: "token revoke",
		Description: "Revokes a bearer token permanently, effective immediately. Tokens that were created with it stay valid and are listed; " +
			"with descendants=true they are revoked too.",
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.revokeToken),
	}}
}

func (g *Gateway) listTokens(ctx context.Context, c gate.Call, _ struct{}) (out TokenList, err error) {
	list, snapshot, err := g.Ledger.Tokens(ctx)
	out = TokenList{tokensAsked: tokensAsked{Snapshot: &snapshot}, Total: snapshot.Tokens, Tokens: []TokenDoc{}}
	for _, t := range list {
		out.Tokens = append(out.Tokens, tokenDocOf(t, snapshot.State(t)))
	}
	return out, err
}

func (g *Gateway) revokeToken(ctx context.Context, c gate.Call, a TokenRevokeArgs) (out TokenRevoked, err error) {
	t, created, err := g.Ledger.RevokeToken(ctx, a.TokenID, c.Caller.Name, a.Descendants)
	if err != nil {
		return out, err
	}
	out.TokenDoc, out.Descendants = tokenDocOf(t, "revoked"), []string{}
	ended := []gate.Token{t}
	if a.Descendants {
		ended = append(ended, created...)
	}
	for _, t := range created {
		out.Descendants = append(out.Descendants, t.ID)
	}
	for _, t := range ended {
		if g.Revoked != nil {
			g.Revoked(gate.Principal{ID: t.PrincipalID, Name: access.TokenPrincipal(t.Name), UnixUser: t.UnixUser})
		}
	}
	return out, err
}

// checkTokenUser refuses a Unix user who could run no job. Where jobs run as the gateway's user on every cluster, any
// name is valid.
func (g *Gateway) checkTokenUser(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	if msg := access.CheckUnixUser(name); msg != "" {
		return fault.Invalid("the token cannot be created", fault.Problem{Code: "TOKEN-UNIX-USER", Field: "unix_user",
			Rule: "the name of a Unix user", Msg: msg})
	}
	var refused error
	for _, s := range g.Site.Clusters() {
		user, err := g.unixUser(ctx, s.Name, gate.Principal{Method: gate.ByToken, UnixUser: name})
		if user != "" {
			return nil
		}
		refused = cmp.Or(refused, err)
	}
	return refused
}

// createToken grants no more than its caller has, and for no longer.
func (g *Gateway) createToken(ctx context.Context, c gate.Call, a TokenCreateArgs) (out TokenCreated, err error) {
	grant, err := access.NewGrant(a.Capabilities, a.Projects, a.Accounts)
	if err != nil {
		return out, err
	}
	named := grant.Projects // with {user}, whose project is resolved at each call
	if grant, err = g.userGrant(ctx, c, grant, a.UnixUser); err == nil {
		grant, err = grant.Within(c.Caller.Principal)
	}
	if err != nil {
		return out, err
	}
	grant.Projects = named
	expires := time.Now().Add(time.Duration(min(a.ExpiresInSeconds, maxTokenSeconds)) * time.Second)
	if end := c.Caller.Expires; !end.IsZero() && expires.After(end) {
		return out, fault.New(fault.Capability, "lifetime_denied",
			"the token would outlive the credentials of "+c.Caller.Name+
				", which end at "+end.UTC().Format(time.RFC3339)).
			WithNext(fmt.Sprintf("ask for at most %d seconds (expires_in_seconds)", max(0, int64(time.Until(end)/time.Second))))
	}
	if err := g.checkTokenUser(ctx, a.UnixUser); err != nil {
		return out, err
	}
	t, text := access.NewToken(a.Name, grant, c.Caller.Principal, expires)
	t.UnixUser, t.Tools = a.UnixUser, a.Tools
	if err := g.Ledger.AddToken(ctx, t); err != nil {
		return out, err
	}
	stored, err := g.Ledger.Token(ctx, t.ID)
	out.TokenDoc, out.Token = tokenDocOf(stored, "valid"), text
	return out, err
}
