package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/plan"
)

// SideEffect is a tool's effect outside the gateway.
type SideEffect string

// The side effects.
const (
	Read    SideEffect = "READ"
	Write   SideEffect = "WRITE"
	Execute SideEffect = "EXECUTE"
)

// What a repeated call does.
const (
	Idempotent        = "IDEMPOTENT"          // nothing more
	IdempotentWithKey = "IDEMPOTENT_WITH_KEY" // nothing more when it carries the same idempotency key
	NonIdempotent     = "NON_IDEMPOTENT"
)

// Whether the same call gives the same answer.
const (
	Deterministic    = "DETERMINISTIC"
	BestEffort       = "BEST_EFFORT"
	NonDeterministic = "NON_DETERMINISTIC"
)

// Whether a tool works without a network beyond the cluster.
const (
	OfflineOK         = "OFFLINE_OK"
	RequiresNetwork   = "REQUIRES_NETWORK"
	BestEffortOffline = "BEST_EFFORT_OFFLINE"
)

// Tool is one entry of the registry (HTC-05): identity, contract and the function that does it. MCP's tools/list and HTTP's
// /v1/tools are made of nothing else.
type Tool struct {
	ID              string     `json:"tool_id"`          // dotted, e.g. slurm.job.get
	ToolName        string     `json:"-"`                // empty: the id with _ for each dot
	Version         string     `json:"tool_version"`     // semantic version, MAJOR.MINOR.PATCH
	ContractVersion string     `json:"contract_version"` // e.g. v1
	Title           string     `json:"display_name"`
	Description     string     `json:"description"`
	SideEffect      SideEffect `json:"side_effect"`
	Idempotency     string     `json:"idempotency"`
	Determinism     string     `json:"determinism"`
	Availability    string     `json:"availability"`
	Capabilities    []string   `json:"required_capabilities"` // what a caller must have, every one, on the project that the call is about
	SiteWide        bool       `json:"-"`                     // the call is about no project but about all: it needs them on project [All]
	// what the tool is for, in the words of its pack, e.g. alignment.summary; may be empty
	Purposes []string    `json:"capabilities"`
	Bindings []Transport `json:"transport_bindings"` // the ways it can be reached by; by others there is no such tool
	Egress   []string    `json:"egress_allowlist"`   // host:port the tool talks to; metadata
	// JSON Schemas: of args, an object schema that allows nothing unknown; of the result of the call; of the finished run's output, for
	// tools that submit one, may be empty
	Input     json.RawMessage `json:"input_schema"`
	Output    json.RawMessage `json:"output_schema"`
	RunOutput json.RawMessage `json:"run_output_schema"`

	// Described is Output with descriptions for people, see [DescribedSchemaOf]; nil: Output has all there is
	Described func() json.RawMessage `json:"-"`
	// Says describes a result in blocks that every face shows; nil: the tool's results are shown as they are
	Says func(result json.RawMessage) (blocks.Document, error) `json:"-"`
	// SaysDryRun does the same for the result of DryRun
	SaysDryRun    func(would json.RawMessage) (blocks.Document, error) `json:"-"`
	Timeout       time.Duration                                        `json:"-"` // of the call; 0: the gate's default
	Grace         time.Duration                                        `json:"-"` // that the call has beyond it, for a handler that keeps the time itself
	Work          Work                                                 `json:"-"` // a limit that it shares with other tools; empty: none
	RunTimeoutSec int64                                                `json:"-"` // of the run that a call submits, without its time in the queue; 0: none
	Kind          string                                               `json:"-"` // of a domain's tool: job_worker, service_worker or hybrid
	Worker        *Worker                                              `json:"-"` // the service that carries out the calls; nil for jobs and operations
	Sensitive     []string                                             `json:"-"` // arguments whose values only the worker gets, see [Hidden]
	Chat          Chat                                                 `json:"-"` // how a chat has an operation
	Destructive   bool                                                 `json:"-"` // it may end or remove what others need
	// Moves: a call may take long because of the bytes that it copies or hashes; call.progress reports how far it is
	Moves bool `json:"-"`
	// Resumes: the handler finds by [Call.ID] what an interrupted call with the same idempotency key did, and does nothing a second time
	Resumes bool `json:"-"`
	// keys of the result that hold a secret the caller sees once; never recorded. A repeated call's answer has a
	// "note" about that
	Reveals []string `json:"-"`
	// most bytes of the body that its calls come with: what an argument must not hold. Keys and approvals are bound to it. 0: no such body
	Body int64 `json:"-"`
	// an argument whose elements the handler checks one by one as calls of another tool ([Gate.Check]), so that it can say what is wrong with
	// each; what they name is left to that. Empty: none
	Each string `json:"-"`
	// Checks: the handler reads much before it has an effect, and calls [Effect] then. Until that a call ends with its client and the gateway
	Checks bool    `json:"-"`
	Handle Handler `json:"-"`
	// Names resolves names of reference data among the arguments, as sha256:<hex>, by the name as it is written. Keys
	// and approvals are bound to them, and the handler gets them. nil: no argument can be such a name
	Names func(ctx context.Context, c Call) (map[string]string, error) `json:"-"`
	// Covers returns what an approval of the call covers beyond its arguments; nil: the arguments are all
	Covers func(ctx context.Context, c Call) (Coverage, error) `json:"-"`
	// Starts returns the names (not the ids) of other tools whose jobs the call may start. Where policy requires an
	// approval for one of them, it requires one for this call, and the handler can start no other's: see
	// [Call.MayStart]. nil: it starts at most jobs of the tool itself
	Starts func(ctx context.Context, c Call) ([]string, error) `json:"-"`
	DryRun Handler                                             `json:"-"` // shows what Handle would do, without any effect; nil where there is nothing to show
}

