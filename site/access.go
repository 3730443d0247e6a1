package site

import (
	"fmt"

	"slurmgate/nss"
	"slurmgate/plan"
)

// Access says who may use the gateway besides the user it runs as and root. Package access checks what it grants.
type Access struct {
	Peers []Peer `yaml:"peers"` // users of this host, through the socket; with any, every user reaches it
	OIDC  []OIDC `yaml:"oidc"`  // OpenID providers whose access tokens are accepted
}

// Peer gives a user of this host, or every member of a Unix group, its capabilities on its projects. A user with several entries has what
// each gives; where two name an account of one project, the first one counts, those of the user before those of groups.
type Peer struct {
	User         string    `yaml:"user"`         // login name; either this or group
	Group        string    `yaml:"group"`        // name of a Unix group
	Capabilities []string  `yaml:"capabilities"` // gateway, read, import, slurm, operate, admin, approve, metrics, or *
	Projects     []string  `yaml:"projects"`     // names or ids, or *
	Accounts     []Account `yaml:"accounts"`     // Slurm accounts of the projects' jobs
}

// Account is the Slurm account that the jobs of a project charge.
type Account struct {
	Project string `yaml:"project"` // name or id, or *
	Account string `yaml:"account"`
}

// OIDC is an OpenID provider.
type OIDC struct {
	Issuer     string   `yaml:"issuer"`     // URL, as its tokens have it in iss
	Audience   string   `yaml:"audience"`   // what its tokens must name in aud: this gateway
	Algorithms []string `yaml:"algorithms"` // of signatures; default RS256, ES256
	Types      []string `yaml:"types"`      // of its access tokens (typ): at+jwt, JWT; default at+jwt
	Grants     []Claim  `yaml:"grants"`     // who of its users may do what
}

// Claim grants rights to everyone whose token has a claim.
type Claim struct {
	Claim        string    `yaml:"claim"` // e.g. groups, scope, sub
	Value        string    `yaml:"value"`
	Capabilities []string  `yaml:"capabilities"`
	Projects     []string  `yaml:"projects"`
	Accounts     []Account `yaml:"accounts"`
}

// Audit says how long records of calls that changed nothing are kept: until the first of three limits. All other records are kept forever.
type Audit struct {
	LookDays    int `yaml:"look_days"`    // 1..3650; default 30
	Looks       int `yaml:"looks"`        // how many of the newest, 1000..10000000; default 200000
	LookMB      int `yaml:"look_mb"`      // MiB of them, 1..1000000; default 2048
	RefusedDays int `yaml:"refused_days"` // of refused calls and failed logins, 1..3650; default 90
	Refused     int `yaml:"refused"`      // how many of the newest, 1000..10000000; default 200000
	RefusedMB   int `yaml:"refused_mb"`   // MiB of them, 1..1000000; default 1024
}

const (
	defaultLookDays    = 30
	defaultLooks       = 200_000
	defaultLookMB      = 2048
	defaultRefusedDays = 90
	defaultRefused     = 200_000
	defaultRefusedMB   = 1024
)

func (c *checker) access(a Access) {
	for i, p := range a.Peers {
		field := fmt.Sprintf("access.peers[%d]", i)
		switch {
		case (p.User == "") == (p.Group == ""):
			c.add("SITE-USER", field, "either user or group", map[bool]string{true: "neither is set", false: "both are set"}[p.User == ""],
				"give each user and each group an entry of its own")
		case p.User != "" && nss.CheckName(p.User) != "":
			c.add("SITE-USER", field+".user", "a login name of this host", nss.CheckName(p.User), "")
		case p.Group != "" && nss.CheckName(p.Group) != "":
			c.add("SITE-GROUP", field+".group", "a Unix group of this host", nss.CheckName(p.Group), "")
		}
		c.accounts(field, p.Accounts)
	}
	for i, o := range a.OIDC {
		field := fmt.Sprintf("access.oidc[%d]", i)
		if o.Audience == "" || len(o.Audience) > 256 {
			c.value("SITE-AUDIENCE", field+".audience", o.Audience, "what the tokens' aud must name, at most 256 bytes",
				"use the gateway's own URL")
		}
		if o.Issuer == "" {
			c.value("SITE-ISSUER", field+".issuer", o.Issuer, "the provider's URL", "")
		}
		for k, g := range o.Grants {
			at := fmt.Sprintf("%s.grants[%d]", field, k)
			if g.Claim == "" || g.Value == "" {
				c.add("SITE-MISSING", at+".claim", "a claim and its value", "one of them is missing", "for example claim: groups, value: lab")
			}
			c.accounts(at, g.Accounts)
		}
	}
}

func (c *checker) accounts(field string, list []Account) {
	for i, a := range list {
		at := fmt.Sprintf("%s.accounts[%d]", field, i)
		if msg := plan.CheckProject(a.Project); a.Project != "*" && msg != "" {
			c.add("SITE-PROJECT", at+".project", "a project's name or id, or *", msg, "")
		}
		c.slurmName(at+".account", a.Account, true)
	}
}
