package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"slurmgate/fault"
)

// SideEffect is what a tool does to the world.
type SideEffect string

// The side effects.
const (
	Read    SideEffect = "READ"
	Write   SideEffect = "WRITE"
	Execute SideEffect = "EXECUTE"
)

// Tool is one entry of the registry: identity, contract and the function that does it.
type Tool struct {
	ID              string // dotted, e.g. slurm.job.get
	Version         string // semantic version
	ContractVersion string
	Title           string
	Description     string
	SideEffect      SideEffect
	Idempotency     string // IDEMPOTENT, IDEMPOTENT_WITH_KEY or NON_IDEMPOTENT
	Determinism     string // DETERMINISTIC, BEST_EFFORT or NON_DETERMINISTIC
	Availability    string // OFFLINE_OK, REQUIRES_NETWORK or BEST_EFFORT_OFFLINE
	Capabilities    []string
	Timeout         time.Duration   // of the call; 0: the gate's default
	Input           json.RawMessage // JSON Schema of args; an object schema that allows nothing unknown
	Output          json.RawMessage // JSON Schema of the result, may be empty
	Handle          Handler
}

// Handler carries out a call whose arguments satisfy the tool's schema. The result is marshalled to JSON.
type Handler func(ctx context.Context, c Call) (any, error)

// Call is what a handler is given.
type Call struct {
	Request Request
	Args    json.RawMessage // canonical JSON
}

// Name is the tool's name where dots are not allowed (MCP, run identity).
func (t Tool) Name() string { return strings.ReplaceAll(t.ID, ".", "_") }

type entry struct {
	tool   Tool
	schema *jsonschema.Schema
}

// Registry is the only source of tools. It does not change once the gate is made.
type Registry struct {
	byID   map[string]entry
	byName map[string]string
}

// NewRegistry makes a registry of tools. Two tools of one id or one name, and a schema that is not valid,
// are refused.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{byID: map[string]entry{}, byName: map[string]string{}}
	for _, t := range tools {
		if err := r.add(t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

var toolID = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]+)+$`)

func (r *Registry) add(t Tool) error {
	const op = "gate.NewRegistry"
	if !toolID.MatchString(t.ID) || t.Handle == nil {
		return fault.New(fault.Internal, op, "tool_definition", fmt.Sprintf("tool %q has no proper id or no handler", t.ID))
	}
	if other, dup := r.byName[t.Name()]; dup {
		return fault.New(fault.Validation, op, "tool_name_twice", fmt.Sprintf("the tools %s and %s have one name, %s", other, t.ID, t.Name()))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(t.Input))
	if err != nil {
		return fault.Wrap(fault.Validation, op, "tool_schema", "the input schema of "+t.ID+" is not JSON", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded from elsewhere
	if err := c.AddResource("tool:"+t.ID, doc); err != nil {
		return fault.Wrap(fault.Validation, op, "tool_schema", "the input schema of "+t.ID+" cannot be used", err)
	}
	schema, err := c.Compile("tool:" + t.ID)
	if err != nil {
		return fault.Wrap(fault.Validation, op, "tool_schema", "the input schema of "+t.ID+" is not valid", err)
	}
	r.byID[t.ID], r.byName[t.Name()] = entry{t, schema}, t.ID
	return nil
}

// List gives all tools in order of id.
func (r *Registry) List() []Tool {
	var out []Tool
	for _, e := range r.byID {
		out = append(out, e.tool)
	}
	slices.SortFunc(out, func(a, b Tool) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Find looks a tool up by id.
func (r *Registry) Find(id string) (Tool, error) {
	e, err := r.find(id)
	return e.tool, err
}

func (r *Registry) find(id string) (entry, error) {
	e, ok := r.byID[id]
	if !ok {
		return entry{}, fault.New(fault.NotFound, "gate.Find", "tool_not_found", fmt.Sprintf("there is no tool %q", id)).WithNext("slurmgate tool list shows what there is")
	}
	return e, nil
}

// checkArgs holds arguments against the tool's schema and reports every violation.
func (e entry) checkArgs(args json.RawMessage) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return fault.Invalid("gate.Call", "", fault.Problem{Code: "ARGS-JSON", Field: "args", Rule: "a JSON object", Msg: err.Error()})
	}
	err = e.schema.Validate(doc)
	ve, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return err
	}
	f := fault.Invalid("gate.Call", "the arguments of "+e.tool.ID+" break its schema")
	p := message.NewPrinter(language.English)
	var walk func(*jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		for _, c := range v.Causes {
			walk(c)
		}
		if len(v.Causes) == 0 {
			f.Problems = append(f.Problems, fault.Problem{Code: "ARGS-SCHEMA", Field: strings.Join(append([]string{"args"}, v.InstanceLocation...), "."),
				Rule: "the tool's input schema", Msg: v.ErrorKind.LocalizedString(p)})
		}
	}
	walk(ve)
	return f.WithNext("slurmgate tool show " + e.tool.ID + " prints the schema")
}
