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
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/nss"
	"slurmgate/plan"
)

// Grant is what the site file or a token grants: rights, and the accounts that jobs charge.
type Grant struct {
	gate.Grant
	Accounts map[string]string // project id or "*" → Slurm account
	Tools    []string          // see [gate.Principal]
}

// NewGrant checks a configured grant: known capabilities, projects by name, id or {user}, accounts by the same. It
// reports all mistakes together.
func NewGrant(capabilities, projects []string, accounts map[string]string) (Grant, error) {
	g := Grant{Grant: gate.Grant{Capabilities: capabilities}, Accounts: map[string]string{}}
	var problems []fault.Problem
	for _, c := range capabilities {
		if c != gate.All && !slices.Contains(gate.Capabilities(), c) {
			problems = append(problems, fault.Problem{Code: "GRANT-CAPABILITY", Field: "capabilities",
				Rule: "one of " + strings.Join(gate.Capabilities(), ", ") + ", or *",
				Msg:  "there is no capability " + strconv.Quote(c)})
		}
	}
	project := func(field, name string) string {
		if name == gate.All {
			return name
		}
		if msg := plan.CheckProjects(name); msg != "" {
			problems = append(problems, fault.Problem{Code: "GRANT-PROJECT", Field: field,
				Rule: "a project's name or id, " + plan.UserProject + " or *", Msg: msg})
		}
		return plan.ProjectOf(name)
	}
	for _, p := range projects {
		g.Projects = append(g.Projects, project("projects", p))
	}
	for p, account := range accounts {
		if !plan.IsSlurmName(account) {
			problems = append(problems, fault.Problem{Code: "GRANT-ACCOUNT", Field: "accounts", Rule: "a Slurm account",
				Msg: strconv.Quote(account) + " cannot be the name of an account"})
		}
		g.Accounts[project("accounts", p)] = account
	}
	if problems != nil {
		return Grant{}, fault.Invalid("the grant is invalid", problems...)
	}
	return g, nil
}

// Within limits the grant to the rights of its giver, pair by pair, and to its Slurm accounts. If the giver's jobs of a project must charge
// an account, so must the grant's; another account is refused.
func (g Grant) Within(giver gate.Principal) (Grant, error) {
	for _, p := range g.Projects {
		if !giver.Sees(p) {
			return g, fault.New(fault.NotFound, "project_not_found", "there is no project "+p).WithNext("name your own projects")
		}
		for _, c := range g.Capabilities {
			if !giver.Rights.Can(c, p) {
				return g, fault.New(fault.Capability, "capability_denied", fmt.Sprintf("%s cannot grant the capability %s on project %s, "+
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
			return g, fault.New(fault.Capability, "account_denied",
				fmt.Sprintf("jobs of %s in this project must charge the account %s; it cannot grant the account %s", giver.Name, bound, account)).
				WithNext("leave the account out")
		}
		accounts[p] = account
	}
	g.Accounts = accounts
	return g, nil
}

// principal returns a principal with the rights of all the grants. A grant's accounts are for its own projects. If
// several grants name an account of one project the first one is used, and grants that allow jobs come before others.
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
		p.Rights, p.Tools = append(p.Rights, g.Grant), append(p.Tools, g.Tools...)
	}
	return p
}

// charge adds the accounts of the grant's projects that have no account yet.
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
	peers    map[int]gate.Principal // those with an entry, and the owner
	grants   map[int][]Grant        // of these entries
	members  *members
	sessions sessions
	tokens   gate.Tokens
	issuers  []*issuer
	now      func() time.Time
	ids      identities
	nameOf   func(uid int) (string, error)
	names    map[int]*login // of peers except the owner
	unnamed  error          // the error of the first name look-up that failed at the start
	projects gate.UserProjects
	users    *UnixUsers // looks up the users that tokens and claims name
}

var _ gate.Authenticator = (*Access)(nil)

// Config configures who may use a gateway.
type Config struct {
	Peers  map[int][]Grant // by user id; the gateway's own user and root need none
	Groups []GroupGrant    // for users of this host too
	// Directory finds members of groups and user ids; nil: this host's getent and id
	Directory Accounts
	Projects  gate.UserProjects // nil: no grant names {user}
	Tokens    gate.Tokens       // nil: this gateway creates none
	Issuers   []Issuer
	Client    *http.Client // fetches the issuers' keys; nil: a default client
	// NameOf returns the login name of a user id; nil: this host's user database
	NameOf func(uid int) (string, error)
	Now    func() time.Time // time.Now when nil
}

