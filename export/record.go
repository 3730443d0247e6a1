package export

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// Format is the newest version of the archive's documents. It changes with every change of a derived document, so that [Verify] knows
// whether it can make them again. An archive has the lowest one that can say what is in it: 2 has directories and names of references.
const Format = 2

// format is that of the run's archive.
func (r Run) format() int {
	if slices.ContainsFunc(slices.Concat(r.Inputs, r.Outputs), func(a Artifact) bool {
		return a.Type == plan.Directory || a.ReferenceName != ""
	}) {
		return 2
	}
	return 1
}

// Record is what the gateway has of a finished run.
type Record struct {
	Run    Run
	Exit   Exit
	Params []byte // canonical JSON
	Policy []byte // canonical JSON; nil where the gateway does not have it, which Run.Missing says
	Pack   []byte // the same; nil too for a plan submitted as it is
	Script []byte // nil where none was made
	Logs   []Log
	Events []Event

	Directories map[string][]tree.File // the files of directory artifacts, by the artifact's checksum

	Receipt []byte // DSSE envelope; nil where the run has none
	Keys    []byte // the public keys it names
	Output  []byte // of a worker's call: its answer; nil where it is an artifact, or there is none
}

// Run is run.json.
type Run struct {
	Format          int         `json:"slurmgate_export"` // [Format]
	RunID           string      `json:"run_id"`
	ToolID          string      `json:"tool_id"`
	ToolName        string      `json:"tool_name"` // as the run's id has it
	ToolVersion     string      `json:"tool_version"`
	ContractVersion string      `json:"contract_version"`
	PolicyHash      string      `json:"policy_hash"`
	ParamsHash      string      `json:"params_hash"`
	PlanHash        string      `json:"plan_hash"`
	PackHash        string      `json:"pack_hash"` // empty for a plan submitted as it is
	Project         string      `json:"project_id"`
	Site            string      `json:"site"`
	ExecutedAs      string      `json:"executed_as"` // the Unix user whose job it was; empty: the gateway's own
	Principal       string      `json:"principal"`   // whose call made the run; empty: not recorded
	State           string      `json:"state"`
	Reason          string      `json:"reason"`
	Detail          string      `json:"detail"`
	Attempt         int         `json:"attempt"`
	CreatedAt       time.Time   `json:"created_at"`
	StartedAt       *time.Time  `json:"started_at"`
	FinishedAt      time.Time   `json:"finished_at"`
	Kind            string      `json:"kind"`       // slurm, docker or worker
	Image           string      `json:"image"`      // sha256:<64 hex> of the SIF file; empty for a worker's call
	ImageName       string      `json:"image_name"` // as the toolpack names it
	Script          *ScriptNote `json:"script"`
	Inputs          []Artifact  `json:"inputs"`
	Outputs         []Artifact  `json:"outputs"`
	Logs            []Artifact  `json:"logs"`
	Warnings        []string    `json:"warnings"`
	Missing         []string    `json:"missing"`  // documents that the gateway no longer has, and why
	Redacted        []string    `json:"redacted"` // files in which names stand for the site's folders, or a mark for a secret
}

// ScriptNote is which script was sent.
type ScriptNote struct {
	ArtifactID string `json:"artifact_id"`
	SHA256     string `json:"sha256"` // as it was sent, with the site's paths
}

// Artifact is an input, an output or a log.
type Artifact struct {
	Role       string `json:"role"`
	Relpath    string `json:"relpath"` // in the workspace; empty for logs
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	Label      string `json:"label"`
	SizeBytes  int64  `json:"size_bytes"`
	SHA256     string `json:"sha256"`
	File       string `json:"file"` // in the archive, for a directory the folder with a slash at its end; empty: by reference
	Reference  string `json:"reference"`
	Why        string `json:"by_reference_because"` // empty for one that is in the archive
	// the site's name for the bytes of an input, where they had one when the run ended
	ReferenceName string `json:"reference_name,omitempty"`
}

// folder reports whether the artifact is a directory whose files are in the archive.
func (a Artifact) folder() bool { return a.Type == plan.Directory && strings.HasSuffix(a.File, "/") }

// folders are the directories whose files are in the archive, each once.
func (r Run) folders() (out []Artifact) {
	for _, a := range slices.Concat(r.Inputs, r.Outputs) {
		if a.folder() && !slices.ContainsFunc(out, func(o Artifact) bool { return o.File == a.File }) {
			out = append(out, a)
		}
	}
	return out
}

// inFolder reports whether a file of the archive is in one of the directories.
func inFolder(folders []Artifact, name string) bool {
	return slices.ContainsFunc(folders, func(a Artifact) bool { return strings.HasPrefix(name, a.File) })
}

// Log is a log's text, without secrets and paths.
type Log struct {
	Role string
	Text []byte
}

// Exit is exit.json: how the attempts ended, the last one first in importance and last in order.
type Exit struct {
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one intended execution.
type Attempt struct {
	Attempt  int    `json:"attempt"`
	Ending   string `json:"ending"`
	ExitCode *int   `json:"exit_code"`
	JobName  string `json:"job_name"`
	JobID    string `json:"job_id"`
	Cluster  string `json:"cluster"`
	// what it had, where a retry gave it more than the plan says; absent: what the plan says
	Resources  *plan.Resources `json:"resources,omitzero"`
	SlurmState string          `json:"slurm_state"`
	Node       string          `json:"node"`
	CreatedAt  time.Time       `json:"created_at"`
	StartedAt  *time.Time      `json:"started_at"`
	EndedAt    *time.Time      `json:"ended_at"`
	Usage      json.RawMessage `json:"usage"` // as the job itself recorded it; null: nothing
}

// Options say which artifacts go into the archive.
type Options struct {
	ByReference bool  // none
	MaxBytes    int64 // none that is larger; 0: any
	// inputs, by checksum, that are in the archive of the batch instead
	Shared map[string]bool
}

// Opener opens the bytes with a checksum (64 hex digits).
type Opener func(ctx context.Context, sha256 string) (io.ReadCloser, error)

// document writes a document as the archive has it: indented, so that people can read it.
func document(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// identity is what the run's id is made of.
func (r Run) identity() plan.Identity {
	return plan.Identity{ToolName: r.ToolName, ContractVersion: r.ContractVersion, PolicyHash: r.PolicyHash, ParamsHash: r.ParamsHash}
}

// succeeded reports whether the run ended well.
func (r Run) succeeded() bool { return r.State == "succeeded" }
