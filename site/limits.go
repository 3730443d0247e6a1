package site

import (
	"fmt"

	"slurmgate/plan"
)

// Limits bound the concurrent work of callers, so that no caller delays the others.
type Limits struct {
	// Calls carried out at once; further ones queue for up to 5 s. concurrency.global in policies.yaml may lower it. Callers in the
	// queue get their turn one after another, however many calls each of them has.
	Calls int `yaml:"calls" default:"256" min:"1" max:"65536"`
	// Of these, calls of one caller. From 4 calls on, one caller gets at most three quarters of any limit.
	CallsPerCaller int `yaml:"calls_per_caller" default:"64" min:"1" max:"65536"`
	// Calls of one caller that wait for a run (wait_seconds). They count only here: a waiting call holds none of the above.
	WaitsPerCaller int `yaml:"waits_per_caller" default:"512" min:"1" max:"65536"`

	// Previews of artifacts and logs read at once. Files of others are read only here and by the checks of imports and outputs, all of
	// them in constant memory.
	Previews int `yaml:"previews" default:"8" min:"1" max:"1024"`
	// Of these, those of one caller. After one that took longer than 20 ms its caller's place rests nine times as long, at most 5 s, so
	// that one caller keeps no processor busy.
	PreviewsPerCaller int `yaml:"previews_per_caller" default:"2" min:"1" max:"1024"`
	// Seconds that one preview may take.
	PreviewSeconds int `yaml:"preview_seconds" default:"10" min:"1" max:"600"`
	// Calls of artifact.verify at once, each of which reads every byte of what it verifies.
	Hashes int `yaml:"hashes" default:"4" min:"1" max:"1024"`
	// Of these, those of one caller.
	HashesPerCaller int `yaml:"hashes_per_caller" default:"1" min:"1" max:"1024"`

	// Event streams, uploads and downloads that one caller has open.
	StreamsPerCaller int `yaml:"streams_per_caller" default:"64" min:"1" max:"65536"`
	// Runs of one project that are not over. Beyond that a new run is refused (too_many_runs).
	OpenRunsPerProject int `yaml:"open_runs_per_project" default:"100000" min:"1" max:"10000000"`
	// Connections on the socket, as http.max_connections is for the port. Each of the two gets at most a quarter of the files this
	// process may open (LimitNOFILE), so that the ledger and Slurm's commands always find some. When they run short, connections that
	// are idle, or whose client has not sent a request yet, are closed: the oldest of the caller that has most of them.
	SocketConnections int `yaml:"socket_connections" default:"1024" min:"1" max:"65536"`
	// Connections of one caller.
	ConnectionsPerCaller int `yaml:"connections_per_caller" default:"512" min:"1" max:"65536"`
	// Connections from one address, or of one user on the socket, that have not sent credentials yet; one more closes the oldest of
	// them.
	ConnectionsPerAddress int `yaml:"connections_per_address" default:"256" min:"1" max:"65536"`

	// What a project keeps in artifacts, outputs of its runs included, in MiB; content that several artifacts share counts for each. A
	// project over its quota gets no new imports and no new runs (quota_exceeded); what its running jobs make is still collected. 0 is
	// no limit.
	ProjectQuotaMB int `yaml:"project_quota_mb" min:"0" max:"1073741824"`
	// Imported artifacts of a project.
	ProjectImports int `yaml:"project_imports" default:"200000" min:"1" max:"100000000"`

	// Runs in flight, of a project and of a caller in all projects together: sent to Slurm and not known to have ended. A further run
	// waits for its turn (project_limit, caller_limit). docs/run/limits.md, "Caps", says more. 0 is no limit; so it is for
	// the next four.
	ProjectRunsInFlight int `yaml:"project_runs_in_flight" min:"0" max:"1000000"`
	CallerRunsInFlight  int `yaml:"caller_runs_in_flight" min:"0" max:"1000000"`
	// Attempts started on a day (UTC). A further one is refused until midnight (cap_reached).
	ProjectRunsPerDay int `yaml:"project_runs_per_day" min:"0" max:"10000000"`
	CallerRunsPerDay  int `yaml:"caller_runs_per_day" min:"0" max:"10000000"`
	// CPU hours in a calendar month (UTC). A run reserves its CPUs for its whole time limit when it is accepted; when it has ended,
	// the time that its job ran counts. A run that would exceed it is refused (cap_reached).
	ProjectCPUHoursPerMonth int `yaml:"project_cpu_hours_per_month" min:"0" max:"100000000"`
	CallerCPUHoursPerMonth  int `yaml:"caller_cpu_hours_per_month" min:"0" max:"100000000"`
	// Calls of a caller that leave a record, or an idempotency key, in the ledger for ever: submits, imports, cancels and the like
	// that changed something. So many may come at once, and as many again in a minute, or day; a further one is refused with the
	// seconds to wait (too_many_records). Rows of a batch do not count. 0 is no limit.
	CallerRecordsPerMinute int `yaml:"caller_records_per_minute" default:"3000" min:"0" max:"10000000"`
	CallerRecordsPerDay    int `yaml:"caller_records_per_day" default:"50000" min:"0" max:"10000000"`
	// What a caller keeps in artifacts in all projects, in MiB: what it imported, the arguments and large answers of its calls, and
	// outputs, logs and scripts of its runs. Counted like project_quota_mb, and with the same effect on a caller over its quota. What
	// was stored without an owner counts for no caller. 0 is no limit.
	CallerQuotaMB int `yaml:"caller_quota_mb" min:"0" max:"1073741824"`

	Projects []ProjectLimit `yaml:"projects"` // other values for some projects
	Callers  []CallerLimit  `yaml:"callers"`  // and for some callers
}

