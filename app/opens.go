package app

import (
	"context"
	"os"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/policy"
	"slurmgate/site"
)

// opener is whose rights open a path that a call names. Without a file and a user they are the gateway's own.
type opener struct {
	file *os.File // opened and passed on by the caller's own process
	site string   // the cluster on which user is logged in
	user string   // the caller's Unix user, over that user's login
}

// opensPath decides whose rights open a path that a call names. Every operation with such a path calls it, on every
// face. s is the site on which the file stays in place, nil for a file that is copied; shared reports that the site
// offers the content of its folder to the caller's project.
//
// A caller who has rights on files is held to them: a user of this host to those of the process that opens the file,
// and where jobs run as their callers a Unix user to those of that user's login. The gateway's own rights are for
// what an administrator named in the site file for callers who have none, and for the gateway's own user and root.
func (g *Gateway) opensPath(ctx context.Context, c gate.Call, s *site.Site, shared bool) (o opener, err error) {
	if shared {
		return o, nil
	}
	if o.file = c.Caller.File; s != nil && g.inPlace[s.Name] == nil {
		o.file = nil // that file is on another host
	}
	if s == nil && o.file != nil {
		return o, nil
	}
	if o.site, o.user, err = g.loginOf(ctx, c, s); err != nil || o.user != "" || o.file != nil {
		return o, err
	}
	if c.Caller.Method != gate.ByPeer || c.Caller.Owner && s != nil {
		return o, nil
	}
	p := fault.Problem{Code: "IMPORT-HANDED", Field: "path", Rule: "a local user must pass an open file",
		Msg: "the call names a path and has no open file with it"}
	switch {
	case s == nil:
		p.Hint, p.Next = "let slurmgate's own command or chat open the file, or upload it", []fault.Step{fault.Do("artifact.import", "text", "…")}
	case g.inPlace[s.Name] == nil:
		p.Rule, p.Msg = "below a folder that the site shares", "the gateway cannot tell what you may read on the site "+s.Name
		p.Hint = "import a copy, or ask the administrator to share the folder (shared: true in storage.in_place)"
	default:
		p.Hint = "let slurmgate's own command or chat open the file. A folder cannot be passed: import a copy, or ask the administrator to " +
			"share the folder that it is in (shared: true in storage.in_place)"
	}
	return o, &fault.Error{Kind: fault.Validation, Problems: []fault.Problem{p}}
}

// loginOf returns the caller's Unix user on a site, or if s is nil on the first cluster that runs jobs as their
// callers, and that cluster. user may be empty.
func (g *Gateway) loginOf(ctx context.Context, c gate.Call, s *site.Site) (cluster, user string, err error) {
	if g.UnixUser == nil {
		return "", "", nil
	}
	sites := g.Site.Clusters()
	if s != nil {
		sites = []*site.Site{s}
	}
	for _, s := range sites {
		if user, err = g.unixUser(ctx, s.Name, c.Caller.Principal); err != nil || user != "" {
			return s.Name, user, err
		}
	}
	if s == nil {
		err = fault.New(fault.Policy, "no_unix_user", "no cluster of this gateway runs jobs as their callers")
	}
	return "", "", err
}

// way returns how a file is imported by its path, in the terms of policy.
func (o opener) way() string {
	if o.file != nil || o.user != "" {
		return policy.ImportHanded // the caller's own rights open it
	}
	return policy.ImportPath
}
