package app

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
	"slurmgate/site"
)

// siteList returns the operation that lists the sites. A chat has it where there are several.
func (g *Gateway) siteList() []Operation {
	faces := noChat
	if g.Site != nil && g.several() {
		faces = everywhere
	}
	return []Operation{{
		ID: "site.list", Title: "List sites", Verb: "sites",
		Description: "Lists the sites that runs can go to: whether each is ready, away, drained or paused, since when and why, its unfinished " +
			"runs by phase, and how much of its budget of requests to Slurm is left. Only an administrator sees what a site said; runs are " +
			"those of the caller's projects.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapRead, Needs: Engine, Faces: faces,
		Does: withProvenance(g, g.listSites),
	}}
}

// SiteRow is a site in the answer of site.list.
type SiteRow struct {
	Site      string          `json:"site"`
	Transport string          `json:"transport" help:"how Slurm is reached: cli, ssh; local: processes of the gateway's own host"`
	Files     string          `json:"files" help:"how files get there: shared, sftp"`
	State     run.Condition   `json:"state" enum:"ready,drained,away,paused"`
	Since     *time.Time      `json:"since"`   // of an outage or a drain
	Until     *time.Time      `json:"until"`   // end of a pause
	Code      *string         `json:"code"`    // of the reason why runs wait
	Problem   *string         `json:"problem"` // the reason; null for callers who are not administrators
	Drain     *run.Drain      `json:"drain"`
	Pauses    []run.SitePause `json:"pauses"`
	Allowed   bool            `json:"allowed" help:"policy allows new runs there"`

	Runs       map[run.Phase]int64 `json:"runs" help:"unfinished runs of the caller's projects, by phase"`
	Answered   *time.Time          `json:"slurm_answered_at"`
	Budget     *run.Budget         `json:"budget"`
	Partition  *string             `json:"default_partition"`
	Accounting *bool               `json:"accounting"`
	Links      []SiteLink          `json:"connections"` // to a remote site
	NextSteps  []fault.Step        `json:"next_steps"`
}

// SiteLink is a permanent connection to a site.
type SiteLink struct {
	To     string `json:"to"`     // slurm or files; users: all connections as users together
	Up     bool   `json:"up"`     // for users: the signer's latest answer was a success
	Losses int64  `json:"losses"` // since the gateway started

	Users   int `json:"users,omitempty"`   // connected now
	Refused int `json:"refused,omitempty"` // users that were refused at their last login
}

// SiteList is the answer of site.list.
type SiteList struct {
	CallRunID
	Pick  *string   `json:"pick"` // policy's rule for runs whose callers name no site (sites.pick)
	Total int       `json:"total"`
	Sites []SiteRow `json:"sites"`
}

func (g *Gateway) listSites(ctx context.Context, c gate.Call, _ struct{}) (out SiteList, err error) {
	open, err := g.Ledger.OpenBySite(ctx, c.Projects())
	if err != nil {
		return out, err
	}
	admin := c.Caller.Can(gate.CapAdmin, gate.All)
	if p := g.Policy.Sites.Pick; p != "" {
		out.Pick = &p
	}
	out.Sites = []SiteRow{}
	for _, name := range g.Sites.Names() {
		st, _ := g.Sites.State(name)
		row := g.siteRow(name, st, admin)
		if row.Runs = open[name]; row.Runs == nil {
			row.Runs = map[run.Phase]int64{}
		}
		out.Sites = append(out.Sites, row)
	}
	out.Total = len(out.Sites)
	return out, nil
}

// siteRow describes a site within what a caller may know: messages of Slurm, a filesystem or a connection name hosts
// and folders.
func (g *Gateway) siteRow(name string, st run.SiteState, admin bool) SiteRow {
	row := SiteRow{Site: name, Transport: site.Local, Files: "shared", State: st.Condition, Since: st.Since, Until: st.Until, Drain: st.Drain,
		Pauses: []run.SitePause{}, Allowed: g.Policy.Local.Allowed, Answered: st.Answered, Budget: st.Budget, Accounting: st.Accounting,
		Links: []SiteLink{}, NextSteps: []fault.Step{}}
	if s := g.Site.Cluster(name); s != nil {
		row.Transport, row.Files, row.Allowed = s.Slurm.Transport, s.Storage.Transport, g.Policy.AllowSite(name) == nil
		if p := s.Slurm.DefaultPartition; p != "" {
			row.Partition = &p
		}
	}
	for _, p := range st.Pauses {
		if !admin {
			p.Detail = nil
		}
		row.Pauses = append(row.Pauses, p)
	}
	for _, l := range st.Links {
		row.Links = append(row.Links, SiteLink(l))
	}
	if st.Problem != nil {
		row.Code = new(fault.CodeOf(st.Problem))
		if admin {
			row.Problem = new(fault.Prose(st.Problem))
			row.NextSteps = append(row.NextSteps, fault.Do("doctor"))
		}
	}
	if st.Drain != nil && admin {
		row.NextSteps = append(row.NextSteps, fault.Do("resume"))
	}
	return row
}