// Chat says how a chat offers an operation. It offers every tool of a domain.
type Chat struct {
	Has    bool
	First  bool     // a list of tools has it before others, where there is room for a part of them
	Seldom []string // optional arguments that a list without room leaves out
	Bound  string   // the argument that limits an answer, at most to Most: a chat reads a few lines at a time; empty: none
	Most   int

	TextAlone bool    // an answer is a text without structured content: what a model reads twice it pays for twice
	Instead   string  // the operation that a chat calls where a step names this one; empty: this one
	Correct   string  // how to put a wrong call right; empty: an example of a call shows it
	Handles   Handles // where a call that executes may name files that are not imported yet
}

// Handles says where the arguments of a call may have handles of files in place of artifact ids.
type Handles string

// The places.
const (
	HandlesAsValues Handles = ""      // as whole values
	HandlesInCells  Handles = "cells" // also in the cells of a sheet
	NoHandles       Handles = "none"  // nowhere
)

// Worker is the endpoint of a service that carries out the calls of a tool.
type Worker struct {
	Type     string // http
	Endpoint string // a path, e.g. /run
}

// Result returns the JSON Schema of the tool's final result: the finished run's output, or the answer of a tool that
// submits no run.
func (t Tool) Result() json.RawMessage {
	if len(t.RunOutput) > 0 {
		return t.RunOutput
	}
	return t.Output
}

// OfService reports whether a service worker carries out the tool's calls: its answers are in the worker's own form.
func (t Tool) OfService() bool { return slices.Contains(t.Capabilities, CapWorker) }

// Reachable reports whether the tool is bound to a transport.
func (t Tool) Reachable(by Transport) bool { return slices.Contains(t.Bindings, by) }

// Handler carries out a call whose arguments satisfy the tool's schema. The result is marshalled to JSON.
type Handler func(ctx context.Context, c Call) (any, error)

