package site

import (
	"fmt"

	"slurmgate/plan"
)

// Limits bound what callers do at the same time, so that nobody holds up the others.
type Limits struct {
	Calls          int `yaml:"calls"`            // 1..65536 calls carried out at once; default 256
	CallsPerCaller int `yaml:"calls_per_caller"` // 1..65536 of these for one caller; default 64
	WaitsPerCaller int `yaml:"waits_per_caller"` // 1..65536 calls of one caller that wait for a run; default 512

	Previews          int `yaml:"previews"`            // 1..1024 previews and logs read at once; default 8
	PreviewsPerCaller int `yaml:"previews_per_caller"` // 1..1024 of these for one caller; default 2
	PreviewSeconds    int `yaml:"preview_seconds"`     // 1..600 s that one may take; default 10
	Hashes            int `yaml:"hashes"`              // 1..1024 calls of artifact.verify at once; default 4
	HashesPerCaller   int `yaml:"hashes_per_caller"`   // 1..1024 of these for one caller; default 1

	StreamsPerCaller      int `yaml:"streams_per_caller"`      // 1..65536 event streams, uploads and downloads; default 64
	OpenRunsPerProject    int `yaml:"open_runs_per_project"`   // 1..10000000 runs that are not over; default 100000
	SocketConnections     int `yaml:"socket_connections"`      // 1..65536 open on the socket; default 1024
	ConnectionsPerCaller  int `yaml:"connections_per_caller"`  // 1..65536 of these, and of the port's, of one caller; default 512
	ConnectionsPerAddress int `yaml:"connections_per_address"` // 1..65536 of one address or user before its first call; default 256

	ProjectQuotaMB int `yaml:"project_quota_mb"` // MiB, 0..1073741824 that a project keeps, outputs included; default 0: no limit
	ProjectImports int `yaml:"project_imports"`  // 1..100000000 imported artifacts of a project; default 200000

	// What each project, and each caller in all projects, may have; 0 is no limit, and the default.
	ProjectRunsInFlight     int `yaml:"project_runs_in_flight"`      // 0..1000000 runs sent to Slurm that have not ended
	ProjectRunsPerDay       int `yaml:"project_runs_per_day"`        // 0..10000000 attempts opened on a day (UTC)
	ProjectCPUHoursPerMonth int `yaml:"project_cpu_hours_per_month"` // 0..100000000 used, or reserved by time limits, in a month (UTC)
	CallerRunsInFlight      int `yaml:"caller_runs_in_flight"`       // as those of a project
	CallerRunsPerDay        int `yaml:"caller_runs_per_day"`
	CallerCPUHoursPerMonth  int `yaml:"caller_cpu_hours_per_month"`
	CallerQuotaMB           int `yaml:"caller_quota_mb"` // MiB, 0..1073741824 that it keeps in all projects, outputs included

	Projects []ProjectLimit `yaml:"projects"` // other values for some projects
	Callers  []CallerLimit  `yaml:"callers"`  // and for some callers
}

// ProjectLimit is what one project may have.
type ProjectLimit struct {
	Project          string `yaml:"project"`        // name or id
	QuotaMB          int    `yaml:"quota_mb"`       // MiB, as project_quota_mb
	Imports          int    `yaml:"imports"`        // as project_imports; 0: that
	Weight           int    `yaml:"weight"`         // 1..1000 turns for one of another project; 0: 1
	RunsInFlight     int    `yaml:"runs_in_flight"` // 0: as for all others, -1: no limit; so are the next two
	RunsPerDay       int    `yaml:"runs_per_day"`
	CPUHoursPerMonth int    `yaml:"cpu_hours_per_month"`
}

// CallerLimit is what one caller may have.
type CallerLimit struct {
	Caller           string `yaml:"caller"`         // as lists show it, e.g. user:alice, or the id of the principal, prn_…
	RunsInFlight     int    `yaml:"runs_in_flight"` // 0: as for all others, -1: no limit; so are the next three
	RunsPerDay       int    `yaml:"runs_per_day"`
	CPUHoursPerMonth int    `yaml:"cpu_hours_per_month"`
	QuotaMB          int    `yaml:"quota_mb"` // MiB, as caller_quota_mb
}

// Caps are the limits that projects and callers have in common.
type Caps struct{ RunsInFlight, RunsPerDay, CPUHoursPerMonth int }

