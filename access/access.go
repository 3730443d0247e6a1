// Package access says who a caller is: a user of this host, a bearer token of this gateway, or an access token of an OpenID
// provider. What a caller may do beyond being known is the gate's to decide.
//
// Nouns: principal (see gate), grant (what a site gives to a principal), token (made here, shown once, kept as a hash), issuer
// (an OpenID provider the site trusts).
package access

import (
	"context"
	"os"
	"os/user"
	"strconv"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Grant is what a site gives to somebody.
type Grant struct {
	Capabilities []string
	Projects     []string          // project ids, or "*"
	Accounts     map[string]string // project id or "*" → Slurm account
}

// Everything is the grant of the gateway's own user.
func Everything() Grant {
	return Grant{Capabilities: []string{gate.All}, Projects: []string{gate.All}}
}

// principal makes a principal of the grant.
func (g Grant) principal(name, method string) gate.Principal {
	return gate.Principal{Name: name, Method: method, Capabilities: g.Capabilities, Projects: g.Projects, Accounts: g.Accounts}
}

// Access knows all principals of a gateway. It implements gate.Authenticator.
type Access struct {
	peers map[int]gate.Principal
}

var _ gate.Authenticator = (*Access)(nil)

// Config is what a site says about who may come in.
type Config struct {
	Peers map[int]Grant // by user id; the gateway's own user and root need none
}

// New makes an Access.
func New(c Config) *Access {
	a := &Access{peers: map[int]gate.Principal{}}
	for uid, g := range c.Peers {
		a.peers[uid] = g.principal(peerName(uid), gate.ByPeer)
	}
	for _, uid := range []int{os.Geteuid(), 0} {
		a.peers[uid] = Everything().principal(peerName(uid), gate.ByPeer)
	}
	return a
}

// peerName is user:NAME, or user:#UID for an id without a name.
func peerName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return "user:" + u.Username
	}
	return "user:#" + strconv.Itoa(uid)
}

// Peer is the principal of a user of this host.
func (a *Access) Peer(uid int) (gate.Principal, error) {
	p, ok := a.peers[uid]
	if !ok {
		return gate.Principal{}, fault.New(fault.Auth, "access.Peer", "unauthenticated", "this gateway does not know "+peerName(uid)).
			WithNext("ask the gateway's administrator for an entry in access.peers of the site file, or for a token")
	}
	return p, nil
}

// Bearer is the principal of an access token.
func (a *Access) Bearer(_ context.Context, _ string) (gate.Principal, error) {
	return gate.Principal{}, unknownToken()
}

// unknownToken says no more than that: a caller learns nothing about tokens that exist.
func unknownToken() error {
	return fault.New(fault.Auth, "access.Bearer", "unauthenticated", "the access token is not valid here").WithNext("ask the gateway's administrator for a token (slurmgate token create)")
}
