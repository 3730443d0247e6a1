// Package policy is the policy snapshot of a domain: the content of policies.yaml, expanded once, hashed, and checked before
// every execution.
//
// [Parse] reads the bytes of a policies.yaml; the package itself touches no file and no environment. The hash
// covers the expanded document as it was given, without the defaults filled in here, so that a default changed
// by a newer gateway does not change the identity of runs, and without the key that belongs in the site file ([Policy.Moved]).
//
// Nouns: policy, snapshot, policy_hash, rule.
package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Policy is a policies.yaml. Allow-lists that are absent allow everything the plan's own rules do; an
// empty list allows nothing.
type Policy struct {
	Version int `json:"version"` // 1

	ToolAllowlist   *[]string `json:"tool_allowlist"`   // tool names, e.g. samtools_flagstat
	ImagesAllowlist *[]string `json:"images_allowlist"` // sha256:<64 hex>; absent: the images of images.lock.yaml

	Slurm  Slurm  `json:"slurm"`
	Sites  Sites  `json:"sites"`
	Import Import `json:"import"`
	Local  Local  `json:"local"`
	Limits Limits `json:"limits"`

	// Env are the variables a toolpack may ask for by name (env.passthrough). Their values are part of the policy and so of
	// every run's identity: only ${NAME} here brings in anything from the gateway's own environment.
	Env map[string]string `json:"env"`

	// EquivalentRuns says what a submit does when the same request is in flight or succeeded under another
	// policy: "submit" (the default) or "reuse".
	EquivalentRuns string     `json:"equivalent_runs"`
	ExecutedAs     ExecutedAs `json:"executed_as"`
	Retry          Retry      `json:"retry"`
	Network        string     `json:"network"` // "none", the only mode

	Workers           Workers     `json:"workers"`
	Consent           Consent     `json:"consent"`
	Concurrency       Concurrency `json:"concurrency"`
	DefaultTimeoutSec int64       `json:"default_timeout_sec"` // of a call whose tool has no timeout of its own, 1..604800; 900 when absent
	EgressAllowlist   []string    `json:"egress_allowlist"`    // host:port; metadata for service workers
	Logging           Logging     `json:"logging"`

	// Hash is the policy_hash: "sha256:" and the hex SHA-256 of Snapshot.
	Hash string `json:"-"`
	// Snapshot is the canonical JSON of the expanded document, without import.roots.
	Snapshot json.RawMessage `json:"-"`
	// Moved: the document has import.roots, which belongs in the site file now. It works as long as the site file does not have it, and is
	// not part of the hash.
	Moved bool `json:"-"`

	file string          // it was read from
	doc  *yamldoc.Reader // of the file, for the places of its fields

	perTool map[string]yamldoc.Value // where the limits of tools are, by tool name
}

// Slurm limits what jobs may ask for. Maxima that are absent are those of the plan.
type Slurm struct {
	Partitions          *[]string `json:"partitions_allowlist"`
	Accounts            *[]string `json:"accounts_allowlist"`
	QOS                 *[]string `json:"qos_allowlist"`         // a plan without QOS is always allowed: Slurm's default applies
	Constraints         *[]string `json:"constraints_allowlist"` // features and whole expressions: a plan's is listed, or each of its features is
	GPUTypes            *[]string `json:"gpu_types_allowlist"`   // a plan with GPUs must name a listed type
	MaxCPUs             int       `json:"max_cpus"`
	MaxMemMB            int       `json:"max_mem_mb"`             // MiB
	MaxTimeLimitSeconds int       `json:"max_time_limit_seconds"` // seconds
	MaxGPUs             int       `json:"max_gpus"`               // 0: no job may use one
	RawPlans            RawPlans  `json:"raw_plans"`
}

// RawPlans says whether a complete plan may be submitted without a toolpack.
type RawPlans struct {
	Allowed bool `json:"allowed"`
	// EntryPrograms lists, for an image (its digest, or its name in images.lock.yaml), the base names of the programs a raw
	// plan may start. Shells and programs that start others cannot be listed.
	EntryPrograms map[string][]string `json:"entry_programs"`
	// Env lists the variables that a raw plan may set; absent: [DefaultRawEnv].
	Env *[]string `json:"env"`
}

// MaySet reports whether a raw plan may set a variable of the program's environment.
func (r RawPlans) MaySet(name string) bool { return slices.Contains(r.variables(), name) }

func (r RawPlans) variables() []string {
	if r.Env != nil {
		return *r.Env
	}
	return DefaultRawEnv()
}

