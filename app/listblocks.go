package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/run"
)

// This file renders the lists of runs, projects and sites.

// Says implements [blocks.Answer].
func (l RunList) Says() (d blocks.Document) {
	if len(l.Waiting) > 0 {
		t := blocks.Table{Noun: "runs not yet started", Total: l.WaitingTotal,
			Columns: blocks.Columns("run", "tool", "state", "phase", "created", "by", "reason")}
		for _, r := range l.Waiting {
			t.Rows = append(t.Rows, []any{r.RunID, r.ToolID, r.State, r.Phase, r.CreatedAt, r.By(), blocks.Reason(r.Reason)})
		}
		d = append(d, t, blocks.Next{fault.Do("slurm.job.get", "run_id", l.Waiting[0].RunID)})
	}
	if len(l.Runs) == 0 && len(l.Waiting) > 0 {
		return d
	}
	if len(l.Runs) == 0 {
		return blocks.Document{blocks.Say("No runs match."), blocks.Next{fault.Do("run.list"), fault.Do("tool.list")}}
	}
	t := l.table("runs", "newest first", "run", "tool", "state", "phase", "site*", "job*", "created", "by", "reason")
	for _, r := range l.Runs {
		reason := r.Reason
		if r.Waits != nil { // as a sentence where it waits for its turn
			reason = r.Waits.Text
		}
		t.Rows = append(t.Rows, []any{r.RunID, r.ToolID, r.State, r.Phase, r.Site, r.SlurmJobID, r.CreatedAt, r.By(), blocks.Reason(reason)})
	}
	d = append(append(d, t), continues("run.list", l.Cursor)...)
	return append(d, blocks.Advise("Next: %v reports the state of one and gives its artifacts.",
		blocks.Next{fault.Do("slurm.job.collect", "run_id", l.Runs[0].RunID)}))
}

// By names the principal that asked for a run, and the user whom it is executed as where that is not the gateway's
// own.
func (r RunRow) By() string {
	who := "unknown"
	if r.Principal != nil {
		who = *r.Principal
	}
	if r.ExecutedAs != "" {
		who += " as " + r.ExecutedAs
	}
	return who
}

// Says implements [blocks.Answer].
func (l ProjectList) Says() blocks.Document {
	t := l.table("projects", "", "project", "name", "members", "artifacts*", "stored*", "unfinished runs*")
	d := blocks.Document{t}
	for _, p := range l.Projects {
		members := namesOf(p.Members)
		if p.More > 0 {
			members += fmt.Sprintf(" and %d more", p.More)
		}
		t.Rows = append(t.Rows, []any{p.ProjectID, p.title(), members, p.Artifacts, blocks.Bytes(p.Bytes), p.OpenRuns})
		if p.Default {
			d = append(d, blocks.Say("Calls that name no project are about %v.", p.ProjectID))
		}
	}
	d[0] = t
	if who := namesOf(l.Everywhere); who != "" {
		d = append(d, blocks.Say("With rights on all projects, besides root and the gateway's user: %v.", who))
	}
	d = append(d, blocks.Advise("Members of a project may read everything in it."))
	return append(d, continues("project.list", l.Cursor)...)
}

// title returns a project's name, or for a user's own project the user.
func (p ProjectRow) title() any {
	switch {
	case p.User == nil:
		return p.Name
	case p.EndedAt != nil:
		return blocks.Say("{user} of %v until %v", *p.User, *p.EndedAt)
	case p.UID != nil:
		return fmt.Sprintf("{user} of %s (uid %d)", *p.User, *p.UID)
	}
	return "{user} of " + *p.User
}

func namesOf(list []ProjectMember) string {
	var names []string
	for _, m := range list {
		names = append(names, m.Who)
	}
	return strings.Join(names, ", ")
}

// Says implements [blocks.Answer].
func (l SiteList) Says() blocks.Document {
	t := Listed{int64(len(l.Sites)), true}.table("sites", "", "site", "slurm*", "files*", "state", "unfinished runs", "slurm answered*",
		"rpc/min used*", "left now*", "partition*", "accounting*")
	var lines blocks.Lines
	var next blocks.Next
	for _, s := range l.Sites {
		var used, left, accounting any
		if b := s.Budget; b != nil {
			used, left = fmt.Sprintf("%d of %d", b.LastMinute, b.PerMinute), b.Left
		}
		if s.Accounting != nil {
			accounting = map[bool]string{true: "yes", false: "no"}[*s.Accounting]
		}
		t.Rows = append(t.Rows, []any{s.Site, s.Transport, s.Files, s.condition(), countsText(s.Runs), s.Answered, used, left, s.Partition,
			accounting})
		for _, line := range s.about() {
			lines = append(lines, blocks.Say("%v: %v", s.Site, line))
		}
		next = append(next, s.NextSteps...)
	}
	d := blocks.Document{t, lines, next}
	if l.Pick != nil {
		d = append(d, blocks.Say("Policy picks the site of a run that names none: %v.", *l.Pick))
	}
	return append(d, blocks.Advise("Next: name one in the argument site of a tool, or none: then policy picks one. "+
		"Runs of a site that is away wait there."))
}

