// Package fault is the one error type of slurmgate.
//
// An [Error] has a Kind, which is what sort of failure it is for programs, a stable Code, and, for people, a message and the next step.
// Bad input carries one [Problem] for every rule it breaks, so that an author learns everything at once.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Kind sorts failures for programs. The list is append-only: exit codes, HTTP statuses and the tool-call
// envelope are derived from it.
type Kind string

// The kinds.
const (
	Internal   Kind = "internal"   // a bug or a broken invariant here
	Validation Kind = "validation" // the request breaks a rule; repeating it cannot help
	NotFound   Kind = "not_found"  // the named thing does not exist, or is not visible to the caller
	Auth       Kind = "auth"       // the caller is not authenticated
	Capability Kind = "capability" // the caller lacks a capability
	Policy     Kind = "policy"     // policy forbids it
	Conflict   Kind = "conflict"   // the request contradicts what is recorded
	Tool       Kind = "tool"       // the tool, or its job, failed
	Canceled   Kind = "canceled"   // the caller gave up
	Timeout    Kind = "timeout"    // it has not finished within the time allowed
	Transport  Kind = "transport"  // Slurm, a filesystem or the network did not answer; retrying may help
	Unknown    Kind = "unknown"    // it is unknown whether the effect took place; check before repeating
)

// Problem is one broken rule of an input.
type Problem struct {
	Code  string `json:"code"`           // stable, upper case, e.g. PLAN-DEST-PATH
	Field string `json:"field"`          // path to the value, e.g. io.inputs[0].dest_relpath
	Rule  string `json:"rule"`           // the rule in words
	Msg   string `json:"message"`        // what was found
	Hint  string `json:"hint,omitempty"` // what to do
	File  string `json:"file,omitempty"` // the file it is in, where there is one
	Line  int    `json:"line,omitempty"` // 1-based, 0 when unknown

	Column int    `json:"column,omitempty"` // in characters, 1-based, 0 when unknown
	Next   []Step `json:"next,omitempty"`   // what to do, as data
}

// String formats the problem on one line, for logs.
func (p Problem) String() string { return p.Text(forLogs) }

// Text formats the problem on one line; words renders a list of steps.
func (p Problem) Text(words func([]Step) string) string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		if p.Line > 0 && p.Column > 0 {
			fmt.Fprintf(&b, ":%d", p.Column)
		}
		b.WriteString(": ")
	} else if p.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", p.Line, p.Column)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Msg)
	if p.Rule != "" {
		b.WriteString(" (" + p.Rule + ")")
	}
	if hint := Advice(p.Hint, p.Next, words); hint != "" {
		b.WriteString("; " + hint)
	}
	return b.String()
}

// Equal reports whether two problems are the same.
func (p Problem) Equal(q Problem) bool {
	next := slices.EqualFunc(p.Next, q.Next, Step.equal)
	p.Next, q.Next = nil, nil
	return next && p.String() == q.String() && p.Code == q.Code
}

// Error is a failure with a kind. Code defaults to the kind.
type Error struct {
	Kind     Kind      // for programs
	Code     string    // stable code; the first problem's when empty
	Msg      string    // one sentence for people
	Next     string    // plain advice, for people; it names no command
	Steps    []Step    // what to do next, as data
	Retry    int       // seconds after which the same call may succeed; 0: nothing is known
	Problems []Problem // broken rules, for Validation and Policy
	Err      error     // the cause
}

