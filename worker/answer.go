package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Codes of the faults of a call.
const (
	Upstream   = "worker_upstream"   // UPSTREAM_ERROR: what the worker itself calls refused or failed
	Validation = "worker_validation" // VALIDATION_ERROR: the worker refuses the input
	TimedOut   = "worker_timeout"    // TIMEOUT: the worker gave up in time, or the call was never sent
	Failed     = "worker_internal"   // INTERNAL: the worker has a fault
	Envelope   = "worker_envelope"   // the answer is not one of the contract
	Away       = "worker_away"       // the call was never sent
	Unknown    = "outcome_unknown"   // the call was sent, and no whole answer came
)

const detailBytes = 8 << 10 // of an error's details; more are left out

// report is the error that a worker answered with.
type report struct {
	code, message string
	retryable     bool
	details       json.RawMessage // an object; nil: none
}

func (r *report) Error() string {
	if r.message == "" {
		return r.code
	}
	return r.code + ": " + fault.ClipTo(r.message, textBytes)
}

func reportOf(err error) *report {
	r, _ := errors.AsType[*report](err)
	return r
}

// fault returns the report as the caller sees it.
func (r *report) fault(worker string) error {
	kind, code := fault.Internal, Failed
	switch r.code {
	case fault.UpstreamError:
		kind, code = fault.Tool, Upstream
		if r.retryable {
			kind = fault.Transport
		}
	case fault.ValidationError:
		kind, code = fault.Validation, Validation
	case fault.TimeoutError:
		kind, code = fault.Timeout, TimedOut
	}
	return &fault.Error{Kind: kind, Code: code, Msg: "the worker at " + worker + " answered with an error", Err: r}
}

// Code returns the contract's code of a failed call, whether the same call may be repeated, and the worker's details,
// nil when there are none. A call whose outcome is unknown must never be repeated unseen.
func Code(err error) (code string, retryable bool, details json.RawMessage) {
	if r := reportOf(err); r != nil {
		return r.code, r.retryable, r.details
	}
	if fault.CodeOf(err) == Unknown && errors.Is(err, context.DeadlineExceeded) {
		return fault.TimeoutError, false, nil
	}
	kind := fault.KindOf(err)
	return kind.ContractCode(), kind.Retryable(), nil
}

// broken returns the fault of an answer that is not of the contract.
func broken(url, why string) *fault.Error {
	return fault.New(fault.Internal, Envelope, "the worker at "+name(url)+" broke the worker contract: "+why)
}

func badStatus(url string, status int, body []byte) error {
	what := fmt.Sprintf("it answered with status %d", status)
	if s := http.StatusText(status); s != "" {
		what += " (" + s + ")"
	}
	if text := fault.Clip(strings.Join(strings.Fields(string(body[:min(len(body), 4096)])), " ")); text != "" {
		what += ": " + text
	}
	e := broken(url, what)
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		return e.WithNext("set endpoint of its entry in manifest.yaml to the path that serves POST")
	}
	return e
}

// answer is the envelope. Unknown members are refused, so that nothing of a worker's answer is dropped unseen.
type answer struct {
	OK     *bool          `json:"ok"`
	Meta   *answerMeta    `json:"meta"`
	Output jsontext.Value `json:"output"`
	Error  *answerError   `json:"error"`
}

type answerMeta struct {
	TraceID    *string `json:"trace_id"`
	ToolRunID  *string `json:"tool_run_id"`
	DurationMS *int64  `json:"duration_ms"`
}

type answerError struct {
	Code      *string        `json:"code"`
	Message   *string        `json:"message"`
	Retryable *bool          `json:"retryable"`
	Details   jsontext.Value `json:"details"`
}

// readAnswer parses an envelope that answers sent. The error is a *report when the worker reports one, else it
// describes the fault. A null output next to an error counts as absent, as does a null error next to an output: common
// serializers write them.
func readAnswer(data []byte, limit int, sent Meta) (Answer, error) {
	d, err := plan.ReadUpTo(data, limit)
	if err != nil {
		return Answer{}, err
	}
	var a answer
	if err := d.Into(&a); err != nil {
		return Answer{}, err
	}
	m, e, output := a.Meta, a.Error, a.Output.Kind() != 0 && a.Output.Kind() != 'n'
	switch {
	case a.OK == nil:
		return wrong("ok is missing")
	case m == nil || m.TraceID == nil || m.ToolRunID == nil || m.DurationMS == nil:
		return wrong("meta has no trace_id, tool_run_id or duration_ms")
	case *m.TraceID != sent.TraceID || *m.ToolRunID != sent.ToolRunID:
		return wrong("it answers another call: meta has other ids than the request")
	case *m.DurationMS < 0:
		return wrong("duration_ms is negative")
	case output == (e != nil):
		return wrong("it needs either output or error")
	case *a.OK != output:
		return wrong("ok is true with an error, or false without one")
	case output && a.Output.Kind() != '{':
		return wrong("output is not an object")
	case output:
		return Answer{Output: json.RawMessage(a.Output), DurationMS: *m.DurationMS}, nil
	case e.Code == nil || e.Message == nil || e.Retryable == nil:
		return wrong("error has no code, message or retryable")
	}
	r := &report{code: *e.Code, message: *e.Message, retryable: *e.Retryable}
	switch r.code {
	case fault.UpstreamError, fault.ValidationError, fault.TimeoutError, fault.InternalError:
	default:
		return wrong("error.code is " + fault.Clip(r.code) + ", not one of UPSTREAM_ERROR, VALIDATION_ERROR, TIMEOUT, INTERNAL")
	}
	switch kind := e.Details.Kind(); {
	case kind != 0 && kind != 'n' && kind != '{':
		return wrong("error.details is not an object")
	case len(e.Details) > detailBytes:
		r.details = fmt.Appendf(nil, `{"omitted_bytes":%d}`, len(e.Details))
	case kind == '{':
		r.details = json.RawMessage(e.Details)
	}
	return Answer{}, r
}

func wrong(what string) (Answer, error) { return Answer{}, errors.New(what) }
