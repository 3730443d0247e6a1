package toolpack

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"slurmgate/plan"
	"slurmgate/toolpack/jinja"
)

// ABIVersion is the only version of the toolpack format understood here.
const ABIVersion = "v1"

// The plan kinds. Only slurm can be canonicalised so far.
const (
	KindSlurm  = "slurm"
	KindDocker = "docker"
	KindHybrid = "hybrid"
)

// Pack is one toolpack that passed every check. It is immutable and safe for concurrent use.
type Pack struct {
	def       definition
	file      string
	idAt      place                      // of the id, in the file
	imageAt   place                      // of container.image
	bindsAt   place                      // of binds
	programs  []program                  // execution.cmd, or those of execution.pipe
	envs      map[string]*jinja.Template // env.set
	context   map[string]any             // templating.context; never changed
	types     []string                   // artifact types of the domain
	in        contract
	out       contract
	runOutput json.RawMessage // the schema of a finished run's output
	rules     rules
	hash      string
	canonical func() ([]byte, error) // the canonical JSON of def, made when first needed
}

// place is a line and a column of a file, from 1.
type place struct{ line, column int }

// definition is the normal form of a toolpack file; pack_hash covers its canonical JSON.
type definition struct {
	ID              string              `json:"id"`
	ToolName        string              `json:"toolName,omitzero"` // empty: the id with _ for each dot
	Version         string              `json:"version"`
	ABIVersion      string              `json:"abiVersion"`
	ContractVersion string              `json:"contractVersion"`
	PlanKind        string              `json:"planKind"`
	DisplayName     string              `json:"displayName"`
	Description     string              `json:"description"`
	Capabilities    []string            `json:"capabilities,omitempty"`
	Deterministic   bool                `json:"deterministic"`
	TimeoutMs       int64               `json:"timeoutMs"`
	Limits          limits              `json:"limits"`
	InputSchema     json.RawMessage     `json:"inputSchema"`
	OutputSchema    json.RawMessage     `json:"outputSchema"`
	Inputs          []input             `json:"inputs"`
	Outputs         []output            `json:"declaredOutputs"`
	StrictOutputs   bool                `json:"strictOutputs"`
	Stderr          []lineRule          `json:"stderr,omitzero"`
	Image           string              `json:"image"`
	Resources       resources           `json:"resources"`
	Placement       plan.AskedPlacement `json:"placement"`
	Execution       execution           `json:"execution"`
	Caps            caps                `json:"caps"`
	Env             environment         `json:"env"`
	Templating      templating          `json:"templating"`
	Binds           []string            `json:"binds,omitempty"`
	OutputSchemaOf  string              `json:"outputSchemaOf,omitzero"` // result, or nothing: outputs
}

type limits struct {
	MaxInputBytes  int64 `json:"maxInputBytes"`
	MaxOutputBytes int64 `json:"maxOutputBytes"`
}

type output struct {
	Role       string      `json:"role"`
	Type       string      `json:"type"`
	Label      string      `json:"label"`
	SrcRelpath string      `json:"srcRelpath"`
	MinBytes   int64       `json:"minBytes,omitzero"`
	MinRows    int64       `json:"minRows,omitzero"`
	Checks     []condition `json:"checks,omitzero"`
	Lines      []lineRule  `json:"lines,omitzero"`

	DownloadName string `json:"downloadName,omitzero"`
}

type resources struct {
	CPUs             int     `json:"cpus"`
	MemMB            int     `json:"memMb"`
	TimeLimitSeconds int     `json:"timeLimitSeconds"`
	GPUs             *int    `json:"gpus"`
	GPUType          *string `json:"gpuType"`
	MemGrows         growth  `json:"memMbGrows,omitzero"`
	TimeGrows        growth  `json:"timeLimitSecondsGrows,omitzero"`
}

