// Package adapter is a service worker in front of a foreign MCP server (ARC-10): a separate process that lists the server's
// tools, and carries out calls of those its configuration names by the worker contract (docs/tools/adapter.md).
//
//	POST /TOOL_ID/DIGEST   the contract; DIGEST is what the manifest pins of the tool's name and schemas
//	GET  /healthz          {"ok":true,"tools":{"TOOL_ID":"DIGEST"}}; 503 while the upstream or one of the tools is away
//
// The upstream's key is in the adapter's environment alone. The adapter never repeats a call by itself.
package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Server serves the worker contract.
type Server struct {
	config Config
	client *Client
	log    *slog.Logger
	slots  chan struct{}
}

// NewServer makes a server over a client.
func NewServer(c Config, client *Client, log *slog.Logger) *Server {
	return &Server{config: c, client: client, log: log, slots: make(chan struct{}, c.Calls)}
}

const (
	maxRequest = 4 << 20 // bytes of a call
	healthTime = 10 * time.Second
)

// call is the envelope of a request.
type call struct {
	Meta struct {
		TraceID    string `json:"trace_id"`
		ToolRunID  string `json:"tool_run_id"`
		DomainID   string `json:"domain_id"`
		DeadlineMS int64  `json:"deadline_ms"`
	} `json:"meta"`
	Input json.RawMessage `json:"input"`
}

// read reads a body strictly: each key once and no other than these.
func (c *call) read(body []byte) error {
	doc, err := plan.ReadUpTo(body, maxRequest)
	if err != nil {
		return err
	}
	return doc.Into(c)
}

// answer is the envelope of an answer.
type answer struct {
	OK     bool            `json:"ok"`
	Meta   answerMeta      `json:"meta"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *problem        `json:"error,omitempty"`
}

type answerMeta struct {
	TraceID    string `json:"trace_id"`
	ToolRunID  string `json:"tool_run_id"`
	DurationMS int64  `json:"duration_ms"`
}

// Handler returns the server's HTTP interface.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{tool}/{digest}", s.run)
	mux.HandleFunc("GET /healthz", s.health)
	return mux
}

// Serve serves until ctx ends. Calls in progress may continue for the configured time; then they are cancelled
// upstream.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return calls }}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, done := context.WithTimeout(context.WithoutCancel(ctx), s.config.Stop)
	defer done()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		cancel()
		last, done := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer done()
		err = server.Shutdown(last)
	}
	s.client.Close()
	return err
}

func (s *Server) run(w http.ResponseWriter, req *http.Request) {
	started := time.Now()
	var c call
	if typ, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); typ != "application/json" {
		http.Error(w, "the body of a call is application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRequest))
	if err == nil {
		err = c.read(body)
	}
	if err != nil || c.Meta.TraceID == "" || c.Meta.ToolRunID == "" || len(c.Input) == 0 || c.Input[0] != '{' {
		http.Error(w, "the body is not a call of the worker contract", http.StatusBadRequest)
		return
	}
	out, failed := s.carryOut(req.Context(), req.PathValue("tool"), req.PathValue("digest"), c)
	a := answer{OK: failed == nil, Output: out, Error: failed,
		Meta: answerMeta{c.Meta.TraceID, c.Meta.ToolRunID, time.Since(started).Milliseconds()}}
	s.note(req.PathValue("tool"), c, a)
	if body, err = json.Marshal(a); err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.config.Upstream.hide(body))
}

// note logs a call, without what went in and came out.
func (s *Server) note(tool string, c call, a answer) {
	attrs := []any{"tool_id", fault.Clip(tool), "tool_run_id", fault.Clip(c.Meta.ToolRunID), "trace_id", fault.Clip(c.Meta.TraceID),
		"ok", a.OK, "duration_ms", a.Meta.DurationMS}
	if a.Error != nil {
		attrs = append(attrs, "code", a.Error.Code, "reason", a.Error.Details["reason"])
	}
	s.log.Info("call", attrs...)
}

// carryOut makes a call of a tool by its deadline.
func (s *Server) carryOut(ctx context.Context, id, digest string, c call) (json.RawMessage, *problem) {
	tool, ok := s.config.find(id)
	if !ok {
		return nil, failure(upstreamError, reasonUnknown, "the adapter's configuration has no tool "+fault.Clip(id), false)
	}
	ctx, cancel := context.WithDeadline(ctx, time.UnixMilli(c.Meta.DeadlineMS))
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, failure(timeoutError, reasonBusy, "all concurrent calls of the adapter are in use; nothing was sent", true)
	}
	status := &seen{}
	session, tools, err := s.client.ready(context.WithValue(ctx, seenKey{}, status))
	switch {
	case ctx.Err() != nil:
		return nil, failure(timeoutError, reasonAway, "the upstream did not answer before the deadline; the call was not sent", true)
	case err != nil:
		s.log.Warn("the upstream cannot be reached", "err", s.hidden(err))
		if n := int(status.status.Load()); n >= 400 {
			return nil, badStatus(n)
		}
		return nil, failure(upstreamError, reasonAway,
			"the upstream cannot be reached; the call was not sent: "+fault.ClipTo(err.Error(), maxText), true)
	}
	now, there := tools[tool.Name]
	switch {
	case !there:
		return nil, failure(upstreamError, reasonGone,
			"the upstream has no tool "+fault.Clip(tool.Name)+" any more; the call was not sent", false)
	case now.Digest != digest:
		p := failure(upstreamError, reasonChanged, "the upstream's tool "+fault.Clip(tool.Name)+
			" has other schemas than the manifest pins; the call was not sent. The administrator has to look at the new schemas and pin them",
			false)
		p.Details["pinned"], p.Details["found"] = fault.Clip(digest), now.Digest
		return nil, p
	}
	return s.client.callTool(ctx, session, tool.Name, c.Input)
}

func (s *Server) hidden(err error) string {
	return string(s.config.Upstream.hide([]byte(fault.ClipTo(err.Error(), maxText))))
}

// health reports whether every configured tool can be called.
func (s *Server) health(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), healthTime)
	defer cancel()
	out, status := map[string]any{"ok": true}, http.StatusOK
	tools, err := s.client.Tools(ctx)
	digests, gone := map[string]string{}, []string{}
	for _, t := range s.config.Tools {
		if l, ok := tools[t.Name]; ok {
			digests[t.ID] = l.Digest
		} else {
			gone = append(gone, t.ID)
		}
	}
	switch {
	case err != nil:
		out = map[string]any{"ok": false, "error": "the upstream cannot be reached: " + s.hidden(err)}
		status = http.StatusServiceUnavailable
	case len(gone) > 0:
		out = map[string]any{"ok": false, "error": "the upstream lacks tools", "missing": gone, "tools": digests}
		status = http.StatusServiceUnavailable
	default:
		out["tools"] = digests
	}
	body, err := json.Marshal(out)
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
