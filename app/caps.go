package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// Caps holds the limits of projects and callers in the site file (limits). They are there and not in policies.yaml
// because they are not part of a run's identity: raising a cap must not repeat any run.
type Caps struct {
	name func(principalID string) string // of a caller; "" where it is not known
	now  func() time.Time

	projects, callers     map[string]capsOf // those with their own values: projects by id, callers by name or id
	anyProject, anyCaller capsOf
	weights               map[string]int
	names                 sync.Map // by id, of callers that were looked up
}

// bound is a cap and the field of the site file that sets it.
type bound struct {
	most  int // 0: no limit
	field string
}

type capsOf struct{ inFlight, perDay, cpuHours, quotaMB bound }

// NewCaps reads the caps of a site file. name finds the name of a principal.
func NewCaps(l site.Limits, name func(id string) string) *Caps {
	c := &Caps{name: name, now: time.Now, projects: map[string]capsOf{}, callers: map[string]capsOf{}, weights: map[string]int{},
		anyProject: capsOf{bound{l.ProjectRunsInFlight, "limits.project_runs_in_flight"},
			bound{l.ProjectRunsPerDay, "limits.project_runs_per_day"}, bound{l.ProjectCPUHoursPerMonth, "limits.project_cpu_hours_per_month"},
			bound{}}, // see Quotas
		anyCaller: capsOf{bound{l.CallerRunsInFlight, "limits.caller_runs_in_flight"},
			bound{l.CallerRunsPerDay, "limits.caller_runs_per_day"}, bound{l.CallerCPUHoursPerMonth, "limits.caller_cpu_hours_per_month"},
			bound{l.CallerQuotaMB, "limits.caller_quota_mb"}}}
	for i, p := range l.Projects {
		id := plan.ProjectOf(p.Project)
		c.projects[id] = c.anyProject.with(p.Caps(), fmt.Sprintf("limits.projects[%d]", i))
		if p.Weight > 1 {
			c.weights[id] = p.Weight
		}
	}
	for i, who := range l.Callers {
		at := fmt.Sprintf("limits.callers[%d]", i)
		own := c.anyCaller.with(who.Caps(), at)
		own.quotaMB = own.quotaMB.with(who.QuotaMB, at+".quota_mb")
		c.callers[who.Caller] = own
	}
	return c
}

// with returns c with the values that one project or caller has in place of the defaults.
func (c capsOf) with(own site.Caps, at string) capsOf {
	for _, f := range []struct {
		b    *bound
		own  int
		name string
	}{{&c.inFlight, own.RunsInFlight, "runs_in_flight"}, {&c.perDay, own.RunsPerDay, "runs_per_day"},
		{&c.cpuHours, own.CPUHoursPerMonth, "cpu_hours_per_month"}} {
		*f.b = f.b.with(f.own, at+"."+f.name)
	}
	return c
}

// with returns the cap for one project or caller, whose own value is 0 if it has none and negative for no limit.
func (b bound) with(own int, field string) bound {
	if own == 0 {
		return b
	}
	return bound{max(0, own), field}
}

// Caps returns the gateway's caps. It reads them once.
func (g *Gateway) Caps() *Caps {
	g.capsRead.Do(func() {
		g.caps = NewCaps(g.Site.Limits, func(id string) string {
			i, err := g.Ledger.Identity(context.Background(), id)
			if err != nil {
				return ""
			}
			return i.Name
		})
	})
	return g.caps
}

func (c *Caps) project(id string) capsOf {
	if own, ok := c.projects[limitsOf(id)]; ok {
		return own
	}
	return c.anyProject
}

// limitsOf returns the project whose limits apply to a project: all projects of single users have common limits.
func limitsOf(id string) string {
	if plan.IsUserProject(id) {
		return plan.UserProject
	}
	return id
}

func (c *Caps) caller(id string) capsOf {
	if len(c.callers) == 0 {
		return c.anyCaller
	}
	if own, ok := c.callers[id]; ok {
		return own
	}
	if own, ok := c.callers[c.nameOf(id)]; ok {
		return own
	}
	return c.anyCaller
}

func (c *Caps) nameOf(id string) string {
	if user, ok := strings.CutPrefix(id, run.UnixPrefix); ok {
		return "user:" + user
	}
	if n, ok := c.names.Load(id); ok {
		return n.(string)
	}
	n := c.name(id)
	if n != "" {
		c.names.Store(id, n)
	}
	return n
}

// ProjectInFlight returns how many runs of a project may be in flight; 0: any number. It is
// [run.Config.ProjectInFlight].
func (c *Caps) ProjectInFlight(id string) int { return c.project(id).inFlight.most }

// CallerInFlight returns how many runs of a caller may be in flight; 0: any number. It is
// [run.Config.CallerInFlight].
func (c *Caps) CallerInFlight(id string) int { return c.caller(id).inFlight.most }

// callerQuota returns how many MiB a caller may store; 0: any number.
func (c *Caps) callerQuota(id string) bound { return c.caller(id).quotaMB }

// Weight returns how many turns a project has for one of another. It is [run.Config.Weight].
func (c *Caps) Weight(id string) int { return max(1, c.weights[limitsOf(id)]) }

// Admit refuses an attempt that exceeds what its project or its caller may use on a day or in a month. It is
// [run.Parts.Admit].
func (c *Caps) Admit(s run.Share, project, caller run.Spent) error {
	if err := c.exceeds("the project", c.project(s.Project), project); err != nil || s.Caller == "" {
		return err
	}
	return c.exceeds("the caller", c.caller(s.Caller), caller)
}

func (c *Caps) exceeds(who string, most capsOf, has run.Spent) error {
	now := c.now().UTC()
	tomorrow := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.UTC)
	next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	const hour = 3600
	switch {
	case most.perDay.most > 0 && has.RunsToday > int64(most.perDay.most):
		return capped("CAP-RUNS-PER-DAY", most.perDay, "runs on a day (UTC)", tomorrow.Sub(now), tomorrow,
			fmt.Sprintf("%s has started %d of %d runs today (UTC)", who, has.RunsToday-1, most.perDay.most))
	case most.cpuHours.most > 0 && has.CPUSecondsThisMonth > int64(most.cpuHours.most)*hour:
		return capped("CAP-CPU-HOURS", most.cpuHours, "CPU hours in a month (UTC)", next.Sub(now), next,
			fmt.Sprintf("with this run %s would have used, or reserved by time limits, %.1f of %d CPU hours this month (UTC)", who,
				float64(has.CPUSecondsThisMonth)/hour, most.cpuHours.most))
	}
	return nil
}

func capped(code string, c bound, unit string, wait time.Duration, at time.Time, msg string) error {
	return &fault.Error{Kind: fault.Policy, Code: "cap_reached", Msg: msg,
		Problems: []fault.Problem{{Code: code, Field: c.field, Rule: fmt.Sprintf("at most %d %s", c.most, unit), Msg: msg}},
		Next:     "submit again after " + at.Format(time.RFC3339) + ", or ask the administrator to raise " + c.field + " in the site file",
		Retry:    int(wait.Seconds()) + 1}
}
