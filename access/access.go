// Package access identifies callers: a user of this host, a bearer token of this gateway, or an access token of an OpenID
// provider. What a caller may do is decided by the gate.
//
// Nouns: principal (see gate), grant (the rights a site gives a principal), token (created here, shown once, stored as a hash), issuer
// (an OpenID provider the site trusts).
package access

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Grant is what the site file or a token gives: rights, and the accounts that jobs charge.
type Grant struct {
	gate.Grant
	Accounts map[string]string // project id or "*" → Slurm account
}

// NewGrant checks a grant as it is configured: known capabilities, projects by name or id, accounts by project name or id.
// It reports every mistake.
func NewGrant(capabilities, projects []string, accounts map[string]string) (Grant, error) {
	g := Grant{Grant: gate.Grant{Capabilities: capabilities}, Accounts: map[string]string{}}
	var problems []fault.Problem
	for _, c := range capabilities {
		if c != gate.All && !slices.Contains(gate.Capabilities(), c) {
			problems = append(problems, fault.Problem{Code: "GRANT-CAPABILITY", Field: "capabilities",
				Rule: "of " + strings.Join(gate.Capabilities(), ", ") + ", or *", Msg: "got " + strconv.Quote(c)})
		}
	}
	project := func(field, name string) string {
		if name == gate.All {
			return name
		}
		if msg := plan.CheckProject(name); msg != "" {
			problems = append(problems, fault.Problem{Code: "GRANT-PROJECT", Field: field, Rule: "a project's name or id, or *", Msg: msg})
		}
		return plan.ProjectOf(name)
	}
	for _, p := range projects {
		g.Projects = append(g.Projects, project("projects", p))
	}
	for p, account := range accounts {
		if !plan.IsSlurmName(account) {
			problems = append(problems, fault.Problem{Code: "GRANT-ACCOUNT", Field: "accounts", Rule: "a Slurm account",
				Msg: "got " + strconv.Quote(account)})
		}
		g.Accounts[project("accounts", p)] = account
	}
	if problems != nil {
		return Grant{}, fault.Invalid("access.NewGrant", "the grant is invalid", problems...)
	}
	return g, nil
}

// Within limits the grant to the rights of its giver, pair by pair, and to its Slurm accounts. If the giver's jobs of a project must charge
// an account, so must the grant's; another account is refused.
func (g Grant) Within(giver gate.Principal) (Grant, error) {
	const op = "access.Within"
	for _, p := range g.Projects {
		if !giver.Sees(p) {
			return g, fault.New(fault.NotFound, op, "project_not_found", "there is no project "+p).WithNext("name your own projects")
		}
		for _, c := range g.Capabilities {
			if !giver.Rights.Can(c, p) {
				return g, fault.New(fault.Capability, op, "capability_denied", fmt.Sprintf("%s cannot grant the capability %s on project %s, "+
					"because it does not have it there", giver.Name, c, p)).WithNext("leave it out")
			}
		}
	}
	accounts := map[string]string{}
	for p, account := range giver.Accounts {
		if p == gate.All || slices.Contains(g.Projects, gate.All) || slices.Contains(g.Projects, p) {
			accounts[p] = account
		}
	}
	for p, account := range g.Accounts {
		if bound := giver.Account(p); bound != "" && bound != account {
			return g, fault.New(fault.Capability, op, "account_denied",
				fmt.Sprintf("jobs of %s in this project must charge the account %s; it cannot grant the account %s", giver.Name, bound, account)).
				WithNext("leave the account out")
		}
		accounts[p] = account
	}
	g.Accounts = accounts
	return g, nil
}

// principal has the rights of every one of the grants. A grant's accounts are for its own projects. Where several grants name an account of
// one project the first one counts, those that allow jobs before others.
func principal(name, method string, grants ...Grant) gate.Principal {
	p := gate.Principal{Name: name, Method: method, Accounts: map[string]string{}}
	for _, jobs := range []bool{true, false} {
		for _, g := range grants {
			if gate.RightsOf(g.Capabilities, []string{gate.All}).Can(gate.CapSlurm, gate.All) == jobs {
				g.charge(p.Accounts)
			}
		}
	}
	for _, g := range grants {
		p.Rights = append(p.Rights, g.Grant)
	}
	return p
}

