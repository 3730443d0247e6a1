package app

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// usage returns the operation that sums what jobs used.
func (g *Gateway) usage() []Operation {
	return []Operation{{
		ID: "usage.month", Title: "Add up a month", Verb: "usage",
		Description: "Returns what the jobs that ended in a month used, by project, Slurm account, caller and tool: CPU hours, memory, bytes, " +
			"failures. Covers the projects that the caller may read. What is not known is null. stored is what the caller's own artifacts take up " +
			"now, and may take up.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.addUpMonth),
	}}
}

// UsageArgs are the arguments of usage.month.
type UsageArgs struct {
	Month     string `json:"month,omitzero" pattern:"^[0-9]{4}-(0[1-9]|1[0-2])$" about:"such as 2026-11; this month when absent" help:"Month, such as 2026-11. Default: this one." placeholder:"MONTH"`
	Zone      string `json:"zone,omitzero" max:"64" about:"time zone in which months begin, such as Europe/Berlin; UTC when absent" help:"Time zone in which the month begins and ends, such as Europe/Berlin. Default: UTC." placeholder:"ZONE"`
	By        string `json:"by,omitzero" max:"64" about:"comma-separated: project, account, caller, tool; all of them when absent" default:"project,account,caller,tool" help:"What to add up by: any of project, account, caller, tool." placeholder:"WORD,…"`
	ProjectID string `json:"project_id,omitzero" kind:"project" name:"project" help:"Only this project (name or id)." placeholder:"NAME"`
}

// UsageMonth is the answer of usage.month.
type UsageMonth struct {
	CallRunID
	Month string     `json:"month"`
	Zone  string     `json:"zone"`
	From  time.Time  `json:"from"`
	To    time.Time  `json:"to"` // end of the month, exclusive
	By    []string   `json:"by"`
	Rows  []UsageRow `json:"rows"`

	Stored StoredUse `json:"stored"`
}

// StoredUse is what the caller stores now, in all projects.
type StoredUse struct {
	Artifacts int64  `json:"artifacts"`
	Bytes     int64  `json:"bytes"`
	MaxBytes  *int64 `json:"max_bytes"` // limits.caller_quota_mb; null: no limit
}

// UsageRow is what one project, account, caller and tool used. A column is null if not asked for; null is also an
// unknown value: the account of jobs outside Slurm, or figures that neither Slurm's accounting nor the jobs recorded.
type UsageRow struct {
	Project           *string  `json:"project" help:"null: not asked for"`
	Account           *string  `json:"account" help:"null: not asked for, or not known"`
	Caller            *string  `json:"caller" help:"null: not asked for, or not known"`
	Tool              *string  `json:"tool" help:"null: not asked for"`
	Runs              int64    `json:"runs"`
	Attempts          int64    `json:"attempts"` // that ended in the month: jobs, and a few attempts without a job
	Succeeded         int64    `json:"succeeded"`
	Failed            int64    `json:"failed"`
	Cancelled         int64    `json:"cancelled"`
	CPUHours          *float64 `json:"cpu_hours" help:"used by the processes; null: not known"`
	AllocatedCPUHours *float64 `json:"allocated_cpu_hours" help:"reserved by Slurm; null: not known"`
	MaxMemoryBytes    *int64   `json:"max_memory_bytes" help:"of the largest job; null: not measured"`
	InputBytes        int64    `json:"input_bytes"`
	OutputBytes       int64    `json:"output_bytes"`
	Unmeasured        int64    `json:"unmeasured" help:"attempts that ran and are missing in cpu_hours"`
}

func (g *Gateway) addUpMonth(ctx context.Context, c gate.Call, a UsageArgs) (out UsageMonth, err error) {
	bad := func(field, rule, got string) error {
		return fault.Invalid("", fault.Problem{Code: "USAGE-" + strings.ToUpper(field), Field: field, Rule: rule,
			Msg: strconv.Quote(got) + " is not allowed here"})
	}
	zone, err := time.LoadLocation(a.Zone) // "" is UTC
	if err != nil || a.Zone == "Local" {
		return out, bad("zone", "a time zone that this host knows, such as Europe/Berlin", a.Zone)
	}
	if a.Month == "" {
		a.Month = time.Now().In(zone).Format("2006-01")
	}
	from, err := time.ParseInLocation("2006-01", a.Month, zone)
	if err != nil {
		return out, bad("month", "a month such as 2026-11", a.Month)
	}
	by := ledger.SpentBy()
	if a.By != "" {
		by = strings.Split(a.By, ",")
	}
	for i, name := range by {
		if !slices.Contains(ledger.SpentBy(), name) || slices.Contains(by[:i], name) {
			return out, bad("by", "each of "+strings.Join(ledger.SpentBy(), ", ")+" once at most, separated by commas", a.By)
		}
	}
	f := ledger.Spent{From: from, To: from.AddDate(0, 1, 0), By: by}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, err
	}
	rows, err := g.Ledger.Spent(ctx, f)
	if err != nil {
		return out, err
	}
	out = UsageMonth{Month: a.Month, Zone: zone.String(), From: f.From.UTC(), To: f.To.UTC(), By: by, Rows: []UsageRow{}}
	for _, r := range rows {
		out.Rows = append(out.Rows, UsageRow{known(r.Project), known(r.Account), known(r.Caller), known(r.Tool), r.Runs, r.Attempts, r.Succeeded,
			r.Failed, r.Cancelled, hours(r.CPUSeconds), hours(r.AllocatedCPUSeconds), r.MaxRSSBytes, r.InputBytes, r.OutputBytes, r.Unmeasured})
	}
	out.Stored, err = g.storedBy(ctx, g.countsAs(c.Caller.Principal))
	return out, err
}

// storedBy returns what a caller stores and may store.
func (g *Gateway) storedBy(ctx context.Context, caller string) (StoredUse, error) {
	use, err := g.Ledger.CallerUse(ctx, caller)
	s := StoredUse{Artifacts: use.Artifacts, Bytes: use.Bytes}
	if quota := g.Caps().callerQuota(caller); quota.most > 0 {
		s.MaxBytes = new(quota.bytes())
	}
	return s, err
}

func hours(seconds *float64) *float64 {
	if seconds == nil {
		return nil
	}
	h := *seconds / 3600
	return &h
}
