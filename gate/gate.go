package gate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/secrets"
	"slurmgate/visible"
)

// Config holds the parts of a gate. Parts may be nil: a gate of tools that work only on files has no policy and no
// memory.
type Config struct {
	Registry  *Registry
	Policy    Policy
	Together  int    // concurrent calls that policy allows; 0: no limit
	Limits    Limits // of concurrent calls
	Journal   Journal
	Spill     Spill
	Promises  Promises
	Owners    Owners
	Supposer  Supposer
	Artifacts Artifacts
	Words     Words
	Key       []byte           // of this ledger, for binding keys and approvals to payloads; random when empty
	Secrets   *secrets.Scanner // with the site's own patterns; secrets.Default when nil
	Log       *slog.Logger     // slog's default when nil
	Now       func() time.Time // time.Now when nil
}

// Gate carries out calls.
type Gate struct {
	registry  *Registry
	policy    Policy
	limiter   *limiter
	journal   *journal // nil: nothing is recorded
	refusals  *refusals
	promises  Promises
	flights   flights
	owners    Owners
	supposer  Supposer
	artifacts Artifacts
	words     Words
	key       []byte
	secrets   *secrets.Scanner
	keys      knownKeys
	log       *slog.Logger
	now       func() time.Time
	memory    *memory
	records   *records
	checks    context.Context // of calls of tools with Tool.Checks; ends by endChecks
	endChecks func()
}

const defaultTimeout = 2 * time.Minute