type execution struct {
	Kind    string            `json:"kind"`
	Cmd     []word            `json:"cmd,omitempty"`
	Pipe    [][]word          `json:"pipe,omitempty"`
	Stdout  *string           `json:"stdout,omitempty"`
	Stdin   *string           `json:"stdin,omitempty"`
	Module  string            `json:"module,omitempty"`
	Script  string            `json:"script,omitempty"`
	Result  string            `json:"result,omitempty"` // srcRelpath of the output that receives the result
	Payload string            `json:"payload,omitzero"` // arguments, or nothing: request
	Args    []string          `json:"args,omitempty"`   // of a node script, behind the two paths
	PHP     string            `json:"phpBinary,omitzero"`
	URL     string            `json:"url,omitempty"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

type caps struct {
	Network    []string `json:"network"`
	Read       []string `json:"read"`
	Write      []string `json:"write"`
	Subprocess bool     `json:"subprocess"`
}

type environment struct {
	Passthrough []string          `json:"passthrough"`
	Set         map[string]string `json:"set"`
}

type templating struct {
	Engine  string          `json:"engine"`
	Context json.RawMessage `json:"context"`
}

// ID returns the tool_id, e.g. samtools.flagstat.
func (p *Pack) ID() string { return p.def.ID }

// ToolName returns the MCP name, and T in the run's identity: the pack's toolName, or else its id with _ for each
// dot.
func (p *Pack) ToolName() string { return cmp.Or(p.def.ToolName, toolName(p.def.ID)) }

// Version returns the pack's semantic version, without suffix.
func (p *Pack) Version() string { return release(p.def.Version) }

// ContractVersion returns C in the run's identity, e.g. v1.
func (p *Pack) ContractVersion() string { return p.def.ContractVersion }

// PlanKind returns slurm, docker or hybrid.
func (p *Pack) PlanKind() string { return p.def.PlanKind }

// ExecutionKind returns cli, python, node, php or http.
func (p *Pack) ExecutionKind() string { return p.def.Execution.Kind }

// DisplayName returns the name for people; the id for a pack without one.
func (p *Pack) DisplayName() string { return p.def.DisplayName }

// Description returns the pack's description of the tool.
func (p *Pack) Description() string { return p.def.Description }

// Capabilities returns the purposes of the tool, in words that programs search by, e.g. alignment.summary; empty when
// the pack declares none.
func (p *Pack) Capabilities() []string { return slices.Clone(p.def.Capabilities) }

// Deterministic reports whether the same inputs give the same outputs. Replay does not depend on it.
func (p *Pack) Deterministic() bool { return p.def.Deterministic }

// Timeout returns how long a run may take without the time in the queue.
func (p *Pack) Timeout() time.Duration { return milliseconds(p.def.TimeoutMs) }

// milliseconds returns a duration, at most the longest possible.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// timeoutSec returns the timeout in seconds, rounded up.
func (p *Pack) timeoutSec() int64 { return (p.def.TimeoutMs + 999) / 1000 }

// Image returns the name that images.lock.yaml maps to a digest; "" for a pack that does not run in a container.
func (p *Pack) Image() string { return p.def.Image }

// Passthrough lists the variables the tool needs from the policy's env.
func (p *Pack) Passthrough() []string { return slices.Clone(p.def.Env.Passthrough) }

// InputSchema returns the JSON Schema of the arguments, self-contained.
func (p *Pack) InputSchema() json.RawMessage { return slices.Clone(p.in.raw) }

// OutputSchema returns the JSON Schema of the finished run's output, self-contained.
func (p *Pack) OutputSchema() json.RawMessage { return slices.Clone(p.runOutput) }

// Hash returns the pack_hash: it covers the normalised pack with its resolved schemas, but not layout or comments.
func (p *Pack) Hash() string { return p.hash }

// InputInfo is one artifact the tool takes.
type InputInfo struct {
	Role  string   `json:"role"`
	Param string   `json:"param"` // the argument that carries the artifact_id
	Types []string `json:"types"` // artifact types accepted

	List     *ListInfo `json:"list,omitzero"`     // absent: the argument is one artifact_id; else a list of them
	Optional bool      `json:"optional,omitzero"` // the argument may be left out
	Group    string    `json:"group,omitzero"`    // inputs of one group are files that belong together
}

// ListInfo is the number of artifacts that an input takes.
type ListInfo struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Inputs lists the artifacts the tool takes, in the order of the pack.
func (p *Pack) Inputs() []InputInfo {
	out := make([]InputInfo, len(p.def.Inputs))
	for i, in := range p.def.Inputs {
		out[i] = InputInfo{Role: in.Role, Param: in.Param, Types: slices.Clone(in.Types), Optional: in.Optional, Group: in.Group,
			List: (*ListInfo)(clone(in.List))}
	}
	return out
}

// MaxInputBytes returns how many bytes the inputs of a call may have in total.
func (p *Pack) MaxInputBytes() int64 { return p.def.Limits.MaxInputBytes }

// OutputInfo is one output the tool declares.
type OutputInfo struct {
	Role  string `json:"role"`
	Type  string `json:"type"`
	Label string `json:"label"`
}

// Outputs lists the declared outputs, in the order of the pack.
func (p *Pack) Outputs() []OutputInfo {
	out := make([]OutputInfo, len(p.def.Outputs))
	for i, o := range p.def.Outputs {
		out[i] = OutputInfo{o.Role, o.Type, o.Label}
	}
	return out
}

func toolName(id string) string { return strings.ReplaceAll(id, ".", "_") }