// DefaultRawEnv lists the variables that a raw plan may set under a policy that lists none: language, time zone and numbers of threads.
// The list is not part of the policy's hash.
func DefaultRawEnv() []string {
	return strings.Fields("LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME TZ SOURCE_DATE_EPOCH NO_COLOR " +
		"OMP_NUM_THREADS OMP_THREAD_LIMIT OMP_DYNAMIC OMP_NESTED OMP_PLACES OMP_PROC_BIND OMP_SCHEDULE OMP_STACKSIZE OPENBLAS_NUM_THREADS " +
		"GOTO_NUM_THREADS BLIS_NUM_THREADS MKL_NUM_THREADS MKL_DYNAMIC NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS VECLIB_MAXIMUM_THREADS " +
		"RAYON_NUM_THREADS GOMAXPROCS POLARS_MAX_THREADS")
}

// Local limits what runs on the gateway's own host without Slurm: docker plans, and hybrid tools that fit on the host.
// Without it nothing runs there.
type Local struct {
	Allowed             bool      `json:"-"`                      // the section local exists
	Tools               *[]string `json:"tools_allowlist"`        // tool names; absent: all
	MaxRunning          int       `json:"max_running"`            // at one time; 1 when absent
	MaxCPUs             int       `json:"max_cpus"`               // 1 when absent
	MaxMemMB            int       `json:"max_mem_mb"`             // MiB; 1024 when absent
	MaxTimeLimitSeconds int       `json:"max_time_limit_seconds"` // seconds; 60 when absent
	MaxInputBytes       int64     `json:"max_input_bytes"`        // all inputs together; 100 MiB when absent
}

// Import limits what may be imported.
type Import struct {
	Roots    []string `json:"roots"`     // absolute folders, of the site file where it has some; none: no import by path
	MaxBytes int64    `json:"max_bytes"` // of one file; 1 TiB when absent
	// Kinds are the ways of importing: path, text, upload; all of them when absent. Types are the artifact types that may be imported.
	Kinds *[]string `json:"kinds"`
	Types *[]string `json:"types_allowlist"`
	// Directory bounds a directory beside what every directory artifact is bound to; absent: nothing does.
	Directory *DirectoryLimits `json:"directory,omitempty"`
}

// DirectoryLimits bound a directory that is imported; 0: as every directory artifact.
type DirectoryLimits struct {
	MaxFiles int64 `json:"max_files,omitempty"`
	MaxDepth int64 `json:"max_depth,omitempty"` // folders below the directory, one in another
	MaxBytes int64 `json:"max_bytes,omitempty"` // of all files together
}

// Limits bound the size of answers, logs and collected outputs.
type Limits struct {
	PreviewBytes int64 `json:"preview_bytes"` // 1..65536 bytes, 16384 when absent
	PreviewLines int64 `json:"preview_lines"` // 1..2000 lines, 200 when absent
	CollectBytes int64 `json:"collect_bytes"` // all outputs of a run together; 1 TiB when absent
	LogBytes     int64 `json:"log_bytes"`     // how much of a log is stored; 1..67108864, 1 MiB when absent
}

// ExecutedAs is about runs that are executed as the user who asked (run_as: caller in the site file).
type ExecutedAs struct {
	// SharedProjects are names or ids of projects in which a request is answered with an equivalent run of another user, who could have
	// forged its outputs. In all others nobody is answered with another's run, or learns of it.
	SharedProjects []string `json:"shared_projects"`
}

// Shares reports whether users of a project share their runs.
func (x ExecutedAs) Shares(projectID string) bool {
	return slices.ContainsFunc(x.SharedProjects, func(p string) bool { return plan.ProjectOf(p) == projectID })
}

// Retry says what the gateway does by itself when the infrastructure, not the tool, ended an attempt.
type Retry struct {
	InfrastructureAttempts int `json:"infrastructure_attempts"` // further attempts beyond the first, 0..10; 1 when absent
}

// Workers is about tools that service workers carry out.
type Workers struct {
	MaxCalls int      `json:"max_calls"` // at a time, of all tools together; they are not among concurrency.global. As many as that when absent
	Hybrid   []string `json:"hybrid"`    // names of the hybrid tools whose calls go to their worker; those of all others become jobs
}

// Concurrency limits concurrent calls and runs. 0 is no limit.
type Concurrency struct {
	Global  int            `json:"global"`   // calls of all tools together, those of service workers aside, of which there may be as many again
	PerTool map[string]int `json:"per_tool"` // by tool name: runs in flight of a toolpack, concurrent calls of an operation or a worker's tool
}

// Logging is how much the gateway logs.
type Logging struct {
	Level string `json:"level"` // debug, info (the default), warn, error
}