// condition describes a site's state, and since when or until when it holds.
func (s SiteRow) condition() blocks.Sentence {
	state := blocks.Say("%v", string(s.State))
	switch {
	case s.Since != nil:
		state = blocks.Say("%v since %v", string(s.State), *s.Since)
	case s.Until != nil:
		state = blocks.Say("%v until %v", string(s.State), *s.Until)
	}
	if !s.Allowed {
		state = blocks.Say("%v, not allowed", state)
	}
	return state
}

// countsText lists the number of runs in each state or phase.
func countsText[K ~string](runs map[K]int64) string {
	var out []string
	for _, state := range slices.Sorted(maps.Keys(runs)) {
		out = append(out, fmt.Sprintf("%d %s", runs[state], state))
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

// drainText describes the drain of a site and its effect on new runs.
func drainText(d run.Drain) string {
	if d.Queue {
		return d.String() + "; new runs wait"
	}
	return d.String() + "; new runs are refused"
}

// Says implements [blocks.Answer].
func (a DrainAnswer) Says() blocks.Document {
	sites := strings.Join(a.Changed, ", ")
	switch {
	case sites == "":
		return blocks.Document{blocks.Say("No site was drained.")}
	case slices.ContainsFunc(a.Drains, func(d run.Drain) bool { return d.Site == a.Changed[0] }):
		return blocks.Document{blocks.Say("Drained: %v. %v runs are with Slurm or being collected; they continue.", sites, a.Runs["running"]),
			blocks.Next{fault.Do("run.list", "state", "running"), fault.Do("resume")}}
	}
	return blocks.Document{blocks.Say("Resumed: %v.", sites)}
}

// Says implements [blocks.Answer].
func (a StatusAnswer) Says() blocks.Document {
	backup := blocks.Value(a.Backup)
	if backup == nil {
		backup = "none is known"
	}
	f := blocks.List("ledger", fmt.Sprintf("%s, schema %d", a.Ledger, a.Schema), "runs", countsText(a.Runs), "backup", backup,
		"restored", a.Restored, "problem", a.Problem)
	for _, s := range a.Sites {
		said := blocks.Say("Slurm has not answered yet")
		switch {
		case s.Drain != nil:
			said = blocks.Say("%v", drainText(*s.Drain))
		case s.Problem != nil:
			said = blocks.Say("%v", *s.Problem)
		case s.Answered != nil:
			said = blocks.Say("Slurm answered %v", *s.Answered)
		}
		f.Add("site", blocks.Say("%v  %v", s.Site, said))
	}
	return blocks.Document{f}
}

// about returns what the table has no room for: why the site is not ready, what to do, and the state of its
// connections.
func (s SiteRow) about() (lines []any) {
	if s.Drain != nil {
		lines = append(lines, drainText(*s.Drain))
	}
	switch {
	case s.Problem != nil:
		lines = append(lines, *s.Problem)
	case s.Code != nil:
		lines = append(lines, *s.Code+": runs wait; an administrator sees why")
	}
	if s.Budget != nil && s.Budget.Shared != nil {
		b := s.Budget.Shared
		line := fmt.Sprintf("shares a budget of %d RPCs per minute with the other gateways of its host, %d left now", b.PerMinute, b.Left)
		if b.Problem != nil {
			line = fmt.Sprintf("the shared budget of %d RPCs per minute is not used: %s", b.PerMinute, *b.Problem)
		}
		lines = append(lines, line)
	}
	for _, p := range s.Pauses {
		if p.What != "site" || s.State != run.SitePaused {
			lines = append(lines, blocks.Say("no jobs to %v until %v: %v", p.What, p.Until, p.Code))
		}
	}
	for _, l := range s.Links {
		if l.To == "users" {
			signer := "the signer answers"
			if !l.Up {
				signer = "the signer does not answer, so no other user can be logged in"
			}
			lines = append(lines, fmt.Sprintf("runs belong to their users: %d logged in now, %d refused at the last login; %s", l.Users, l.Refused,
				signer))
			continue
		}
		is, times := "up", "times"
		if !l.Up {
			is = "down (it is made again when it is needed)"
		}
		if l.Losses == 1 {
			times = "time"
		}
		lines = append(lines, fmt.Sprintf("connection to %s is %s, lost %d %s", l.To, is, l.Losses, times))
	}
	return lines
}
