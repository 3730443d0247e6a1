package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/site"
)

// openAccess reads from the site file who may call.
func openAccess(ctx context.Context, s *site.Site, l *ledger.Ledger) (*access.Access, error) {
	c, problems := readAccess(s)
	if problems != nil {
		return nil, fault.Invalid("openAccess", "the site file's access section cannot be used", problems...).
			WithNext("find the lines to correct").WithSteps(fault.Do("config check"))
	}
	c.Tokens = l
	a := access.New(c)
	if err := a.Enroll(ctx, l); err != nil {
		return nil, err
	}
	return a, l.CloseNames(ctx)
}

// loadSite reads a site file and checks its access section too.
func loadSite(file string) (*site.Site, error) { return site.Load(file, checkAccess) }

// checkAccess adds the problems of the access section to those of the rest of the site file.
func checkAccess(s *site.Site) []fault.Problem {
	_, problems := readAccess(s)
	return problems
}

func readAccess(s *site.Site) (access.Config, []fault.Problem) {
	c := access.Config{Peers: map[int][]access.Grant{}}
	var problems []fault.Problem
	bad := func(field string, err error) {
		for _, p := range fault.ProblemsOf(err) {
			p.Field = field + "." + p.Field
			problems = append(problems, p)
		}
	}
	for i, p := range s.Access.Peers {
		field := fmt.Sprintf("access.peers[%d]", i)
		uid, err := uidOf(p.User)
		if err != nil {
			problems = append(problems, fault.Problem{Code: "SITE-USER", Field: field + ".user", Rule: "a user of this host", Msg: err.Error()})
		}
		g, err := access.NewGrant(p.Capabilities, p.Projects, accountsOf(p.Accounts))
		bad(field, err)
		c.Peers[uid] = append(c.Peers[uid], g)
	}
	for i, o := range s.Access.OIDC {
		field := fmt.Sprintf("access.oidc[%d]", i)
		if msg := access.CheckIssuerURL(o.Issuer); msg != "" {
			problems = append(problems, fault.Problem{Code: "SITE-ISSUER", Field: field + ".issuer", Rule: "an https URL", Msg: msg})
		}
		for _, a := range o.Algorithms {
			if !slices.Contains(access.Algorithms(), a) {
				problems = append(problems, fault.Problem{Code: "SITE-ALGORITHM", Field: field + ".algorithms",
					Rule: strings.Join(access.Algorithms(), ", "), Msg: "got " + strconv.Quote(a)})
			}
		}
		for _, typ := range o.Types {
			if !slices.Contains(access.Types(), typ) {
				problems = append(problems, fault.Problem{Code: "SITE-TOKEN-TYPE", Field: field + ".types",
					Rule: strings.Join(access.Types(), ", "), Msg: "got " + strconv.Quote(typ)})
			}
		}
		issuer := access.Issuer{URL: o.Issuer, Audience: o.Audience, Algorithms: o.Algorithms, Types: o.Types}
		for k, w := range o.Grants {
			g, err := access.NewGrant(w.Capabilities, w.Projects, accountsOf(w.Accounts))
			bad(fmt.Sprintf("%s.grants[%d]", field, k), err)
			issuer.Grants = append(issuer.Grants, access.ClaimGrant{Claim: w.Claim, Value: w.Value, Grant: g})
		}
		c.Issuers = append(c.Issuers, issuer)
	}
	return c, problems
}

func uidOf(name string) (int, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(u.Uid)
}

func accountsOf(list []site.Account) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.Project] = a.Account
	}
	return out
}

// socketMode lets other users of this host reach the socket if the site names any; the kernel identifies them.
func socketMode(s *site.Site) os.FileMode {
	if len(s.Access.Peers) > 0 {
		return 0o666
	}
	return 0o600
}
