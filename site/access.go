package site

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Access configures who may use the gateway besides root and the user it runs as. Package access checks the grants.
type Access struct {
	Peers []Peer `yaml:"peers"` // users of this host, through the socket; if there are any, every user can connect to it
	OIDC  []OIDC `yaml:"oidc"`  // OpenID providers whose access tokens are accepted
}

// Peer gives a user of this host, or every member of a Unix group, its capabilities on its projects. A user with
// several entries has the rights of each; where two name an account of one project the first one is used, those of
// the user before those of groups.
type Peer struct {
	User         string    `yaml:"user"`                      // login name; either this or group
	Group        string    `yaml:"group"`                     // name of a Unix group
	Capabilities []string  `yaml:"capabilities"`              // gateway, read, import, slurm, operate, admin, approve, metrics, or *
	Projects     []string  `yaml:"projects"`                  // names or ids, {user} for each user's own project, or *
	Accounts     []Account `yaml:"accounts"`                  // Slurm accounts of the projects' jobs
	Tools        []string  `yaml:"tools,omitempty" is:"tool"` // ids of tools that a chat's list has first; gives no right
}

// Account is the Slurm account that the jobs of a project charge.
type Account struct {
	Project string `yaml:"project"` // name or id, {user} or *
	Account string `yaml:"account" is:"slurm"`
}

// OIDC is an OpenID provider.
type OIDC struct {
	Issuer     string   `yaml:"issuer"`                           // URL, as its tokens have it in iss
	Audience   string   `yaml:"audience"`                         // what its tokens must name in aud: this gateway
	Algorithms []string `yaml:"algorithms" default:"RS256,ES256"` // of signatures
	Types      []string `yaml:"types" default:"at+jwt"`           // of its access tokens (typ): at+jwt, JWT
	Grants     []Claim  `yaml:"grants"`                           // rights of its users

	UnixUser *ClaimUsers `yaml:"unix_user,omitempty"` // user of its users' jobs where slurm.run_as is caller; none: they start no jobs there
}

// ClaimUsers is a table from a claim of access tokens to Unix users.
type ClaimUsers struct {
	Claim     string            `yaml:"claim"`                // whose value identifies a person and cannot be chosen by that person, e.g. sub
	Users     map[string]string `yaml:"users,omitempty"`      // Unix users by value of the claim; either this or users_file
	UsersFile string            `yaml:"users_file,omitempty"` // absolute path of a YAML file with such a mapping; read at the start and by a reload
}

// Claim grants rights to everyone whose token has a claim.
type Claim struct {
	Claim        string    `yaml:"claim"` // e.g. groups, scope, sub
	Value        string    `yaml:"value"`
	Capabilities []string  `yaml:"capabilities"`
	Projects     []string  `yaml:"projects"`
	Accounts     []Account `yaml:"accounts"`
	Tools        []string  `yaml:"tools,omitempty" is:"tool"` // see [Peer]
}

// Audit configures how long records of calls that changed nothing are kept: until the first of three limits. All
// other records are kept forever.
type Audit struct {
	// Keep records of read-only calls for this many days.
	LookDays int `yaml:"look_days" default:"30" min:"1" max:"3650"`
	// Keep at most this many of them, the newest; about 1.5 KB each.
	Looks int `yaml:"looks" default:"200000" min:"1000" max:"10000000"`
	// Keep at most this much of them, in MiB.
	LookMB int `yaml:"look_mb" default:"2048" min:"1" max:"1000000"`
	// Refused calls and failed logins, which read-only calls do not push out. A caller's refused calls have a record
	// each, up to 100 in a row and one more every two minutes; beyond that, and for callers who could not be identified, one record a
	// minute counts them. Keep them for this many days.
	RefusedDays int `yaml:"refused_days" default:"90" min:"1" max:"3650"`
	// Keep at most this many of them, the newest.
	Refused int `yaml:"refused" default:"200000" min:"1000" max:"10000000"`
	// Keep at most this much of them, in MiB.
	RefusedMB int `yaml:"refused_mb" default:"1024" min:"1" max:"1000000"`
}

func (c *checker) access(a Access) {
	for i, p := range a.Peers {
		field := fmt.Sprintf("access.peers[%d]", i)
		switch {
		case (p.User == "") == (p.Group == ""):
			c.add("SITE-USER", field, "either user or group", map[bool]string{true: "neither is set", false: "both are set"}[p.User == ""],
				"give each user and each group a separate entry")
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
		if o.UnixUser != nil {
			c.claimUsers(field+".unix_user", *o.UnixUser)
		}
	}
}

func (c *checker) claimUsers(field string, u ClaimUsers) {
	if u.Claim == "" {
		c.add("SITE-MISSING", field+".claim", "the claim that identifies a person", "it is missing", "for example claim: sub")
	}
	switch {
	case (len(u.Users) == 0) == (u.UsersFile == ""):
		c.add("SITE-MISSING", field, "either users or users_file",
			map[bool]string{true: "neither is set", false: "both are set"}[u.UsersFile == ""], "")
	case u.UsersFile != "":
		c.path(field+".users_file", u.UsersFile, true)
	}
}

// All returns the users of the table, from the site file or from the users file. The error is a Validation fault with
// all problems of that file.
func (u ClaimUsers) All() (map[string]string, error) {
	if u.UsersFile == "" {
		return u.Users, nil
	}
	data, err := readUsers(u.UsersFile)
	if err != nil {
		return nil, fault.Invalid("the users file cannot be used", fault.Problem{Code: "SITE-USERS-FILE", Field: "users_file",
			Rule: "a readable file that only its owner may write", Msg: err.Error()})
	}
	return ParseUsers(u.UsersFile, data)
}

func readUsers(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case st.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("others may write %s: chmod go-w %s", path, path)
	}
	return io.ReadAll(io.LimitReader(f, yamldoc.MaxBytes+1))
}

// ParseUsers reads a users file: a mapping from the values of a claim to Unix users, each value once.
func ParseUsers(file string, data []byte) (map[string]string, error) {
	r := &yamldoc.Reader{File: file, Prefix: "SITE"}
	users := textsOf(r.Parse(data))
	if problems := r.Problems(); len(problems) > 0 {
		return nil, fault.Invalid("the users file "+file+" cannot be used", problems...)
	}
	return users, nil
}

// textsOf reads a mapping of texts whose keys are data.
func textsOf(v yamldoc.Value) map[string]string {
	out := map[string]string{}
	for _, e := range v.Entries() {
		out[e.Key] = e.Text()
	}
	return out
}

func (c *checker) accounts(field string, list []Account) {
	for i, a := range list {
		at := fmt.Sprintf("%s.accounts[%d]", field, i)
		if msg := plan.CheckProjects(a.Project); a.Project != "*" && msg != "" {
			c.add("SITE-PROJECT", at+".project", "a project's name or id, {user} or *", msg, "")
		}
	}
}
