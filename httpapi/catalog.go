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
	Kind              string   `json:"kind,omitzero"` // job_worker, service_worker or hybrid, from the manifest
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

// Entry is a tool in the registry with all its properties (HTC-05).
type Entry struct {
	gate.Tool
	TimeoutSec    int64  `json:"timeout_sec"`     // of the call
	RunTimeoutSec *int64 `json:"run_timeout_sec"` // of the run, without its time in the queue; null for tools that make no run
}

type registryDoc struct {
	domainDoc
	Total int      `json:"total"`
	Tools []Entry  `json:"tools"`
	Named []string `json:"named,omitzero"` // those that the caller's credentials name
}

// offered returns the tools that the caller may call by its transport; others do not exist for it.
func (f *face) offered(req *http.Request) []gate.Tool { return f.Gate.Offered(CallerOf(req.Context())) }

// listed answers a part of the catalogue, or that the client's own copy is current. What is listed depends on the caller, and so does the
// version.
func (f *face) listed(w http.ResponseWriter, req *http.Request, typ string, part func(now domainDoc) any) {
	now := domainDoc{f.DomainID, f.Version(CallerOf(req.Context()))}
	tag := `"` + now.DomainID + "@" + now.Version + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Vary", "Authorization")
	if req.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeJSON(w, http.StatusOK, typ, part(now))
}

func (f *face) domain(w http.ResponseWriter, req *http.Request) {
	f.listed(w, req, "application/json", func(now domainDoc) any { return now })
}

// tools lists the domain's tools. The gateway's own operations are in /v1/registry.
func (f *face) tools(w http.ResponseWriter, req *http.Request) {
	f.listed(w, req, "application/json", func(now domainDoc) any {
		doc := toolsDoc{now, 0, []toolDoc{}}
		for _, t := range f.offered(req) {
			if !slices.Contains(t.Capabilities, gate.CapGateway) {
				doc.Tools = append(doc.Tools, f.describeTool(t))
			}
		}
		doc.Total = len(doc.Tools)
		return doc
	})
}

func (f *face) describeTool(t gate.Tool) toolDoc {
	d := toolDoc{ToolID: t.ID, Kind: t.Kind, DisplayName: t.Title, Description: t.Description, Capabilities: orEmpty(t.Purposes),
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
			problem(w, fault.New(fault.NotFound, "tool_not_found", "there is no tool with this id").
				WithNext("GET /v1/tools lists the tools"))
			return
		}
		f.listed(w, req, "application/schema+json", func(domainDoc) any { return of(list[i]) })
	}
}

func (f *face) registry(w http.ResponseWriter, req *http.Request) {
	f.listed(w, req, "application/json", func(now domainDoc) any {
		list := f.offered(req)
		doc := registryDoc{now, len(list), []Entry{}, CallerOf(req.Context()).Tools}
		for _, t := range list {
			doc.Tools = append(doc.Tools, EntryOf(f.Gate, t))
		}
		return doc
	})
}

// EntryOf returns the registry's entry of a tool.
func EntryOf(g *gate.Gate, t gate.Tool) Entry {
	e := Entry{Tool: t, TimeoutSec: seconds(g.Timeout(t))}
	e.Purposes, e.Egress, e.Bindings = orEmpty(t.Purposes), orEmpty(t.Egress), orEmpty(t.Bindings)
	if t.RunTimeoutSec > 0 {
		e.RunTimeoutSec = &t.RunTimeoutSec
	}
	return e
}

// tool returns the entry's tool, without its handler.
func (e Entry) tool() gate.Tool {
	t := e.Tool
	t.Timeout = time.Duration(e.TimeoutSec) * time.Second
	if e.RunTimeoutSec != nil {
		t.RunTimeoutSec = *e.RunTimeoutSec
	}
	for _, schema := range []*json.RawMessage{&t.Output, &t.RunOutput} {
		if string(*schema) == "null" {
			*schema = nil
		}
	}
	return t
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// run serves POST /v1/tools/{tool_id}:run {input} (AX-04).
func (f *face) run(w http.ResponseWriter, req *http.Request) {
	id := chi.URLParam(req, "tool_id")
	doc, status, err := object(w, req, false, "input")
	if err == nil && doc["input"] == nil {
		status, err = http.StatusBadRequest, fault.Invalid("", fault.Problem{Code: "RUN-INPUT", Field: "input", Rule: "present",
			Msg: "the body has no input"})
	}
	if err != nil {
		writeRun(w, id, status, f.Gate.Malformed(req.Context(), CallerOf(req.Context()), id, err))
		return
	}
	res := f.Gate.Call(f.effect(req, id, false), CallerOf(req.Context()), f.request(req, id, doc["input"]))
	writeRun(w, id, statusOf(res), res)
}

// toolCall serves POST /v1/tool-calls: the raw envelope.
func (f *face) toolCall(w http.ResponseWriter, req *http.Request) {
	body, file, status, err := readHanded(w, req)
	who := CallerOf(req.Context())
	if file != nil {
		defer file.Close()
		who.File = file
	}
	if err != nil {
		writeJSON(w, status, "application/json", f.Gate.Invalid(req.Context(), who, err))
		return
	}
	var which struct {
		ToolID string `json:"tool_id"`
		DryRun bool   `json:"dry_run"`
	}
	_ = json.Unmarshal(body, &which) // the gate judges what it is
	answer(w, f.Gate.CallRaw(f.effect(req, which.ToolID, which.DryRun), who, body))
}

// idempotencyHeader carries HTC-10's key where there is no envelope.
const idempotencyHeader = "Idempotency-Key"

// request makes the envelope of a call without one.
func (f *face) request(req *http.Request, toolID string, args json.RawMessage) gate.Request {
	toolID = gate.IDOf(toolID)
	version := "0.0.0" // of an unknown tool; the gate refuses it
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