// charge adds the accounts of the grant's projects that have none yet.
func (g Grant) charge(accounts map[string]string) {
	for project, account := range g.Accounts {
		projects := []string{project}
		if project == gate.All {
			projects = slices.DeleteFunc(slices.Clone(g.Projects), func(id string) bool { return g.Accounts[id] != "" && id != gate.All })
		}
		for _, id := range projects {
			if _, earlier := accounts[id]; !earlier {
				accounts[id] = account
			}
		}
	}
}

// Access identifies the principals of a gateway. It implements gate.Authenticator.
type Access struct {
	peers    map[int]gate.Principal
	sessions sessions
	tokens   gate.Tokens
	issuers  []*issuer
	now      func() time.Time
	ids      identities
	nameOf   func(uid int) (string, error)
	names    map[int]*login // of peers that are not the owner
}

var _ gate.Authenticator = (*Access)(nil)

// Config says who may use a gateway.
type Config struct {
	Peers   map[int][]Grant // by user id; the gateway's own user and root need none
	Tokens  gate.Tokens     // nil: this gateway makes none
	Issuers []Issuer
	Client  *http.Client // asks the issuers for their keys; one of its own when nil
	// NameOf is the login name of a user id; what this host says when nil
	NameOf func(uid int) (string, error)
	Now    func() time.Time // time.Now when nil
}

// New makes an Access.
func New(c Config) *Access {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NameOf == nil {
		c.NameOf = nameOf
	}
	a := &Access{peers: map[int]gate.Principal{}, tokens: c.Tokens, now: c.Now, nameOf: c.NameOf, names: map[int]*login{}}
	for _, i := range c.Issuers {
		a.issuers = append(a.issuers, newIssuer(i, c.Client, c.Now))
	}
	for uid, grants := range c.Peers {
		a.peers[uid] = principal(a.peerName(uid), gate.ByPeer, grants...)
		name, _ := a.nameOf(uid) // "" for an id without a name
		a.names[uid] = &login{name: name, checked: a.now()}
	}
	for _, uid := range []int{os.Geteuid(), 0} {
		a.peers[uid] = gate.Principal{Name: a.peerName(uid), Method: gate.ByPeer, Rights: gate.Everything(), Owner: true}
	}
	return a
}

func (a *Access) peerName(uid int) string { return peerIdentity(uid, a.nameOf).Name }

func nameOf(uid int) (string, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "", err
	}
	return u.Username, nil
}

// Knows reports whether a user of this host may use the gateway.
func (a *Access) Knows(uid int) bool {
	_, ok := a.peers[uid]
	return ok
}

// Peer is the principal of a user of this host.
func (a *Access) Peer(uid int) (gate.Principal, error) {
	p, ok := a.peers[uid]
	if ok && !p.Owner && !a.names[uid].same(a.now(), func() (string, error) { return a.nameOf(uid) }) {
		return gate.Principal{}, fault.New(fault.Auth, "access.Peer", "unauthenticated",
			fmt.Sprintf("user id %d belonged to %s when the gateway started and belongs to %s now", uid, p.Name, a.peerName(uid))).
			WithNext("ask the gateway's administrator to check access.peers of the site file and to restart the gateway")
	}
	if !ok {
		return gate.Principal{}, fault.New(fault.Auth, "access.Peer", "unauthenticated", "this gateway does not know "+a.peerName(uid)).
			WithNext("ask the gateway's administrator for an entry in access.peers of the site file, or for a token")
	}
	return p, nil
}

// Bearer is the principal of an access token.
func (a *Access) Bearer(ctx context.Context, text string) (gate.Principal, error) {
	if isOwn(text) {
		return a.token(ctx, text)
	}
	return a.accessToken(ctx, text)
}

// Issuers lists the OpenID providers whose access tokens are accepted; the protected-resource metadata names them.
func (a *Access) Issuers() []string {
	out := []string{}
	for _, i := range a.issuers {
		out = append(out, i.Issuer.URL)
	}
	return out
}

// unknownToken reveals nothing about tokens that exist.
func unknownToken() error {
	return fault.New(fault.Auth, "access.Bearer", "unauthenticated", "the access token is not valid for this gateway").
		WithNext("ask the gateway's administrator for a token").WithSteps(fault.Do("token.create"))
}