// Caps are those of the project's own.
func (p ProjectLimit) Caps() Caps { return Caps{p.RunsInFlight, p.RunsPerDay, p.CPUHoursPerMonth} }

// Caps are those of the caller's own.
func (l CallerLimit) Caps() Caps { return Caps{l.RunsInFlight, l.RunsPerDay, l.CPUHoursPerMonth} }

const (
	mostQuota   = 1 << 30
	mostImports = 100_000_000

	mostInFlight = 1_000_000
	mostPerDay   = 10_000_000
	mostCPUHours = 100_000_000
	mostWeight   = 1000
)

// limit is a field of Limits: where it is, its default, and the values it may have.
type limit struct {
	name           string
	value          *int
	def, low, high int
}

func (l *Limits) fields() []limit {
	const most = 1 << 16
	return []limit{
		{"calls", &l.Calls, 256, 1, most},
		{"calls_per_caller", &l.CallsPerCaller, 64, 1, most},
		{"waits_per_caller", &l.WaitsPerCaller, 512, 1, most},
		{"previews", &l.Previews, 8, 1, 1024},
		{"previews_per_caller", &l.PreviewsPerCaller, 2, 1, 1024},
		{"preview_seconds", &l.PreviewSeconds, 10, 1, 600},
		{"hashes", &l.Hashes, 4, 1, 1024},
		{"hashes_per_caller", &l.HashesPerCaller, 1, 1, 1024},
		{"streams_per_caller", &l.StreamsPerCaller, 64, 1, most},
		{"open_runs_per_project", &l.OpenRunsPerProject, 100_000, 1, 10_000_000},
		{"socket_connections", &l.SocketConnections, 1024, 1, most},
		{"connections_per_caller", &l.ConnectionsPerCaller, 512, 1, most},
		{"connections_per_address", &l.ConnectionsPerAddress, 256, 1, most},
		{"project_quota_mb", &l.ProjectQuotaMB, 0, 0, mostQuota},
		{"project_imports", &l.ProjectImports, 200_000, 1, mostImports},
		{"project_runs_in_flight", &l.ProjectRunsInFlight, 0, 0, mostInFlight},
		{"project_runs_per_day", &l.ProjectRunsPerDay, 0, 0, mostPerDay},
		{"project_cpu_hours_per_month", &l.ProjectCPUHoursPerMonth, 0, 0, mostCPUHours},
		{"caller_runs_in_flight", &l.CallerRunsInFlight, 0, 0, mostInFlight},
		{"caller_runs_per_day", &l.CallerRunsPerDay, 0, 0, mostPerDay},
		{"caller_cpu_hours_per_month", &l.CallerCPUHoursPerMonth, 0, 0, mostCPUHours},
		{"caller_quota_mb", &l.CallerQuotaMB, 0, 0, mostQuota},
	}
}

func (c *checker) limits(l Limits) {
	for _, f := range l.fields() {
		c.bounds("limits."+f.name, int64(*f.value), int64(f.low), int64(f.high))
	}
	for i, p := range l.Projects {
		at := fmt.Sprintf("limits.projects[%d]", i)
		if msg := plan.CheckProject(p.Project); msg != "" {
			c.add("SITE-PROJECT", at+".project", "a project's name or id", msg, "")
		}
		c.bounds(at+".quota_mb", int64(p.QuotaMB), 0, mostQuota)
		c.bounds(at+".imports", int64(p.Imports), 0, mostImports)
		c.bounds(at+".weight", int64(p.Weight), 0, mostWeight)
		c.caps(at, p.Caps())
	}
	for i, l := range l.Callers {
		at := fmt.Sprintf("limits.callers[%d]", i)
		if l.Caller == "" {
			c.add("SITE-CALLER", at+".caller", "a caller's name or id, as a list of runs shows it", "the caller is missing", "")
		}
		c.caps(at, l.Caps())
		c.bounds(at+".quota_mb", int64(l.QuotaMB), -1, mostQuota)
	}
}

func (c *checker) caps(at string, l Caps) {
	c.bounds(at+".runs_in_flight", int64(l.RunsInFlight), -1, mostInFlight)
	c.bounds(at+".runs_per_day", int64(l.RunsPerDay), -1, mostPerDay)
	c.bounds(at+".cpu_hours_per_month", int64(l.CPUHoursPerMonth), -1, mostCPUHours)
}
