package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
	"slurmgate/gate"
)

// domainDoc names the catalogue; a client may cache on it (AX-03).
type domainDoc struct {
	DomainID string `json:"domain_id"`
	Version  string `json:"version"`
}

// toolDoc is a tool of the catalogue (AX-03).
type toolDoc struct {
	ToolID            string   `json:"tool_id"`
	DisplayName       string   `json:"display_name"`
	Description       string   `json:"description"`
	Capabilities      []string `json:"capabilities"` // what it is for
	TimeoutSec        int64    `json:"timeout_sec"`  // of a run, without its time in the queue
	EgressAllowlist   []string `json:"egress_allowlist"`
	TransportType     string   `json:"transport_type,omitzero"` // of a service
	TransportEndpoint string   `json:"transport_endpoint,omitzero"`
	InputSchemaRef    string   `json:"input_schema_ref"`  // a path of this gateway
	OutputSchemaRef   string   `json:"output_schema_ref"` // likewise: of the finished run's output
}

type toolsDoc struct {
	domainDoc
	Total int       `json:"total"`
	Tools []toolDoc `json:"tools"`
}

// Entry is all that the registry says of a tool (HTC-05).
type Entry struct {
	ToolID          string          `json:"tool_id"`
	ToolVersion     string          `json:"tool_version"`
	ContractVersion string          `json:"contract_version"`
	DisplayName     string          `json:"display_name"`
	Description     string          `json:"description"`
	SideEffect      string          `json:"side_effect"`
	Idempotency     string          `json:"idempotency"`
	Determinism     string          `json:"determinism"`
	Availability    string          `json:"availability"`
	Purposes        []string        `json:"capabilities"` // what it is for
	Capabilities    []string        `json:"required_capabilities"`
	Bindings        []string        `json:"transport_bindings"`
	TimeoutSec      int64           `json:"timeout_sec"`     // of the call
	RunTimeoutSec   *int64          `json:"run_timeout_sec"` // of the run, without its time in the queue; null for tools that make no run
	EgressAllowlist []string        `json:"egress_allowlist"`
	Input           json.RawMessage `json:"input_schema"`
	Output          json.RawMessage `json:"output_schema"`
	RunOutput       json.RawMessage `json:"run_output_schema"` // of the finished run's output; null for tools that make no run
}

type registryDoc struct {
	domainDoc
	Total int     `json:"total"`
	Tools []Entry `json:"tools"`
}

// offered are the tools that the caller may call by the transport it came by; others do not exist for it.
func (f *face) offered(req *http.Request) []gate.Tool { return f.Gate.Offered(CallerOf(req.Context())) }

// current names the domain and the version of the catalogue as the caller sees it.
func (f *face) current(req *http.Request) domainDoc {
	return domainDoc{f.DomainID, f.Version(CallerOf(req.Context()))}
}

// cached answers from the client's own copy if the catalogue has not changed. What is listed depends on the caller, and so does the
// version.
func cached(w http.ResponseWriter, req *http.Request, now domainDoc) bool {
	tag := `"` + now.DomainID + "@" + now.Version + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Vary", "Authorization")
	if req.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	return false
}

func (f *face) domain(w http.ResponseWriter, req *http.Request) {
	if now := f.current(req); !cached(w, req, now) {
		writeJSON(w, http.StatusOK, "application/json", now)
	}
}

// tools lists the domain's tools. The gateway's own operations are in /v1/registry.
func (f *face) tools(w http.ResponseWriter, req *http.Request) {
	now := f.current(req)
	if cached(w, req, now) {
		return
	}
	doc := toolsDoc{now, 0, []toolDoc{}}
	for _, t := range f.offered(req) {
		if !slices.Contains(t.Capabilities, gate.CapGateway) {
			doc.Tools = append(doc.Tools, f.describeTool(t))
		}
	}
	doc.Total = len(doc.Tools)
	writeJSON(w, http.StatusOK, "application/json", doc)
}

func (f *face) describeTool(t gate.Tool) toolDoc {
	d := toolDoc{ToolID: t.ID, DisplayName: t.Title, Description: t.Description, Capabilities: orEmpty(t.Purposes),
		TimeoutSec:      t.RunTimeoutSec,
		EgressAllowlist: orEmpty(t.Egress), InputSchemaRef: "/v1/tools/" + t.ID + "/input_schema",
		OutputSchemaRef: "/v1/tools/" + t.ID + "/output_schema"}
	if d.TimeoutSec == 0 {
		d.TimeoutSec = seconds(f.Gate.Timeout(t)) // it makes no run
	}
	if t.Worker != nil {
		d.TransportType, d.TransportEndpoint = t.Worker.Type, t.Worker.Endpoint
	}
	return d
}

// schema answers a schema that the catalogue refers to.
func (f *face) schema(of func(gate.Tool) json.RawMessage) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		id := chi.URLParam(req, "tool_id")
		list := f.offered(req)
		i := slices.IndexFunc(list, func(t gate.Tool) bool { return t.ID == id })
		if i < 0 {
			problem(w, fault.New(fault.NotFound, "httpapi.schema", "tool_not_found", "there is no tool with this id").
				WithNext("GET /v1/tools lists the tools"))
			return
		}
		if !cached(w, req, f.current(req)) {
			writeJSON(w, http.StatusOK, "application/schema+json", of(list[i]))
		}
	}
}

