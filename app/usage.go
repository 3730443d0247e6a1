package app

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
)

// usage is the operation that adds up what jobs used.
func (g *Gateway) usage() []Operation {
	return []Operation{{
		ID: "usage.month", Title: "Add up a month", Verb: "usage",
		Description: "Returns what the jobs that ended in a month used, by project, Slurm account, caller and tool: CPU hours, memory, bytes, " +
			"failures. Covers the projects that the caller may read. What is not known is null. stored is what the caller's own artifacts take up " +
			"now, and may take up.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: noChat,
		Input: object("", prop("month", `{"type":"string","pattern":"^[0-9]{4}-(0[1-9]|1[0-2])$","description":"such as 2026-11; this month when absent"}`),
			prop("zone", `{"type":"string","maxLength":64,"description":"time zone in which months begin, such as Europe/Berlin; UTC when absent"}`),
			prop("by", `{"type":"string","maxLength":64,"description":"comma-separated: project, account, caller, tool; all of them when absent"}`),
			prop("project_id", projectSchema)),
		Does: look(g, g.addUpMonth),
	}}
}

// UsageArgs are the arguments of usage.month.
type UsageArgs struct {
	Month     string `json:"month,omitzero"`
	Zone      string `json:"zone,omitzero"`
	By        string `json:"by,omitzero"`
	ProjectID string `json:"project_id,omitzero"`
}

// UsageMonth is the answer of usage.month.
type UsageMonth struct {
	CallRunID
	Month string     `json:"month"`
	Zone  string     `json:"zone"`
	From  time.Time  `json:"from"`
	To    time.Time  `json:"to"` // the first moment that is not part of it
	By    []string   `json:"by"`
	Rows  []UsageRow `json:"rows"`

	Stored StoredUse `json:"stored"`
}

// StoredUse is what the caller keeps now, in all projects.
type StoredUse struct {
	Artifacts int64  `json:"artifacts"`
	Bytes     int64  `json:"bytes"`
	MaxBytes  *int64 `json:"max_bytes"` // limits.caller_quota_mb; null: no limit
}

// UsageRow is what was used by one project, account, caller and tool. Those are null where not asked for; null is also what is not known:
// the caller of runs older than its record, the account of jobs outside Slurm, figures that neither Slurm's accounting nor the jobs
// recorded.
type UsageRow struct {
	Project           *string  `json:"project"`
	Account           *string  `json:"account"`
	Caller            *string  `json:"caller"`
	Tool              *string  `json:"tool"`
	Runs              int64    `json:"runs"`
	Attempts          int64    `json:"attempts"` // that ended in the month: jobs, with a few that never became one
	Succeeded         int64    `json:"succeeded"`
	Failed            int64    `json:"failed"`
	Cancelled         int64    `json:"cancelled"`
	CPUHours          *float64 `json:"cpu_hours"`           // that the processes used
	AllocatedCPUHours *float64 `json:"allocated_cpu_hours"` // that Slurm reserved
	MaxMemoryBytes    *int64   `json:"max_memory_bytes"`    // of the largest job
	InputBytes        int64    `json:"input_bytes"`
	OutputBytes       int64    `json:"output_bytes"`
	Unmeasured        int64    `json:"unmeasured"` // attempts that ran and are missing in cpu_hours
}

func (g *Gateway) addUpMonth(ctx context.Context, c gate.Call, a UsageArgs) (out UsageMonth, params any, err error) {
	bad := func(field, rule, got string) error {
		return fault.Invalid("", fault.Problem{Code: "USAGE-" + strings.ToUpper(field), Field: field, Rule: rule,
			Msg: "got " + strconv.Quote(got)})
	}
	zone, err := time.LoadLocation(a.Zone) // "" is UTC
	if err != nil || a.Zone == "Local" {
		return out, nil, bad("zone", "a time zone that this host knows, such as Europe/Berlin", a.Zone)
	}
	if a.Month == "" {
		a.Month = time.Now().In(zone).Format("2006-01")
	}
	from, err := time.ParseInLocation("2006-01", a.Month, zone)
	if err != nil {
		return out, nil, bad("month", "a month such as 2026-11", a.Month)
	}
	by := ledger.SpentBy()
	if a.By != "" {
		by = strings.Split(a.By, ",")
	}
	for i, name := range by {
		if !slices.Contains(ledger.SpentBy(), name) || slices.Contains(by[:i], name) {
			return out, nil, bad("by", "each of "+strings.Join(ledger.SpentBy(), ", ")+" once at most, separated by commas", a.By)
		}
	}
	f := ledger.Spent{From: from, To: from.AddDate(0, 1, 0), By: by}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, nil, err
	}
	rows, seq, err := g.Ledger.Spent(ctx, f)
	if err != nil {
		return out, nil, err
	}
	out = UsageMonth{Month: a.Month, Zone: zone.String(), From: f.From.UTC(), To: f.To.UTC(), By: by, Rows: []UsageRow{}}
	for _, r := range rows {
		out.Rows = append(out.Rows, UsageRow{known(r.Project), known(r.Account), known(r.Caller), known(r.Tool), r.Runs, r.Attempts, r.Succeeded,
			r.Failed, r.Cancelled, hours(r.CPUSeconds), hours(r.AllocatedCPUSeconds), r.MaxRSSBytes, r.InputBytes, r.OutputBytes, r.Unmeasured})
	}
	if out.Stored, err = g.storedBy(ctx, g.countsAs(c.Caller.Principal)); err != nil {
		return out, nil, err
	}
	figures, err := json.Marshal(out.Rows) // accounting's figures come later, and are no events
	return out, map[string]any{"month": out.Month, "zone": out.Zone, "by": by, "project_ids": f.Projects, "ledger_seq": seq,
		"stored": out.Stored, "rows_sha256": plan.Hash(figures)}, err
}

// storedBy is what a caller keeps and may keep.
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