// Call is the input of a handler.
type Call struct {
	Caller  Caller
	Needs   []string // the tool's capabilities
	Request Request
	Args    json.RawMessage // canonical JSON
	Value   any             // what Args say, as [plan.Doc] has it
	Stored  json.RawMessage // Args as they may be stored: without the values of sensitive arguments
	Hidden  *Hidden         // those values, for what the handler itself stores or writes; nil: there are none

	ID          string // the call's own: tool_call_id, of the first call with its idempotency key where it has one
	Interrupted bool   // a call with the same idempotency key was made before, and has no recorded outcome

	Names map[string]string // as [Tool.Names] gave it: what the call's key and approval are bound to. Nil in a dry run

	Unapproved bool      // policy requires an approval, but the tool's coverage is of a call that starts nothing: see [Coverage.Waits]
	ApprovalID string    // the approval that the call uses up; empty: it needs none
	Covered    *Coverage // what was approved of the call; nil: it needs no approval
	judged     []string  // names of the tools whose approval rules the gate has checked
}

// MayStart refuses to start a job of a tool whose approval rule was not checked for this call, or that needs an
// approval which the call does not have. A handler calls it before each start, with the tool's name.
func (c Call) MayStart(toolName string) error {
	switch {
	case c.Unapproved:
		return fault.New(fault.Transport, "approval_later", "what the call is about changed at this moment, and a job of "+toolName+
			" needs a person's approval").WithNext("repeat the call: it requests the approval").WithRetry(1)
	case !slices.Contains(c.judged, toolName):
		return fault.New(fault.Internal, "start_unjudged", fmt.Sprintf("%s would start a job of %s, whose rule of approvals was not looked at: "+
			"a bug in slurmgate; nothing was started", c.Request.ToolID, toolName))
	}
	return nil
}

// Into decodes the arguments, refusing unknown keys.
func (c Call) Into(v any) error { return plan.Doc{Bytes: c.Args}.Into(v) }

// Name returns the tool's name where dots are not allowed (MCP, run identity).
func (t Tool) Name() string { return cmp.Or(t.ToolName, strings.ReplaceAll(t.ID, ".", "_")) }

type entry struct {
	tool   Tool
	schema *compiled
	output *compiled // nil when the tool promises none
}

// Registry is the only source of tools. It does not change once the gate is made.
type Registry struct {
	byID      map[string]entry
	byName    map[string]string
	tools     []Tool // in order of id
	envelopes envelopes
	hidden    *strings.Replacer // folders of the gateway, and what a chat reads in their place
}

// NewRegistry makes a registry of tools. Two tools of one id or one name, and a schema that is not valid,
// are refused.
func NewRegistry(tools ...Tool) (*Registry, error) {
	e, err := compileEnvelopes()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "the schema of the envelope", err)
	}
	r := &Registry{byID: map[string]entry{}, byName: map[string]string{}, envelopes: e, hidden: strings.NewReplacer()}
	for _, t := range tools {
		if err := r.add(t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

var (
	toolID   = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)
	toolName = regexp.MustCompile(`^[a-z0-9_]{1,128}$`)
	semver   = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)
)

// maxToolID is the longest id of a tool, in bytes.
const maxToolID = 128

// IsToolID reports whether a text has the form of a tool's id: at least two parts with dots between them.
func IsToolID(s string) bool { return len(s) <= maxToolID && toolID.MatchString(s) }

// IDOf returns the tool id for a name outside an envelope, such as in a path or in a chat: the name itself if it has
// the form of an id. Any other name is of no tool: the id is [UnknownTool], with the name after it where it may be
// repeated.
func IDOf(name string) string {
	switch id := UnknownTool + "." + name; {
	case IsToolID(name):
		return name
	case sayable.MatchString(name) && IsToolID(id):
		return id
	}
	return UnknownTool
}

