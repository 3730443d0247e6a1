package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/visible"
)

// maxDescription bounds the description that a toolpack's author writes for a model.
const maxDescription = 1024

// handshakeKey is the key of correlation ids in _meta (HTC-11).
const handshakeKey = "handshake"

// entry returns a tool of the registry in the form of the protocol's lists.
func entry(t gate.Tool) *sdk.Tool {
	beyond := t.OfService() // what it does may change anything outside
	out := &sdk.Tool{Name: t.Name(), Title: plain(t.Title, 128), Description: plain(describe(t), maxDescription),
		InputSchema: takingFiles(t),
		Annotations: &sdk.ToolAnnotations{Title: plain(t.Title, 128), ReadOnlyHint: t.SideEffect == gate.Read,
			IdempotentHint:  t.Idempotency == "IDEMPOTENT",
			DestructiveHint: &t.Destructive, OpenWorldHint: &beyond},
		Meta: sdk.Meta{handshakeKey: registered(t)}}
	if len(t.Output) > 0 && !t.Chat.TextAlone {
		out.OutputSchema = outputSchema(t)
	}
	return out
}

// registered returns the registry's metadata of a tool except its schemas.
func registered(t gate.Tool) map[string]any {
	return map[string]any{"tool_id": t.ID, "tool_version": t.Version, "contract_version": t.ContractVersion,
		"side_effect": string(t.SideEffect), "idempotency": t.Idempotency, "determinism": t.Determinism, "availability": t.Availability,
		"required_capabilities": t.Capabilities}
}

// describe appends the result of a call to the description of a domain's tool.
func describe(t gate.Tool) string {
	gives := ""
	switch {
	case t.OfService():
		gives = "A service answers the call: the answer is the result itself."
	case t.RunTimeoutSec > 0:
		gives = "A call starts a run and answers with its id at once; call slurm_job_collect to find out when it is finished and to get " +
			"the outputs."
	default:
		return t.Description
	}
	return plain(t.Description, maxDescription-200) + "\n" + gives
}

// request makes the envelope of a call. What the client leaves out is filled in: new ids, and an unknown agent. Arguments that are null are
// none, and so is an optional argument that is null.
func request(t gate.Tool, r *sdk.CallToolRequest) gate.Request {
	args := bytes.TrimSpace(r.Params.Arguments)
	if len(args) == 0 || string(args) == "null" {
		args = []byte("{}")
	}
	if bytes.Contains(args, []byte("null")) {
		args = gate.WithoutNulls(t.Input, args)
	}
	req := gate.NewRequest(t.ID, t.Version, args)
	req.Actor = gate.Actor{Kind: "agent"}
	said, err := json.Marshal(r.Params.Meta[handshakeKey])
	h := struct {
		*gate.Request
		ParentSpanID *string `json:"parent_span_id"`
	}{Request: &gate.Request{Actor: req.Actor}}
	if err == nil && json.Unmarshal(said, &h) == nil { // of the envelope a client sets the caller and the ids
		req.TraceID, req.ToolCallID = cmp.Or(h.TraceID, req.TraceID), cmp.Or(h.ToolCallID, req.ToolCallID)
		req.Actor, req.SessionID, req.IdempotencyKey = h.Actor, h.SessionID, h.IdempotencyKey
		req.DryRun, req.ToolVersion = h.DryRun, cmp.Or(h.ToolVersion, req.ToolVersion)
		if h.ParentSpanID != nil {
			req.ParentSpanID = *h.ParentSpanID
		}
	}
	return req
}

// handler handles one tool's calls: an envelope to the gate, its answer to the chat.
func (s *server) handler(t gate.Tool) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		req := request(t, r)
		pages, named := shorten(t, &req), filesOf(t, req.Args)
		defer s.progress(ctx, t, r, req, named)()
		notBrought := s.bring(ctx, t, &req, named)
		if t.SideEffect == gate.Execute && !t.Checks && !req.DryRun {
			// A client that disconnects does not cancel the effect of its call: a run either does not exist or is
			// complete.
			ctx = context.WithoutCancel(ctx)
		}
		for {
			res, err := s.cfg.Gateway.Call(ctx, req)
			if err != nil {
				return s.refused(ctx, t, req, gate.BodyOf(s.words, err)), nil
			}
			if res.Error != nil {
				if notBrought != nil && res.Error.Kind == string(fault.Validation) { // it is about the handles, which were left in the call
					res.Error = notBrought
				}
				return s.refused(ctx, t, req, res.Error), nil
			}
			out := s.answered(ctx, t, req, res)
			named.note(out)
			if pages == nil || size(out) <= MaxAnswer || !pages.less(&req) {
				return out, nil
			}
		}
	}
}

// refused returns the answer to a failed call of a tool.
func (s *server) refused(ctx context.Context, t gate.Tool, req gate.Request, e *gate.ErrorBody) *sdk.CallToolResult {
	d := detailsOf(e)
	more := s.advice(t, e, s.spelled(ctx, t, example(t, req.Args, d)), sought(req.Args, d))
	if end := map[string]string{refusedTool: "\n", removedArtifact: ". Next: "}[e.Code]; end != "" { // the advice replaces it
		short := *e
		short.Message, _, _ = strings.Cut(e.Message, end)
		e = &short
	}
	return refusal(req, e, more)
}

// progressEvery is how often a client is notified during a wait.
const progressEvery = 2 * time.Second

// clip shortens a text to at most n bytes, with a mark.
func clip(s string, n int) string { return visible.Clip(s, n) }