// Error returns the whole text for logs, with steps as verbs and arguments. Faces render it with [Text].
func (e *Error) Error() string { return Text(e, forLogs) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error without a cause.
func New(kind Kind, code, msg string) *Error {
	return &Error{Kind: kind, Code: code, Msg: msg}
}

// Wrap returns an error with a cause. The kind of a cause that is itself an *Error is used when kind is
// empty.
func Wrap(kind Kind, code, msg string, err error) *Error {
	if kind == "" {
		kind = KindOf(err)
	}
	return &Error{Kind: kind, Code: code, Msg: msg, Err: err}
}

// WithNext sets plain advice, which names no command, and returns the error.
func (e *Error) WithNext(next string) *Error {
	e.Next = next
	return e
}

// WithRetry sets after how many seconds the same call may succeed, and returns the error.
func (e *Error) WithRetry(seconds int) *Error {
	e.Retry = seconds
	return e
}

// Advised returns the first *Error in the chain with a next step; nil without one.
func Advised(err error) *Error {
	for e := range chain(err) {
		if e.Next != "" || len(e.Steps) > 0 {
			return e
		}
	}
	return nil
}

// RetryOf returns the time until the same call may succeed, in seconds: of the first *Error in the chain that has
// one; 0: unknown.
func RetryOf(err error) int {
	for e := range chain(err) {
		if e.Retry > 0 {
			return e.Retry
		}
	}
	return 0
}

// Invalid returns a Validation error with one or more problems.
func Invalid(msg string, problems ...Problem) *Error {
	return &Error{Kind: Validation, Msg: msg, Problems: problems}
}

// KindOf returns the kind of the outermost *Error in the chain, Internal if absent.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// chain yields the *Errors of a chain, the outermost first.
func chain(err error) iter.Seq[*Error] {
	return func(yield func(*Error) bool) {
		for e, ok := errors.AsType[*Error](err); ok && yield(e); {
			e, ok = errors.AsType[*Error](e.Err)
		}
	}
}

// CodeOf returns the stable code of the outermost *Error that has one: its own, its first problem's, or
// its kind.
func CodeOf(err error) string {
	for e := range chain(err) {
		switch {
		case e.Code != "":
			return e.Code
		case len(e.Problems) > 0:
			return e.Problems[0].Code
		case e.Err == nil:
			return string(e.Kind)
		}
	}
	return string(Internal)
}

// ProblemsOf returns the problems of the first *Error in the chain that has any.
func ProblemsOf(err error) []Problem {
	for e := range chain(err) {
		if len(e.Problems) > 0 {
			return e.Problems
		}
	}
	return nil
}

// First returns the first broken rule that an error reports, or else its text.
func First(err error) string {
	if p := ProblemsOf(err); len(p) > 0 {
		return p[0].String()
	}
	return Clip(err.Error())
}

// Is reports whether the error has the kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// The codes of errors in the worker contract and at :run (AX-06).
const (
	UpstreamError   = "UPSTREAM_ERROR"
	ValidationError = "VALIDATION_ERROR"
	TimeoutError    = "TIMEOUT"
	InternalError   = "INTERNAL"
	NotFoundError   = "NOT_FOUND" // at the gateway alone
)

// statuses are the exit status of the command line, the HTTP status and the code at :run of each kind. An unknown outcome is a 500 and
// INTERNAL, because clients and proxies repeat a 503, or an UPSTREAM_ERROR, by themselves.
var statuses = map[Kind]struct {
	exit, http int
	code       string
}{
	Internal: {1, 500, InternalError}, Validation: {2, 400, ValidationError}, NotFound: {3, 404, NotFoundError},
	Auth: {4, 401, ValidationError}, Capability: {4, 403, ValidationError}, Policy: {4, 403, ValidationError},
	Conflict: {5, 409, ValidationError}, Tool: {6, 502, UpstreamError}, Canceled: {6, 409, InternalError},
	Timeout: {7, 504, TimeoutError}, Transport: {8, 503, UpstreamError}, Unknown: {9, 500, InternalError},
}

// Kinds returns all kinds, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(statuses)) }

// ExitCode returns the exit status of the command line for a kind; an unknown kind is [Internal].
func (k Kind) ExitCode() int { return cmp.Or(statuses[k].exit, statuses[Internal].exit) }

// HTTPStatus returns the HTTP status for a kind; an unknown kind is [Internal].
func (k Kind) HTTPStatus() int { return cmp.Or(statuses[k].http, statuses[Internal].http) }

// ContractCode returns the code of a kind in the worker contract and at :run; an unknown kind is [Internal].
func (k Kind) ContractCode() string { return cmp.Or(statuses[k].code, InternalError) }

// Retryable reports whether the same call may succeed later without a change. An unknown outcome is not retryable: the first call may
// have had its effect.
func (k Kind) Retryable() bool { return k == Transport || k == Timeout }
