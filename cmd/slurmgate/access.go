package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/nss"
	"slurmgate/site"
)

// openAccess reads from the site file who may call.
func openAccess(ctx context.Context, s *site.Site, l *ledger.Ledger) (*access.Access, error) {
	c, problems, err := readAccess(ctx, s)
	if err != nil {
		return nil, err
	}
	if problems != nil {
		return nil, fault.Invalid("the site file's access section cannot be used", problems...).
			WithNext("find the lines to correct").WithSteps(fault.Do("config check"))
	}
	c.Tokens, c.Projects = l, l
	a := access.New(c)
	if err := a.Enroll(ctx, l); err != nil {
		return nil, err
	}
	return a, nil
}

// loadSite reads a site file and checks its access section too. If the directory of users and groups does not answer, the error is
// retryable: the file may be right.
func loadSite(file string) (*site.Site, error) {
	var unknown error
	s, err := site.Load(file, func(s *site.Site) (problems []fault.Problem) {
		_, problems, unknown = readAccess(context.Background(), s)
		return problems
	})
	if err == nil && unknown != nil {
		return nil, unknown
	}
	return s, err
}

// readAccess reads the access section. The error reports that users or groups could not be looked up.
func readAccess(ctx context.Context, s *site.Site) (access.Config, []fault.Problem, error) {
	c := access.Config{Peers: map[int][]access.Grant{}}
	var problems []fault.Problem
	bad := func(field string, err error) {
		for _, p := range fault.ProblemsOf(err) {
			p.Field = field + "." + p.Field
			problems = append(problems, p)
		}
	}
	users, unknown := usersOf(ctx, s.Access.Peers)
	for i, p := range s.Access.Peers {
		field := fmt.Sprintf("access.peers[%d]", i)
		g, err := access.NewGrant(p.Capabilities, p.Projects, accountsOf(p.Accounts))
		g.Tools = p.Tools
		bad(field, err)
		if unknown != nil {
			continue // each further look-up could take its whole time limit
		}
		if p.Group != "" {
			gid, err := nss.Host{}.GroupID(ctx, p.Group)
			if missing(err) {
				problems = append(problems, fault.Problem{Code: "SITE-GROUP", Field: field + ".group", Rule: "a Unix group of this host",
					Msg: fault.First(err)})
			} else {
				unknown = err
			}
			c.Groups = append(c.Groups, access.GroupGrant{Group: p.Group, GID: gid, Grant: g})
			continue
		}
		u, err := users(p.User)
		if missing(err) {
			problems = append(problems, fault.Problem{Code: "SITE-USER", Field: field + ".user", Rule: "a user of this host", Msg: fault.First(err)})
		} else {
			unknown = err
		}
		c.Peers[u.UID] = append(c.Peers[u.UID], g)
	}
	for i, o := range s.Access.OIDC {
		field := fmt.Sprintf("access.oidc[%d]", i)
		if msg := access.CheckIssuerURL(o.Issuer); msg != "" {
			problems = append(problems, fault.Problem{Code: "SITE-ISSUER", Field: field + ".issuer", Rule: "an https URL", Msg: msg})
		}
		for _, a := range o.Algorithms {
			if !slices.Contains(access.Algorithms(), a) {
				problems = append(problems, fault.Problem{Code: "SITE-ALGORITHM", Field: field + ".algorithms",
					Rule: strings.Join(access.Algorithms(), ", "), Msg: strconv.Quote(a) + " is not supported"})
			}
		}
		for _, typ := range o.Types {
			if !slices.Contains(access.Types(), typ) {
				problems = append(problems, fault.Problem{Code: "SITE-TOKEN-TYPE", Field: field + ".types",
					Rule: strings.Join(access.Types(), ", "), Msg: strconv.Quote(typ) + " is not supported"})
			}
		}
		issuer := access.Issuer{URL: o.Issuer, Audience: o.Audience, Algorithms: o.Algorithms, Types: o.Types}
		for k, w := range o.Grants {
			g, err := access.NewGrant(w.Capabilities, w.Projects, accountsOf(w.Accounts))
			g.Tools = w.Tools
			bad(fmt.Sprintf("%s.grants[%d]", field, k), err)
			issuer.Grants = append(issuer.Grants, access.ClaimGrant{Claim: w.Claim, Value: w.Value, Grant: g})
		}
		if o.UnixUser != nil {
			users, err := claimUsers(*o.UnixUser)
			issuer.UnixUsers = access.ClaimUsers{Claim: o.UnixUser.Claim, Users: users}
			bad(field+".unix_user", err)
		}
		c.Issuers = append(c.Issuers, issuer)
	}
	return c, problems, unknown
}

// unixUserOf returns [app.Gateway.UnixUser] for a site file; nil where no cluster runs jobs as their callers.
func unixUserOf(s *site.Site) func(context.Context, string, gate.Principal) (string, error) {
	if !slices.ContainsFunc(s.Clusters(), func(c *site.Site) bool { return c.Slurm.Caller != nil }) {
		return nil
	}
	users := access.NewUnixUsers(nil, os.Geteuid(), time.Now)
	return func(ctx context.Context, name string, p gate.Principal) (string, error) {
		cluster := s.Cluster(name)
		if cluster == nil || cluster.Slurm.Caller == nil {
			return "", nil
		}
		c := cluster.Slurm.Caller
		return users.Of(ctx, p, access.UnixRules{MinUID: c.MinUID, MaxUID: c.MaxUID, RefuseUsers: c.RefuseUsers, RefuseGroups: c.RefuseGroups})
	}
}

// revoked ends the requests of a revoked token, and the checks of its Unix user.
func (g *gateway) revoked(p gate.Principal) {
	g.access.Revoked(p)
	if p.UnixUser != "" {
		g.sites.Revoked(p.UnixUser)
	}
}

// claimUsers returns the table of a provider's Unix users. A name is looked up only when its user acts.
func claimUsers(u site.ClaimUsers) (map[string]string, error) {
	users, err := u.All()
	if err != nil {
		return nil, err
	}
	var problems []fault.Problem
	for _, value := range slices.Sorted(maps.Keys(users)) {
		if msg := access.CheckUnixUser(users[value]); value == "" || msg != "" {
			problems = append(problems, fault.Problem{Code: "SITE-USER", Field: "users." + fault.Clip(value),
				Rule: "a value of the claim and a Unix user", Msg: cmp.Or(msg, "the value of the claim is empty")})
		}
	}
	if problems != nil {
		return nil, fault.Invalid("the table of Unix users cannot be used", problems...)
	}
	return users, nil
}

// usersOf looks up all users of the entries in one call; one whose name the directory spells in another way is looked
// up again by itself.
func usersOf(ctx context.Context, peers []site.Peer) (func(name string) (nss.User, error), error) {
	var names []string
	for _, p := range peers {
		if p.User != "" && nss.CheckName(p.User) == "" {
			names = append(names, p.User)
		}
	}
	found, err := nss.Host{}.Users(ctx, names...)
	return func(name string) (nss.User, error) {
		if u, ok := found[name]; ok {
			return u, nil
		}
		return nss.Host{}.User(ctx, name)
	}, err
}

// missing reports whether a name is wrong, and not merely unknown at the moment.
func missing(err error) bool { return fault.Is(err, fault.NotFound) || fault.Is(err, fault.Validation) }

func accountsOf(list []site.Account) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.Project] = a.Account
	}
	return out
}

// socketMode opens the socket to other users of this host if the site names any; the kernel identifies them.
func socketMode(s *site.Site) os.FileMode {
	if len(s.Access.Peers) > 0 {
		return 0o666
	}
	return 0o600
}