// ProjectLimit sets the limits of one project.
type ProjectLimit struct {
	Project          string `yaml:"project"`                               // name or id, or {user}: each user's own
	QuotaMB          int    `yaml:"quota_mb" min:"0" max:"1073741824"`     // MiB, as project_quota_mb
	Imports          int    `yaml:"imports" min:"0" max:"100000000"`       // as project_imports; 0: its value
	Weight           int    `yaml:"weight" min:"0" max:"1000"`             // turns for one of another project; 0: 1
	RunsInFlight     int    `yaml:"runs_in_flight" min:"-1" max:"1000000"` // 0: as for all others, -1: no limit; the same holds for the next two
	RunsPerDay       int    `yaml:"runs_per_day" min:"-1" max:"10000000"`
	CPUHoursPerMonth int    `yaml:"cpu_hours_per_month" min:"-1" max:"100000000"`
}

// CallerLimit sets the limits of one caller.
type CallerLimit struct {
	Caller           string `yaml:"caller"`                                // as lists show it, e.g. user:alice, or the id of the principal, prn_…
	RunsInFlight     int    `yaml:"runs_in_flight" min:"-1" max:"1000000"` // 0: as for all others, -1: no limit; the same holds for the next three
	RunsPerDay       int    `yaml:"runs_per_day" min:"-1" max:"10000000"`
	CPUHoursPerMonth int    `yaml:"cpu_hours_per_month" min:"-1" max:"100000000"`
	QuotaMB          int    `yaml:"quota_mb" min:"-1" max:"1073741824"` // MiB, as caller_quota_mb
}

// Caps are the limits that projects and callers have in common.
type Caps struct{ RunsInFlight, RunsPerDay, CPUHoursPerMonth int }

// Caps returns the project's own limits.
func (p ProjectLimit) Caps() Caps { return Caps{p.RunsInFlight, p.RunsPerDay, p.CPUHoursPerMonth} }

// Caps returns the caller's own limits.
func (l CallerLimit) Caps() Caps { return Caps{l.RunsInFlight, l.RunsPerDay, l.CPUHoursPerMonth} }

func (c *checker) limits(l Limits) {
	for i, p := range l.Projects {
		if msg := plan.CheckProjects(p.Project); msg != "" {
			c.add("SITE-PROJECT", fmt.Sprintf("limits.projects[%d].project", i), "a project's name or id, or {user}", msg, "")
		}
	}
	for i, l := range l.Callers {
		if l.Caller == "" {
			c.add("SITE-CALLER", fmt.Sprintf("limits.callers[%d].caller", i), "a caller's name or id, as a list of runs shows it",
				"the caller is missing", "")
		}
	}
}
