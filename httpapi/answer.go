package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/visible"
)

// writeJSON writes a document. Hidden characters are in it as escapes: a program reads them, a terminal does not.
func writeJSON(w http.ResponseWriter, status int, typ string, v any) {
	h := w.Header()
	h.Set("Content-Type", typ)
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	if raw, ok := v.(json.RawMessage); ok && len(raw) > 0 { // canonical already
		clean := visible.JSON(raw)
		_, _ = w.Write(append(clean[:len(clean):len(clean)], '\n')) // this fails when the peer has closed the connection
		return
	}
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v)       // every answer can be encoded
	_, _ = w.Write(visible.JSON(b.Bytes())) // as above
}

// answer writes an envelope with the status of its error.
func answer(w http.ResponseWriter, res gate.Response) {
	if res.Error != nil {
		advise(w.Header(), res.Error.Details)
	}
	writeJSON(w, statusOf(res), "application/json", res)
}

func statusOf(res gate.Response) int {
	if res.Error == nil {
		return http.StatusOK
	}
	return res.Error.Fault().Kind.HTTPStatus()
}

// problemDoc is an error as RFC 9457 has it.
type problemDoc struct {
	Type       string         `json:"type"`
	Status     int            `json:"status"`
	Title      string         `json:"title"` // the kind
	Code       string         `json:"code"`
	Detail     string         `json:"detail"`
	Retryable  bool           `json:"retryable"`
	Details    map[string]any `json:"details,omitempty"`
	TraceID    string         `json:"trace_id,omitempty"`
	ToolCallID string         `json:"tool_call_id,omitempty"`
}

const problemType = "application/problem+json"

func writeProblem(w http.ResponseWriter, p problemDoc) {
	advise(w.Header(), p.Details)
	writeJSON(w, p.Status, problemType, p)
}

// problem answers what did not become a call.
func problem(w http.ResponseWriter, err error) { refuse(w, fault.KindOf(err).HTTPStatus(), err) }

// refuse writes a problem with one of HTTP's own statuses.
func refuse(w http.ResponseWriter, status int, err error) {
	writeProblem(w, describe(Words(fault.Step.String), status, err))
}

// problem writes an error from behind the gate.
func (f *face) problem(w http.ResponseWriter, err error) {
	writeProblem(w, describe(f.Gate.Words().Of(gate.Other), fault.KindOf(err).HTTPStatus(), err))
}

// advise sets Retry-After where an error has the time until a retry.
func advise(h http.Header, details map[string]any) {
	if s, ok := details["retry_after_seconds"].(int); ok {
		h.Set("Retry-After", strconv.Itoa(s))
	}
}

func describe(words func([]fault.Step) string, status int, err error) problemDoc {
	p := failure(gate.Response{Error: gate.BodyOf(words, err)})
	p.Status = status
	delete(p.Details, "kind") // the title has it
	return p
}

// failed answers a call that the gate or the tool refused.
func failed(w http.ResponseWriter, res gate.Response) { writeProblem(w, failure(res)) }

func failure(res gate.Response) problemDoc {
	e := res.Error
	return problemDoc{Type: "about:blank", Status: statusOf(res), Title: string(e.Fault().Kind), Code: e.Code, Detail: e.Message,
		Retryable: e.Retryable, Details: e.Details, TraceID: res.TraceID, ToolCallID: res.ToolCallID}
}

// runResponse is the answer of :run (AX-04): output or error, never both.
type runResponse struct {
	OK        bool            `json:"ok"`
	ToolID    string          `json:"tool_id"`
	ToolRunID string          `json:"tool_run_id"` // the run's id, or the call's where it makes no run
	Output    json.RawMessage `json:"output,omitempty"`
	Error     *runError       `json:"error,omitempty"`
	Meta      runMeta         `json:"meta"`
}

type runError struct {
	Code      string         `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details"`
}

type runMeta struct {
	TraceID    string `json:"trace_id"`
	DurationMS int64  `json:"duration_ms"`
}

// writeRun answers :run with a call's response.
func writeRun(w http.ResponseWriter, toolID string, status int, res gate.Response) {
	out := runResponse{OK: res.Error == nil, ToolID: toolID, Meta: runMeta{res.TraceID, res.Timing.DurationMS}}
	if e := res.Error; e != nil {
		advise(w.Header(), e.Details)
		kind, details := e.Fault().Kind, map[string]any{}
		maps.Copy(details, e.Details)
		if said, ok := details["worker"].(map[string]any); ok { // here they are the caller's own, under names that say nothing else
			delete(details, "worker")
			for k, v := range said {
				if _, taken := details[k]; !taken {
					details[k] = v
				}
			}
		}
		details["kind"], details["code"] = string(kind), e.Code
		out.ToolRunID = cmp.Or(res.RunID, res.ToolCallID)
		out.Error = &runError{Code: kind.ContractCode(), Message: e.Message, Retryable: e.Retryable, Details: details}
	} else {
		var r struct {
			RunID  string `json:"run_id"`
			Target string `json:"target_run_id"`
		}
		if res.RunID == "" { // a worker's answer names no run of ours
			_ = json.Unmarshal(res.Result, &r) // not every result is an object
		}
		out.ToolRunID, out.Output = cmp.Or(res.RunID, r.RunID, r.Target, res.ToolCallID), output(res)
	}
	writeJSON(w, status, "application/json", out)
}

// output returns the result, or its reference when it is too large for the answer.
func output(res gate.Response) json.RawMessage {
	if res.ResultRef == nil {
		return res.Result
	}
	b, _ := json.Marshal(map[string]string{"result_ref": *res.ResultRef}) // a text can be encoded
	return b
}

// isTooLarge reports whether a body was cut off by its limit.
func isTooLarge(err error) bool {
	_, is := errors.AsType[*http.MaxBytesError](err)
	return is
}

// oneLine keeps a header's value from being more than that.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
