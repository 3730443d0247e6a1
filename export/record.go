package export

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"slurmgate/export/receipt"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// Format is the version of the archive's documents. It changes with every change of a derived document. [Verify] judges this one alone:
// what it cannot make again, it does not call intact.
const Format = 3

// Record is the gateway's record of a finished run.
type Record struct {
	Run    Run
	Exit   receipt.Exit
	Params []byte // canonical JSON
	Policy []byte // canonical JSON; nil where the gateway does not have it, with a note in Run.Missing
	Pack   []byte // the same; nil too for a plan submitted as it is
	Script []byte // nil where none was made
	Logs   []Log
	Events []Event

	Directories map[string][]tree.File // the files of directory artifacts, by the artifact's checksum

	Receipt []byte      // DSSE envelope; nil where the run has none
	Key     receipt.Key // that signed the receipt
	Signer  receipt.Signer
	Output  []byte // of a worker's call: its answer; nil if it is an artifact, or absent
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
	Rows            []Row       `json:"rows"`        // of batches, whose run it was when it ended
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
	Rejected        []Artifact  `json:"rejected,omitempty"` // outputs that were refused, of which the gateway keeps the bytes; none is in the archive
	Logs            []Artifact  `json:"logs"`
	Warnings        []string    `json:"warnings"`
	Missing         []string    `json:"missing"`  // documents that the gateway no longer has, and why
	Redacted        []string    `json:"redacted"` // files in which names replace the site's folders, or a mark replaces a secret
}

// Row is a row of a batch.
type Row struct {
	BatchID string `json:"batch_id"`
	Row     int    `json:"row"` // line of the sheet
	Sample  string `json:"sample"`
}

// RowsOf returns the rows in a receipt.
func RowsOf(rows []receipt.Row) []Row {
	out := []Row{}
	for _, w := range rows {
		out = append(out, Row(w))
	}
	return out
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
	// of an input that the job read in place: the basis of its bytes
	InPlace *receipt.InPlace `json:"in_place,omitempty"`
}

// folder reports whether the artifact is a directory whose files are in the archive.
func (a Artifact) folder() bool { return a.Type == plan.Directory && strings.HasSuffix(a.File, "/") }

// folders returns the directories whose files are in the archive, each once.
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

// resources returns those of the last attempt, where they are not the plan's.
func resources(x receipt.Exit) (r plan.Resources, ok bool, err error) {
	n := len(x.Attempts)
	if n == 0 || len(x.Attempts[n-1].Resources) == 0 {
		return r, false, nil
	}
	return r, true, plan.Decode(x.Attempts[n-1].Resources, &r)
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

// identity returns the parts of the run's id.
func (r Run) identity() plan.Identity {
	return plan.Identity{ToolName: r.ToolName, ContractVersion: r.ContractVersion, PolicyHash: r.PolicyHash, ParamsHash: r.ParamsHash}
}

// succeeded reports whether the run ended well.
func (r Run) succeeded() bool { return r.State == "succeeded" }