// New returns a gate. Close a gate with a journal when it is no longer used.
func New(c Config) *Gate {
	g := &Gate{registry: c.Registry, policy: c.Policy, limiter: newLimiter(c.Together, c.Limits, c.Registry, c.Policy), promises: c.Promises,
		owners: c.Owners, supposer: c.Supposer, artifacts: c.Artifacts, words: c.Words, key: c.Key, secrets: c.Secrets, log: c.Log, now: c.Now,
		memory: newMemory(c.Limits.Memory), records: newRecords(c.Limits.Records)}
	if g.secrets == nil {
		g.secrets = secrets.Default()
	}
	if g.now == nil {
		g.now = time.Now
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	if len(g.key) == 0 {
		g.key = make([]byte, 32)
		rand.Read(g.key) // never fails (Go 1.24)
	}
	g.checks, g.endChecks = context.WithCancel(context.Background())
	counts := &refusalCounts{}
	if c.Journal != nil {
		a, left := openSpill(c.Spill, g.log)
		if counts, left = openRefusalCounts(c.Spill, a, left); len(left) > 0 {
			g.log.Info("records of calls that the process before had answered are written now", "records", len(left))
		}
		g.journal = newJournal(c.Journal, a, left, g.log)
	}
	g.refusals = newRefusals(g.now, g.recordRefused, counts, g.bareRefused)
	return g
}

// Close writes the waiting records. No call may be made afterwards.
func (g *Gate) Close() {
	if g.journal != nil {
		g.refusals.close()
		g.journal.close()
	}
}

// Words returns how the faces write what to do next.
func (g *Gate) Words() Words { return g.words }

// Registry returns the tools behind the gate.
func (g *Gate) Registry() *Registry { return g.registry }

// NewRequest fills an envelope for a call by a person. Ids of calls follow each other in time (UUID version 7), so that the ledger's
// index of them grows at its end.
func NewRequest(toolID, version string, args json.RawMessage) Request {
	return Request{SchemaVersion: SchemaVersion, ToolCallID: uuid.Must(uuid.NewV7()).String(), TraceID: uuid.NewString(),
		Actor: Actor{Kind: "human"}, ToolID: toolID, ToolVersion: version, Args: args}
}

// Call is the only way to a tool: envelope, registry, capability, policy, arguments, owners of what they name,
// idempotency, consent, limits, handler, answer, record. It always answers; a handler that panics is an internal
// error of this call alone.
func (g *Gate) Call(ctx context.Context, who Caller, req Request) Response {
	if len(req.Args) == 0 {
		req.Args = json.RawMessage("null") // said, not guessed
	}
	args, err := plan.Read(req.Args)
	if err == nil {
		err = misfit(g.registry.envelopes.request, req.document(args.Value), "the request")
	}
	req.ParentSpanID = orText(req.ParentSpanID, who.ParentSpanID)
	if err == nil {
		err = checkSpan(req.ParentSpanID)
	}
	if err != nil {
		return g.Invalid(ctx, who, err)
	}
	return g.call(ctx, who, req, args, nil)
}

// CallRaw is Call for the bytes of an envelope. Bytes that are not an envelope are answered and recorded too
// (HTC-01).
func (g *Gate) CallRaw(ctx context.Context, who Caller, body []byte) Response {
	doc, err := plan.Read(body)
	if err == nil {
		err = misfit(g.registry.envelopes.request, doc.Value, "the request")
	}
	var req Request
	if err == nil {
		err = doc.Into(&req)
	}
	if req.ParentSpanID = who.ParentSpanID; err == nil {
		err = checkSpan(req.ParentSpanID)
	}
	if err != nil {
		return g.Invalid(ctx, who, err)
	}
	return g.call(ctx, who, req, plan.Doc{Bytes: req.Args, Value: doc.Value.(map[string]any)["args"]}, nil)
}

// Invalid answers and records what is no envelope. Nothing of it is used, also none of its ids: they could be those of another's call.
func (g *Gate) Invalid(ctx context.Context, who Caller, err error) Response {
	return g.call(ctx, who, Request{}, plan.Doc{}, noEnvelope(err))
}

// noEnvelope returns an error with the code for invalid envelopes.
func noEnvelope(err error) error {
	e := &fault.Error{Kind: fault.Validation, Code: badEnvelope, Msg: "the request is not an envelope (HTC 1.0)",
		Problems: fault.ProblemsOf(err)}
	if len(e.Problems) == 0 { // they say it all
		e.Err = err
	}
	return e
}

// call carries out a call whose envelope is good, or answers what is wrong with it. args are the request's.
func (g *Gate) call(ctx context.Context, who Caller, req Request, args plan.Doc, err error) Response {
	res := Response{SchemaVersion: SchemaVersion, ToolCallID: idOr(req.ToolCallID), TraceID: idOr(req.TraceID), Resources: touched()}
	res.Timing.StartedAt = g.now().UTC()
	for _, said := range []**string{&req.SessionID, &req.Actor.AgentID, &req.Actor.ModelID} {
		*said = g.scrubbed(*said)
	}
	t := trail{given: args}
	if req.ToolID == "" {
		t.instead = InvalidCall
	}
	admitted := g.journal == nil
	if !admitted {
		full := g.journal.admit(ctx)
		admitted = full == nil
		if err == nil {
			err = full
		}
	}
	if err == nil {
		g.carryOut(ctx, who, req, &res, &t)
	} else {
		res.Error = BodyOf(g.words.Of(who.Transport), err)
	}
	res.RunID = t.runID
	if res.Error != nil {
		res.Error = g.registry.concealedError(who.Transport, res.Error)
		res.Error.Retryable = res.Error.Retryable && (t.reported || t.repeatable())
	}
	res.OK = res.Error == nil
	res.Timing.EndedAt = g.now().UTC()
	res.Timing.DurationMS = max(0, res.Timing.EndedAt.Sub(res.Timing.StartedAt).Milliseconds())
	res.Error = t.hidden.body(res.Error)
	g.seal(&res, t.tool)
	if t.counted && !t.effect && t.key == nil {
		g.records.giveBack(who.Key(), g.now())
	}
	switch {
	case g.journal == nil || !admitted:
	case !g.tooMany(who, req, res, t):
		g.remember(who, req, &res, t)
	}
	if t.leave != nil {
		t.leave()
	}
	return res
}

// carryOut fills the response with the answer or the error.
func (g *Gate) carryOut(ctx context.Context, who Caller, req Request, res *Response, t *trail) {
	result, err := g.dispatch(ctx, who, req, res, t)
	if err == nil {
		err = g.fill(ctx, who, req, res, t, result)
	}
	if err != nil {
		res.Result, res.ResultRef, res.Error = nil, nil, BodyOf(g.words.Of(who.Transport), err)
		t.final = final(err)
		if _, t.reported = errors.AsType[*Reported](err); t.runID != "" {
			res.Resources = t.resources()
		}
	}
}

// fill puts a tool's result into the response: canonical, of the shape the tool promises, without secrets, and by reference when
// it is large.
func (g *Gate) fill(ctx context.Context, who Caller, req Request, res *Response, t *trail, result any) error {
	t.final = true
	if first, again := result.(*Response); again { // the outcome under an idempotency key
		t.reached, t.runID, t.resultHash = true, first.RunID, first.resultHash // by the first call
		res.ResultRef, res.Error, res.Resources = first.ResultRef, first.Error, first.Resources
		doc, err := plan.Of(first.Result)
		if t.result.Doc = doc; first.OK && len(t.tool.Reveals) > 0 {
			t.result.Doc = noted(doc)
		}
		res.Result = t.result.Bytes
		return err
	}
	if s, stored := result.(Stored); stored {
		ref := refPrefix + s.ArtifactID
		t.resultHash = s.SHA256
		res.ResultRef, res.Resources = &ref, t.resources()
		addNew(&res.Resources.Artifacts, ref)
		return nil
	}
	doc, err := t.encoded, error(nil)
	if doc.Value == nil {
		doc, err = plan.Of(result)
	}
	if err != nil {
		return fault.Wrap(fault.Internal, "result_not_json", "the tool's answer cannot be encoded", err)
	}
	if t.tool.Work != Service && !(req.DryRun && t.tool.SideEffect != Read) { // a worker's answer was checked on arrival
		if found := g.registry.CheckOutput(t.tool.ID, doc); len(found) > 0 {
			g.log.ErrorContext(ctx, "a tool's answer breaks its own schema", "tool_id", t.tool.ID, "tool_call_id", req.ToolCallID, "problems",
				t.hidden.Text(fmt.Sprint(found)))
			return fault.New(fault.Internal, "output_schema", "the tool's answer violates its own output schema, which is a bug in slurmgate").
				WithNext("the gateway's log has the details")
		}
	}
	rehearsal, dry := result.(Rehearsal)
	if dry && len(doc.Bytes) > MaxInline*7/8 { // room for what redaction may add
		if doc, err = rehearsal.within(MaxInline * 7 / 8); err != nil {
			return err
		}
	}
	if t.result.Doc, err = t.hidden.Doc(doc); err != nil {
		return err
	}
	if len(t.tool.Reveals) == 0 {
		if t.result, _, err = g.redact(t.result, false); err != nil {
			return err
		}
	}
	res.Result, res.Resources = t.result.Bytes, t.resources()
	if len(res.Result) <= MaxInline {
		return nil
	}
	if dry {
		return fault.New(fault.Internal, "result_too_large", "the result of the dry run is too large for an answer")
	}
	return g.refer(ctx, who, res, t.tool)
}

// refer moves a large result into an artifact that only the caller sees.
func (g *Gate) refer(ctx context.Context, who Caller, res *Response, t Tool) error {
	if g.artifacts == nil {
		return nil // a tool on files alone, called by the program itself
	}
	id, err := g.artifacts.Keep(ctx, who.Principal, "result of "+t.ID, res.Result)
	if err != nil {
		return err
	}
	ref := refPrefix + id
	res.Result, res.ResultRef = nil, &ref
	res.Resources.Artifacts = append(res.Resources.Artifacts, ref)
	return nil
}

// maxMessage is the longest message of an error, in characters. The problems in its details are not cut.
const maxMessage = 4096

// spanID is the form of a span's id, as in the envelope's schema.
var spanID = regexp.MustCompile(`^[A-Za-z0-9_:./-]{1,256}$`)

func checkSpan(id string) error {
	if id == "" || spanID.MatchString(id) {
		return nil
	}
	return fault.Invalid("", fault.Problem{Code: badEnvelope, Field: "parent_span_id", Rule: "letters, digits and _ : . / -, at most 256",
		Msg: "the span's id does not have the right form"})
}

// seal removes secrets from an error, and checks the response against the schema before it is returned.
func (g *Gate) seal(res *Response, t Tool) {
	if res.Error != nil {
		problems, _ := res.Error.Details["problems"].([]fault.Problem)
		res.Error.Message = visible.ClipRunes(visible.Text(scrubMessage(g.secrets, res.Error.Message, problems)), maxMessage)
		if doc, err := plan.Of(res.Error.Details); err == nil {
			if clean, found, err := g.redact(document{Doc: doc}, false); err == nil && len(found) > 0 {
				res.Error.Details = clean.Value.(map[string]any)
			}
		}
	}
	if err := misfit(g.registry.envelopes.response, res.document(), "the response"); err != nil {
		g.log.Error("a response is no envelope", "tool_id", t.ID, "tool_call_id", res.ToolCallID, "err", err)
		res.OK, res.Result, res.ResultRef = false, nil, nil
		res.Error = BodyOf(g.words.Of(Other), fault.New(fault.Internal, "response_schema",
			"the answer violates the envelope's schema, which is a bug in slurmgate").WithNext("the gateway's log has the details"))
	}
}

// remember records the call. A call that may have changed something is answered when its record is on the disk. If
// the record cannot be written, the caller gets that error in place of the tool's answer, because the answer could
// not be proved later.
func (g *Gate) remember(who Caller, req Request, res *Response, t trail) {
	r, err := g.record(who, req, *res, t)
	if err != nil {
		g.log.Error("the record of a call breaks its schema; a bare one is written", "tool_call_id", res.ToolCallID, "err", err)
		r, err = g.bareRecord(who, *res, t)
	}
	if err == nil {
		err = g.journal.keep(r, t.effect || r.Outcome != nil)
	}
	if err == nil || !t.effect {
		return
	}
	later := "the gateway keeps trying to write the record"
	if fault.CodeOf(err) == recordRefused {
		later = "no record of this call will be written"
	}
	next := "check the call's effect before you repeat it; " + later
	if t.tool.Idempotency == Idempotent {
		next = "repeat the same call: it finds what was done and changes nothing else; " + later
	}
	res.OK, res.Result, res.ResultRef = false, nil, nil
	res.Error = BodyOf(g.words.Of(who.Transport), fault.Wrap(fault.Unknown, "not_recorded",
		"the call was carried out, but its record could not be written", err).WithNext(next))
}

// idOr returns the given UUID, or a new one if it is not a UUID.
func idOr(s string) string {
	if isUUID(s) {
		return s
	}
	return uuid.NewString()
}

// isUUID reports whether s is a UUID in its usual spelling; the package takes others too.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// guard runs a handler and turns a panic into an error of this call. What broke is for the log: the value and
// the stack may hold paths and arguments.
func guard(ctx context.Context, log *slog.Logger, h Handler, c Call) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "a tool broke down", "tool_id", c.Request.ToolID, "tool_call_id", c.Request.ToolCallID, "panic",
				Scrub(c.Hidden.Text(fmt.Sprint(p))), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "internal",
				"the tool crashed, which is a bug in slurmgate; the rest of this call was not carried out").
				WithNext("the gateway's log has the details")
		}
	}()
	return h(ctx, c)
}

// timedOut gives an error of the call's context its kind. A deadline set by the handler itself is left to the
// handler.
func timedOut(ctx context.Context, err error, toolID string, timeout time.Duration) error {
	switch {
	case err == nil, ctx.Err() == nil:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "timeout", fmt.Sprintf("%s did not answer within %s", toolID, timeout), err)
	case errors.Is(err, context.Canceled):
		if why, ok := errors.AsType[*fault.Error](context.Cause(ctx)); ok {
			return why
		}
		return fault.Wrap(fault.Canceled, "canceled", "the caller gave up", err)
	}
	return err
}
