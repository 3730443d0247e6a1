package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Policy decides before anything is done.
type Policy interface {
	// AllowTool returns a Policy fault for a tool that may not be called. toolName is the name with underscores.
	AllowTool(toolName string) error
}

// Recorder is told of every call, denied ones too, once it has been answered.
type Recorder interface {
	Record(ctx context.Context, t Tool, req Request, res Response)
}

// Config is what a gate is made of. Parts that are nil are done without: tools that work on files alone have no policy and
// no memory.
type Config struct {
	Registry *Registry
	Policy   Policy
	Recorder Recorder
	Now      func() time.Time // time.Now when nil
}

// Gate carries out calls.
type Gate struct {
	registry *Registry
	policy   Policy
	recorder Recorder
	now      func() time.Time
}

const defaultTimeout = 2 * time.Minute

// New makes a gate.
func New(c Config) *Gate {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Gate{registry: c.Registry, policy: c.Policy, recorder: c.Recorder, now: c.Now}
}

// Registry gives the tools behind the gate.
func (g *Gate) Registry() *Registry { return g.registry }

// NewRequest fills an envelope for a call from this host by a person.
func NewRequest(toolID, version string, args json.RawMessage) Request {
	return Request{SchemaVersion: SchemaVersion, ToolCallID: uuid.NewString(), TraceID: uuid.NewString(), Actor: Actor{Kind: "human"}, ToolID: toolID, ToolVersion: version, Args: args}
}

// Call is the one way to a tool: envelope, registry, policy, arguments, deadline, handler, answer. It always
// answers; a handler that panics is an internal error of this call alone.
func (g *Gate) Call(ctx context.Context, who Caller, req Request) Response {
	res := Response{SchemaVersion: SchemaVersion, ToolCallID: req.ToolCallID, TraceID: req.TraceID,
		Resources: Resources{WorkspaceIDs: []string{}, Artifacts: []string{}, Files: []string{}, URLs: []string{}}}
	res.Timing.StartedAt = g.now().UTC()
	tool, result, err := g.dispatch(ctx, who, req)
	if err == nil {
		if res.Result, err = plan.Marshal(result); err != nil {
			err = fault.Wrap(fault.Internal, "gate.Call", "result_not_json", "the tool's answer cannot be passed on", err)
		}
	}
	if err != nil {
		res.Result, res.Error = nil, errorBody(err)
	}
	res.OK = res.Error == nil
	res.Timing.EndedAt = g.now().UTC()
	res.Timing.DurationMS = res.Timing.EndedAt.Sub(res.Timing.StartedAt).Milliseconds()
	if g.recorder != nil {
		g.recorder.Record(ctx, tool, req, res)
	}
	return res
}

// Refuse answers what is not even an envelope (HTC-01).
func (g *Gate) Refuse(err error) Response {
	now := g.now().UTC()
	res := Response{SchemaVersion: SchemaVersion, ToolCallID: uuid.Nil.String(), TraceID: uuid.Nil.String(), Timing: Timing{StartedAt: now, EndedAt: now},
		Error: errorBody(fault.Wrap(fault.Validation, "gate.Refuse", "VAL-HTC-001", "the request is not an envelope", err))}
	res.Resources = Resources{WorkspaceIDs: []string{}, Artifacts: []string{}, Files: []string{}, URLs: []string{}}
	return res
}

func (g *Gate) dispatch(ctx context.Context, who Caller, req Request) (t Tool, result any, err error) {
	if err := checkEnvelope(req); err != nil {
		return Tool{}, nil, err
	}
	e, err := g.registry.reach(req.ToolID, who.Transport)
	if err != nil {
		return Tool{}, nil, err
	}
	if req.ToolVersion != "" && req.ToolVersion != e.tool.Version {
		return e.tool, nil, fault.New(fault.Validation, "gate.Call", "tool_version", fmt.Sprintf("%s has version %s here, the call asks for %s", req.ToolID, e.tool.Version, req.ToolVersion)).
			WithNext("list the tools again")
	}
	for _, c := range e.tool.Capabilities {
		if !who.Can(c) {
			return e.tool, nil, fault.New(fault.Capability, "gate.Call", "capability_denied", fmt.Sprintf("%s asks for the capability %q, which %s does not have", req.ToolID, c, who.Name)).
				WithNext("ask the administrator for a token with it")
		}
	}
	// Neither is carried out yet, and to ignore them would be to do something else than what was asked.
	switch {
	case req.DryRun && e.tool.SideEffect != Read:
		return e.tool, nil, fault.New(fault.Validation, "gate.Call", "dry_run_unsupported", req.ToolID+" cannot be tried without effect").WithNext("call it with dry_run false")
	case req.IdempotencyKey != nil:
		return e.tool, nil, fault.New(fault.Validation, "gate.Call", "idempotency_key_unsupported", "idempotency keys are not kept yet").WithNext("leave it out: a repeated submit is the same run anyway")
	case req.ArgsRef != nil:
		return e.tool, nil, fault.New(fault.Validation, "gate.Call", "args_ref_unsupported", "arguments by reference are not taken").WithNext("pass args")
	}
	if g.policy != nil {
		if err := g.policy.AllowTool(e.tool.Name()); err != nil {
			return e.tool, nil, err
		}
	}
	args := req.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if args, err = plan.Canonical(args); err != nil {
		return e.tool, nil, err
	}
	if err := e.checkArgs(args); err != nil {
		return e.tool, nil, err
	}
	timeout := e.tool.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	result, err = guard(ctx, e.tool.Handle, Call{Caller: who, Request: req, Args: args})
	switch {
	case err == nil, ctx.Err() == nil: // a deadline of the handler's own is its own affair
	case errors.Is(err, context.DeadlineExceeded):
		err = fault.Wrap(fault.Timeout, "gate.Call", "timeout", fmt.Sprintf("%s did not answer within %s", req.ToolID, timeout), err)
	case errors.Is(err, context.Canceled):
		err = fault.Wrap(fault.Canceled, "gate.Call", "canceled", "the caller gave up", err)
	}
	return e.tool, result, err
}

func checkEnvelope(req Request) error {
	bad := func(field, rule string) error {
		return fault.Invalid("gate.Call", "the call's envelope is not valid", fault.Problem{Code: "VAL-HTC-001", Field: field, Rule: rule, Msg: "it is not"})
	}
	switch {
	case req.SchemaVersion != SchemaVersion:
		return bad("schema_version", `"`+SchemaVersion+`"`)
	case !isUUID(req.ToolCallID):
		return bad("tool_call_id", "a UUID")
	case !isUUID(req.TraceID):
		return bad("trace_id", "a UUID")
	case req.Actor.Kind != "human" && req.Actor.Kind != "agent" && req.Actor.Kind != "system":
		return bad("actor.kind", "human, agent or system")
	case req.ToolID == "":
		return bad("tool_id", "present")
	}
	return nil
}

// isUUID tells whether s is a UUID in its usual spelling; the package takes others too.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// guard runs a handler and turns a panic into an error of this call. What broke is for the log: the value and
// the stack may hold paths and arguments.
func guard(ctx context.Context, h Handler, c Call) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "a tool broke down", "tool_id", c.Request.ToolID, "tool_call_id", c.Request.ToolCallID, "panic", p, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "gate.Call", "internal", "the tool broke down (a fault of slurmgate's); nothing more of this call was done").WithNext("the gateway's log has the details")
		}
	}()
	return h(ctx, c)
}