// New returns the Access of a configuration.
func New(c Config) *Access {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Directory == nil {
		c.Directory = nss.Host{}
	}
	if c.NameOf == nil {
		c.NameOf = func(uid int) (string, error) { return c.Directory.NameOf(context.Background(), uid) }
	}
	a := &Access{peers: map[int]gate.Principal{}, grants: c.Peers, tokens: c.Tokens, now: c.Now, nameOf: c.NameOf, names: map[int]*login{},
		members: newMembers(c.Directory, c.Now, c.Groups), projects: c.Projects, users: NewUnixUsers(c.Directory, os.Geteuid(), c.Now)}
	for _, i := range c.Issuers {
		a.issuers = append(a.issuers, newIssuer(i, c.Client, c.Now))
	}
	for uid, grants := range c.Peers {
		name := a.nameAtStart(uid)
		a.peers[uid] = peerWith(uid, name, identityOf(uid, name).Name, grants...)
		a.names[uid] = &login{name: name, checked: a.now()}
	}
	for _, uid := range []int{os.Geteuid(), 0} {
		name := a.nameAtStart(uid)
		a.peers[uid] = gate.Principal{Name: identityOf(uid, name).Name, Method: gate.ByPeer, Rights: gate.Everything(), Owner: true}
		a.names[uid] = &login{name: name, checked: a.now()}
	}
	return a
}

// peerWith returns the principal of a user of this host other than the gateway's own: jobs run as that user.
func peerWith(uid int, login, called string, grants ...Grant) gate.Principal {
	p := principal(called, gate.ByPeer, grants...)
	p.UnixUser, p.PeerUID = login, uid
	return p
}

// nameAtStart returns the name of a user id, "" for one without a name. [Access.Enroll] returns the error of a
// look-up that failed.
func (a *Access) nameAtStart(uid int) string {
	if l := a.names[uid]; l != nil {
		return l.name
	}
	name, err := a.nameOf(uid)
	if err != nil && !fault.Is(err, fault.NotFound) && a.unnamed == nil {
		a.unnamed = err
	}
	return name
}

// Knows reports whether a user of this host may connect: it has an entry, or may have one through a group, which
// [Access.Admit] checks. Knows never waits.
func (a *Access) Knows(uid int) bool {
	_, ok := a.peers[uid]
	return ok || !a.members.excludes(uid)
}

// Admit returns nil for a user of this host who may use the gateway. It may wait for the directory service.
func (a *Access) Admit(ctx context.Context, uid int) error {
	if _, ok := a.peers[uid]; ok {
		return nil
	}
	_, err := a.grantedTo(ctx, uid)
	return err
}

// Peer returns the principal of a user of this host.
func (a *Access) Peer(uid int) (gate.Principal, error) { return a.peer(context.Background(), uid) }

func (a *Access) peer(ctx context.Context, uid int) (gate.Principal, error) {
	p, err := a.grantedTo(ctx, uid)
	if err != nil {
		return p, err
	}
	return a.withUserProject(ctx, p, uid)
}

// grantedTo returns the principal of a user of this host with the grants of the site file.
func (a *Access) grantedTo(ctx context.Context, uid int) (gate.Principal, error) {
	p, ok := a.peers[uid]
	switch {
	case p.Owner:
		return p, nil
	case ok && !a.names[uid].same(a.now(), func() (string, error) { return a.nameOf(uid) }):
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated",
			fmt.Sprintf("user id %d belonged to %s when the gateway started and belongs to another user now", uid, p.Name)).
			WithNext("ask the gateway's administrator to check access.peers of the site file and to restart the gateway")
	case len(a.members.grants) > 0:
		var err error
		if p, err = a.members.principal(ctx, uid, a.peerOf(uid)); !fault.Is(err, fault.NotFound) {
			return p, err
		}
	case ok:
		return p, nil
	}
	return gate.Principal{}, Stranger(uid)
}

// Stranger returns the error for a user of this host without a grant.
func Stranger(uid int) error {
	return fault.New(fault.Auth, "unauthenticated",
		fmt.Sprintf("this gateway does not know user id %d, neither the user nor one of its groups", uid)).
		WithNext("ask the gateway's administrator for an entry in access.peers of the site file, or for a token")
}

// Bearer returns the principal of an access token.
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

// unknownToken returns an error that reveals nothing about tokens that exist.
func unknownToken() error {
	return fault.New(fault.Auth, "unauthenticated", "the access token is not valid for this gateway").
		WithNext("ask the gateway's administrator for a token").WithSteps(fault.Do("token.create"))
}