func (f *face) registry(w http.ResponseWriter, req *http.Request) {
	now := f.current(req)
	if cached(w, req, now) {
		return
	}
	doc := registryDoc{now, 0, []Entry{}}
	for _, t := range f.offered(req) {
		doc.Tools = append(doc.Tools, EntryOf(f.Gate, t))
	}
	doc.Total = len(doc.Tools)
	writeJSON(w, http.StatusOK, "application/json", doc)
}

// EntryOf is the registry's entry of a tool.
func EntryOf(g *gate.Gate, t gate.Tool) Entry {
	e := Entry{ToolID: t.ID, ToolVersion: t.Version, ContractVersion: t.ContractVersion, DisplayName: t.Title, Description: t.Description,
		SideEffect: string(t.SideEffect), Idempotency: t.Idempotency, Determinism: t.Determinism, Availability: t.Availability,
		Purposes: orEmpty(t.Purposes), Capabilities: t.Capabilities, Bindings: []string{}, TimeoutSec: seconds(g.Timeout(t)),
		EgressAllowlist: orEmpty(t.Egress), Input: orNull(t.Input), Output: orNull(t.Output), RunOutput: orNull(t.RunOutput)}
	if t.RunTimeoutSec > 0 {
		e.RunTimeoutSec = &t.RunTimeoutSec
	}
	for _, b := range t.Bindings {
		e.Bindings = append(e.Bindings, string(b))
	}
	return e
}

// Tool is the registry's entry again, without its handler.
func (e Entry) Tool() gate.Tool {
	t := gate.Tool{ID: e.ToolID, Version: e.ToolVersion, ContractVersion: e.ContractVersion, Title: e.DisplayName, Description: e.Description,
		SideEffect: gate.SideEffect(e.SideEffect), Idempotency: e.Idempotency, Determinism: e.Determinism, Availability: e.Availability,
		Purposes: e.Purposes, Capabilities: e.Capabilities, Timeout: time.Duration(e.TimeoutSec) * time.Second, Egress: e.EgressAllowlist,
		Input: e.Input, Output: e.Output}
	if string(e.Output) == "null" {
		t.Output = nil
	}
	if e.RunTimeoutSec != nil {
		t.RunTimeoutSec = *e.RunTimeoutSec
	}
	for _, b := range e.Bindings {
		t.Bindings = append(t.Bindings, gate.Transport(b))
	}
	return t
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func orNull(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("null")
	}
	return b
}

// run is POST /v1/tools/{tool_id}:run {input} (AX-04).
func (f *face) run(w http.ResponseWriter, req *http.Request) {
	id := chi.URLParam(req, "tool_id")
	doc, status, err := object(w, req, false, "input")
	if err == nil && doc["input"] == nil {
		status, err = http.StatusBadRequest, fault.Invalid("httpapi.run", "", fault.Problem{Code: "RUN-INPUT", Field: "input", Rule: "present",
			Msg: "the body has no input"})
	}
	if err != nil {
		res := f.Gate.Malformed(req.Context(), CallerOf(req.Context()), id, err)
		runAnswer(w, runRefusal(id, res.ToolCallID, res.TraceID, res.Error), status)
		return
	}
	call := f.request(req, id, doc["input"])
	res := f.Gate.Call(f.effect(req, id), CallerOf(req.Context()), call)
	if res.Error != nil {
		out := runRefusal(id, call.ToolCallID, call.TraceID, res.Error)
		out.Meta.DurationMS = res.Timing.DurationMS
		runAnswer(w, out, statusOf(res.Error))
		return
	}
	out := runResponse{OK: true, ToolID: id, ToolRunID: runIn(res.Result, call.ToolCallID), Output: output(res), Meta: runMeta{res.TraceID,
		res.Timing.DurationMS}}
	runAnswer(w, out, http.StatusOK)
}

// output is the result, or where it is to be had when it is too large to be sent along.
func output(res gate.Response) json.RawMessage {
	if res.ResultRef == nil {
		return res.Result
	}
	b, err := json.Marshal(map[string]string{"result_ref": *res.ResultRef})
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

func runIn(result json.RawMessage, otherwise string) string {
	var r struct {
		RunID  string `json:"run_id"`
		Target string `json:"target_run_id"`
	}
	_ = json.Unmarshal(result, &r) // not every result is an object
	switch {
	case r.RunID != "":
		return r.RunID
	case r.Target != "":
		return r.Target
	}
	return otherwise
}

// toolCall is POST /v1/tool-calls: the raw envelope.
func (f *face) toolCall(w http.ResponseWriter, req *http.Request) {
	body, status, err := readBody(w, req)
	who := CallerOf(req.Context())
	if err != nil {
		writeJSON(w, status, "application/json", f.Gate.RefuseRaw(req.Context(), who, nil, err))
		return
	}
	var which struct {
		ToolID string `json:"tool_id"`
	}
	_ = json.Unmarshal(body, &which) // the gate judges what it is
	answer(w, f.Gate.CallRaw(f.effect(req, which.ToolID), who, body))
}

// idempotencyHeader carries HTC-10's key where there is no envelope.
const idempotencyHeader = "Idempotency-Key"

// request makes the envelope of a call that came without one.
func (f *face) request(req *http.Request, toolID string, args json.RawMessage) gate.Request {
	version := "0.0.0" // of a tool that is not there; the gate says so
	if t, err := f.Gate.Registry().Find(toolID); err == nil {
		version = t.Version
	}
	call := gate.NewRequest(toolID, version, args)
	call.Actor = gate.Actor{Kind: "agent"}
	if key := strings.TrimSpace(req.Header.Get(idempotencyHeader)); key != "" {
		call.IdempotencyKey = &key
	}
	return call
}
