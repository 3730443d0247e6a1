// Package policy has the policy snapshot of a domain: the content of policies.yaml, expanded once, hashed, and
// checked before every execution.
//
// [Parse] reads the bytes of a policies.yaml; the package itself touches no file and no environment. The hash covers
// the expanded document as written, without the defaults filled in here, so that a changed default of a newer gateway
// does not change the identity of runs.
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

// Policy is a policies.yaml. An absent allow-list allows everything within the plan's own rules; an empty list allows
// nothing.
type Policy struct {
	// Of this format. A file in AX's form has none.
	Version int `yaml:"version" default:"1" min:"1" max:"1"`
	// Tools that may be called, by name: the id with _ for each dot.
	ToolAllowlist *[]string `yaml:"tool_allowlist" is:"tool" example:"samtools_flagstat"`
	// Images that may be used, each as sha256:<64 hex digits>. Absent: those of images.lock.yaml.
	ImagesAllowlist *[]string `yaml:"images_allowlist" is:"digest"`
	// What jobs may ask for. A plan that asks for more is refused.
	Slurm Slurm `yaml:"slurm"`
	// On which clusters of the site file runs may execute, and where those go whose callers name no site.
	Sites Sites `yaml:"sites"`
	// What runs on the gateway's own host without Slurm: tools of planKind docker, and hybrid ones that fit. Without this section nothing
	// does.
	Local Local `yaml:"local" default:"absent"`
	// What may be imported. Which folders files come from is in the site file (import.roots).
	Import Import `yaml:"import"`
	// How large answers, logs and collected outputs may be.
	Limits Limits `yaml:"limits"`
	// Variables that a toolpack may ask for by name (env.passthrough). Their values are part of every run's identity, and only ${NAME}
	// brings in anything of the gateway's own environment; $${ is a literal ${.
	Env map[string]string `yaml:"env" key:"env" example:"LANG: C.UTF-8"`
	// What a submit does when the same request is in flight or has succeeded under another policy: submit, or reuse, which answers with
	// that run.
	EquivalentRuns string     `yaml:"equivalent_runs" default:"submit" enum:"submit,reuse" code:"EQUIVALENT-RUNS"`
	ExecutedAs     ExecutedAs `yaml:"executed_as"`
	Retry          Retry      `yaml:"retry"`
	// The network of jobs: none.
	Network string `yaml:"network" default:"none" enum:"none" code:"NETWORK" ax:"default_egress_policy"`
	// Concurrent calls and runs. 0 is no limit.
	Concurrency Concurrency `yaml:"concurrency" ax:"max_inflight per_tool_max_inflight"`
	Workers     Workers     `yaml:"workers"`
	// Which calls need a person's approval of exactly that payload.
	Consent Consent `yaml:"consent"`
	// Seconds of one call whose tool sets no timeout.
	DefaultTimeoutSec int64 `yaml:"default_timeout_sec" default:"900" min:"1" max:"604800"`
	// Hosts that service workers may reach, each as host:port. Callers see them with the tool; the gateway does not enforce them.
	EgressAllowlist []string `yaml:"egress_allowlist" is:"host" example:"api.example.org:443"`
	Logging         Logging  `yaml:"logging" ax:"include_request_body"`

	// Hash is the policy_hash: "sha256:" and the hex SHA-256 of Snapshot.
	Hash string `yaml:"-"`
	// Snapshot is the canonical JSON of the expanded document.
	Snapshot json.RawMessage `yaml:"-"`

	file string          // the file it was read from
	doc  *yamldoc.Reader // of the file, for the places of its fields

	axTools map[string]yamldoc.Value // where the limits of tools in AX's form are, by tool name
}

// Slurm limits what jobs may ask for. Absent maxima are those of the plan.
type Slurm struct {
	Partitions *[]string `yaml:"partitions_allowlist" is:"slurm" example:"main, short"`
	// The accounts that jobs may charge.
	Accounts *[]string `yaml:"accounts_allowlist" is:"slurm" example:"research"`
	// A plan without QOS is always allowed: Slurm's default applies.
	QOS *[]string `yaml:"qos_allowlist" is:"slurm" example:"normal"`
	// Features and whole expressions: a plan's constraint is listed, or each of its features is.
	Constraints *[]string `yaml:"constraints_allowlist" is:"constraint" example:"avx2, \"intel&ib\""`
	// A plan with GPUs must name a listed type.
	GPUTypes            *[]string `yaml:"gpu_types_allowlist" is:"slurm" example:"a100"`
	MaxCPUs             int       `yaml:"max_cpus" default:"256" min:"1" max:"256"`
	MaxMemMB            int       `yaml:"max_mem_mb" default:"2097152" min:"1" max:"2097152"`
	MaxTimeLimitSeconds int       `yaml:"max_time_limit_seconds" default:"604800" min:"1" max:"604800"`
	// 0: no job may use one.
	MaxGPUs int `yaml:"max_gpus" default:"16" min:"0" max:"16"`
	// Complete plans without a toolpack (slurm_submit). docs/tools/toolpacks.md, "Raw plans", says what allowing them is worth.
	RawPlans RawPlans `yaml:"raw_plans"`
}