func (r *Registry) add(t Tool) error {
	if msg := t.incomplete(); msg != "" {
		return fault.New(fault.Internal, "tool_definition", fmt.Sprintf("tool %q: %s", t.ID, msg))
	}
	if slices.Contains(ReservedIDs(), t.ID) || strings.HasPrefix(t.ID, UnknownTool+".") {
		return fault.New(fault.Validation, "tool_reserved", "the tool id "+t.ID+" is reserved for records of calls that reach no tool")
	}
	if other, dup := r.byName[t.Name()]; dup {
		return fault.New(fault.Validation, "tool_name_twice", fmt.Sprintf("the tools %s and %s have one name, %s", other, t.ID, t.Name()))
	}
	e := entry{tool: t}
	var err error
	if e.schema, err = compile("input schema of "+t.ID, t.Input); err != nil {
		return err
	}
	if len(t.Output) > 0 {
		if e.output, err = compile("output schema of "+t.ID, t.Output); err != nil {
			return err
		}
	}
	r.byID[t.ID], r.byName[t.Name()] = e, t.ID
	at, _ := slices.BinarySearchFunc(r.tools, t.ID, func(t Tool, id string) int { return strings.Compare(t.ID, id) })
	r.tools = slices.Insert(r.tools, at, t)
	return nil
}

// incomplete returns what is wrong with a tool's declaration, "" for a complete one.
func (t Tool) incomplete() string {
	one := func(v string, of ...string) bool { return slices.Contains(of, v) }
	switch {
	case !IsToolID(t.ID):
		return "the id is not of the form a.b"
	case !toolName.MatchString(t.Name()):
		return "its name is not of lower-case letters, digits and _"
	case !semver.MatchString(t.Version):
		return "the version is not MAJOR.MINOR.PATCH"
	case !one(string(t.SideEffect), string(Read), string(Write), string(Execute)):
		return "the side effect is not READ, WRITE or EXECUTE"
	case !one(t.Idempotency, Idempotent, IdempotentWithKey, NonIdempotent):
		return "its idempotency is not one of the known values"
	case !one(t.Determinism, Deterministic, BestEffort, NonDeterministic):
		return "its determinism is not one of the known values"
	case !one(t.Availability, OfflineOK, RequiresNetwork, BestEffortOffline):
		return "its availability is not one of the known values"
	case len(t.Capabilities) == 0:
		return "it names no capability"
	case len(t.Bindings) == 0:
		return "it is bound to no transport"
	case t.Handle == nil:
		return "it has no handler"
	case len(t.Sensitive) > 0 && (t.Worker == nil || t.Determinism == Deterministic):
		return "only a service worker's tool that is not deterministic has sensitive arguments"
	}
	return ""
}

// schemas holds each schema that was compiled, by its text. Gateways opened one after another, and packs read again, have nearly all of
// them in common, and to compile them is most of the processor time of an opening.
var schemas sync.Map // of *compiled

func compile(what string, raw json.RawMessage) (*compiled, error) {
	if s, ok := schemas.Load(string(raw)); ok {
		return s.(*compiled), nil
	}
	s, err := compileAll(raw, "")
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "tool_schema", "the "+what+" is not valid", err)
	}
	schemas.Store(string(raw), s[0])
	return s[0], nil
}

// List returns all tools in order of id.
func (r *Registry) List() []Tool { return slices.Clone(r.tools) }

// Find returns the tool with an id.
func (r *Registry) Find(id string) (Tool, error) {
	e, err := r.find(id)
	return e.tool, err
}

func (r *Registry) find(id string) (entry, error) {
	e, ok := r.byID[id]
	if !ok {
		return entry{}, noTool(id)
	}
	return e, nil
}

// sayable matches an unknown tool's id that may be repeated in an answer and in a record: a misspelt id, not any
// text.
var sayable = regexp.MustCompile(`^[a-z][a-z0-9]{0,23}([._][a-z0-9]{1,24}){0,5}$`)

// Sayable reports whether the name of an unknown tool may be repeated in an answer.
func Sayable(name string) bool { return sayable.MatchString(name) }

func noTool(id string) error {
	id = strings.TrimPrefix(id, UnknownTool+".")
	what := "there is no tool with this name"
	if Sayable(id) {
		what = fmt.Sprintf("there is no tool %q", id)
	}
	return fault.New(fault.NotFound, "tool_not_found", what).WithSteps(fault.Do("tool.list"))
}

// reach finds a tool for a caller by its transport.
func (r *Registry) reach(id string, by Transport) (entry, error) {
	e, err := r.find(id)
	if err == nil && !e.tool.Reachable(by) {
		return entry{}, noTool(id)
	}
	return e, err
}
