package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Bounds of a call.
const (
	requestBytes = 64 << 10
	maxPages     = 100
	urlBytes     = 2048
)

// server serves the worker contract.
type server struct {
	up  *upstream
	log *slog.Logger
	now func() time.Time
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) { s.run(w, r, "") })
	mux.HandleFunc("POST /scrape/run", func(w http.ResponseWriter, r *http.Request) { s.run(w, r, "scrape") })
	mux.HandleFunc("POST /crawl/run", func(w http.ResponseWriter, r *http.Request) { s.run(w, r, "crawl") })
	mux.HandleFunc("GET /healthz", s.health)
	return mux
}

// envelope is the request of the worker contract.
type envelope struct {
	Meta struct {
		TraceID    string `json:"trace_id"`
		ToolRunID  string `json:"tool_run_id"`
		DomainID   string `json:"domain_id"`
		DeadlineMS int64  `json:"deadline_ms"`
	} `json:"meta"`
	Input json.RawMessage `json:"input"`
}

type answerMeta struct {
	TraceID    string `json:"trace_id"`
	ToolRunID  string `json:"tool_run_id"`
	DurationMS int64  `json:"duration_ms"`
}

type answer struct {
	OK     bool       `json:"ok"`
	Meta   answerMeta `json:"meta"`
	Output *output    `json:"output,omitempty"`
	Error  *failure   `json:"error,omitempty"`
}

// failure is an error of the contract.
type failure struct {
	Code      string         `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func invalid(format string, args ...any) *failure {
	return &failure{Code: "VALIDATION_ERROR", Message: fmt.Sprintf(format, args...), Details: map[string]any{}}
}

// input holds the tools' input. A pointer is nil when the member is absent.
type input struct {
	URL      string   `json:"url"`
	Mode     string   `json:"mode"`
	MaxPages *int     `json:"max_pages"`
	Formats  []string `json:"formats"`
}

// run answers one call. Whatever happens, the answer is an envelope.
func (s *server) run(w http.ResponseWriter, r *http.Request, mode string) {
	began := s.now()
	var e envelope
	out, err := s.call(r, &e, mode)
	a := answer{OK: err == nil, Output: out, Meta: answerMeta{TraceID: e.Meta.TraceID, ToolRunID: e.Meta.ToolRunID,
		DurationMS: max(0, s.now().Sub(began).Milliseconds())}}
	level, code := slog.LevelInfo, "OK"
	if err != nil {
		f, ok := errors.AsType[*failure](err)
		if !ok {
			f = &failure{Code: "INTERNAL", Message: "the worker has a fault", Details: map[string]any{}}
		}
		a.Output, a.Error = nil, f
		level, code = slog.LevelWarn, f.Code
	}
	s.write(w, http.StatusOK, a)
	// Only ids: a request or an answer does not belong in a log.
	s.log.Log(context.WithoutCancel(r.Context()), level, "call", "trace_id", e.Meta.TraceID, "tool_run_id", e.Meta.ToolRunID, "code", code,
		"duration_ms", a.Meta.DurationMS)
}

// call reads the request and has it done.
func (s *server) call(r *http.Request, e *envelope, mode string) (*output, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, invalid("the request is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, requestBytes+1))
	switch {
	case err != nil:
		return nil, invalid("the request did not arrive whole")
	case len(body) > requestBytes:
		return nil, invalid("the request has more than %d bytes", requestBytes)
	case json.Unmarshal(body, e) != nil:
		return nil, invalid("the request is no envelope: a JSON object with meta and input")
	case e.Meta.TraceID == "" || e.Meta.ToolRunID == "" || e.Meta.DeadlineMS <= 0:
		return nil, invalid("meta needs trace_id, tool_run_id and deadline_ms")
	}
	deadline := time.UnixMilli(e.Meta.DeadlineMS)
	if !s.now().Before(deadline) {
		return nil, late()
	}
	in, err := readInput(e.Input, mode)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	return s.up.fetch(ctx, in)
}

func late() *failure {
	return &failure{Code: "TIMEOUT", Message: "the deadline passed", Retryable: true, Details: map[string]any{}}
}

// readInput reads and judges the input; mode is the path's, or empty.
func readInput(data json.RawMessage, mode string) (input, error) {
	var in input
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return in, invalid("input is not an object")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, invalid("input has a member of another type or name; it takes url, mode, max_pages and formats")
	}
	switch {
	case in.Mode == "" && mode == "":
		in.Mode = "scrape"
	case in.Mode == "":
		in.Mode = mode
	case mode != "" && in.Mode != mode:
		return in, invalid("mode must be %s here", mode)
	}
	u, err := url.Parse(in.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || len(in.URL) > urlBytes:
		return in, invalid("url must be an http or https address of at most %d bytes, without user and password", urlBytes)
	case in.Mode != "scrape" && in.Mode != "crawl":
		return in, invalid("mode must be scrape or crawl")
	case in.MaxPages != nil && in.Mode != "crawl":
		return in, invalid("max_pages is for mode crawl only")
	case in.MaxPages != nil && (*in.MaxPages < 1 || *in.MaxPages > maxPages):
		return in, invalid("max_pages must be 1 to %d", maxPages)
	}
	for i, f := range in.Formats {
		if !slices.Contains([]string{"markdown", "html", "text"}, f) || slices.Contains(in.Formats[:i], f) {
			return in, invalid("formats must be some of markdown, html and text, each once")
		}
	}
	if len(in.Formats) == 0 {
		in.Formats = []string{"markdown"}
	}
	return in, nil
}

// health reports whether a call could be made: whether there is a key.
func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if _, err := s.up.secret(); err != nil {
		s.write(w, http.StatusServiceUnavailable, map[string]any{"ok": false, "error": err.Error()})
		return
	}
	s.write(w, http.StatusOK, map[string]any{"ok": true})
}

// write sends an answer. An upstream may echo what it was sent, so the key is removed from every answer.
func (s *server) write(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		s.log.Error("cannot encode an answer")
		http.Error(w, "cannot encode the answer", http.StatusInternalServerError)
		return
	}
	body := b.String()
	for _, key := range s.up.known() {
		body = strings.ReplaceAll(body, key, "[key]")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := io.WriteString(w, body); err != nil {
		s.log.Warn("the gateway did not take the answer")
	}
}