// RawPlans configures whether a complete plan may be submitted without a toolpack.
type RawPlans struct {
	Allowed bool `yaml:"allowed"`
	// The programs that a raw plan may start, for each image by its name in images.lock.yaml or its digest. Shells and programs that
	// start others or run code given in an argument are refused.
	EntryPrograms map[string][]string `yaml:"entry_programs" key:"image" is:"program" example:"samtools: [samtools]"`
	// The variables that a raw plan may set. Absent: language, time zone and numbers of threads.
	Env *[]string `yaml:"env" is:"variable" example:"LC_ALL, TZ"`
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

// Local limits what runs on the gateway's own host without Slurm: docker plans, and hybrid tools that fit on the
// host. Without the section nothing runs there.
type Local struct {
	Allowed             bool      `yaml:"-"` // the section local exists
	Tools               *[]string `yaml:"tools_allowlist" is:"tool" example:"text_count"`
	MaxRunning          int       `yaml:"max_running" default:"1" min:"1" max:"64"` // concurrent runs
	MaxCPUs             int       `yaml:"max_cpus" default:"1" min:"1" max:"256"`
	MaxMemMB            int       `yaml:"max_mem_mb" default:"1024" min:"1" max:"2097152"`
	MaxTimeLimitSeconds int       `yaml:"max_time_limit_seconds" default:"60" min:"1" max:"3600"`
	// Bytes of all inputs of a run together.
	MaxInputBytes int64 `yaml:"max_input_bytes" default:"104857600" min:"0" max:"9007199254740991"`
}

// Import limits what may be imported.
type Import struct {
	Roots []string `yaml:"-"` // absolute folders, from the site file; none: no import by path
	// Bytes of one file.
	MaxBytes int64 `yaml:"max_bytes" default:"1099511627776" min:"0" max:"9007199254740991"`
	// The ways of importing. Absent: all of these.
	Kinds *[]string `yaml:"kinds" is:"kind" example:"path, text, upload"`
	// Types of artifacts that may be imported.
	Types *[]string `yaml:"types_allowlist" is:"type" example:"FASTQ_GZ, BAM"`
	// Bounds of a directory besides those that every directory has.
	Directory *DirectoryLimits `yaml:"directory"`
}

// DirectoryLimits bound a directory that is imported; 0: as every directory artifact.
type DirectoryLimits struct {
	MaxFiles int64 `yaml:"max_files" min:"1" max:"200000" example:"10000"`
	// Folders below the directory, one in another.
	MaxDepth int64 `yaml:"max_depth" min:"1" max:"32" example:"8"`
	// Bytes of all files together.
	MaxBytes int64 `yaml:"max_bytes" min:"1" max:"9007199254740991" example:"107374182400"`
}

// Limits bound the size of answers, logs and collected outputs.
type Limits struct {
	PreviewBytes int64 `yaml:"preview_bytes" default:"16384" min:"1" max:"65536"`
	PreviewLines int64 `yaml:"preview_lines" default:"200" min:"1" max:"2000"`
	// Bytes of all outputs of a run together.
	CollectBytes int64 `yaml:"collect_bytes" default:"1099511627776" min:"1" max:"9007199254740991"`
	// Bytes of a log that are stored.
	LogBytes int64 `yaml:"log_bytes" default:"1048576" min:"1" max:"67108864"`
}

// ExecutedAs configures runs that are executed as the user who asked (run_as: caller in the site file).
type ExecutedAs struct {
	// With run_as: caller in the site file: names or ids of projects in which a request is answered with an equivalent run of another
	// user, who could have forged its outputs. In all others no caller gets another's run, or learns of it.
	SharedProjects []string `yaml:"shared_projects" is:"project" example:"demo"`
}

// Shares reports whether users of a project share their runs.
func (x ExecutedAs) Shares(projectID string) bool {
	return slices.ContainsFunc(x.SharedProjects, func(p string) bool { return plan.ProjectOf(p) == projectID })
}

// Retry configures what the gateway does automatically when the infrastructure, not the tool, ended an attempt.
type Retry struct {
	// Further attempts after node failures and preemption. A tool's own failure is never repeated.
	InfrastructureAttempts int `yaml:"infrastructure_attempts" default:"1" min:"0" max:"10"`
}

// Workers configures tools that service workers execute.
type Workers struct {
	// Concurrent calls of service workers, which are not among concurrency.global. Absent: as many as that.
	MaxCalls int `yaml:"max_calls" min:"1" max:"10000" example:"16"`
	// Hybrid tools whose calls go to their service worker; those of all others become jobs.
	Hybrid []string `yaml:"hybrid" is:"tool" example:"text_count"`
}

// Concurrency limits concurrent calls and runs. 0 is no limit.
type Concurrency struct {
	// Calls of all tools together, those of service workers aside.
	Global int `yaml:"global" min:"0" max:"10000"`
	// By tool name: runs in flight of a toolpack, concurrent calls of an operation or of a worker's tool.
	PerTool map[string]int `yaml:"per_tool" key:"tool" min:"1" max:"10000" example:"samtools_flagstat: 8"`
}

// Logging configures how much the gateway logs.
type Logging struct {
	// debug, info, warn or error.
	Level string `yaml:"level" default:"info" enum:"info,debug,warn,error,INFO,DEBUG,WARN,WARNING,ERROR" code:"LOG-LEVEL"`
}
