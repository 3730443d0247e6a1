package fault

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// The one table of kinds: exit code, HTTP status, whether trying again may help, the code at :run.
//
// proves AX-06
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind         Kind
		exit, status int
		retry        bool
		code         string
	}{
		{Internal, 1, 500, false, "INTERNAL"}, {Validation, 2, 400, false, "VALIDATION_ERROR"}, {NotFound, 3, 404, false, "NOT_FOUND"},
		{Auth, 4, 401, false, "VALIDATION_ERROR"}, {Capability, 4, 403, false, "VALIDATION_ERROR"},
		{Policy, 4, 403, false, "VALIDATION_ERROR"}, {Conflict, 5, 409, false, "VALIDATION_ERROR"}, {Tool, 6, 502, false, "UPSTREAM_ERROR"},
		{Canceled, 6, 409, false, "INTERNAL"}, {Timeout, 7, 504, true, "TIMEOUT"}, {Transport, 8, 503, true, "UPSTREAM_ERROR"},
		{Unknown, 9, 500, false, "INTERNAL"}, {"new", 1, 500, false, "INTERNAL"},
	} {
		k := c.kind
		if k.ExitCode() != c.exit || k.HTTPStatus() != c.status || k.Retryable() != c.retry || k.ContractCode() != c.code {
			t.Errorf("%s: exit %d, status %d, retryable %v, %s; want %d, %d, %v, %s", k, k.ExitCode(), k.HTTPStatus(), k.Retryable(),
				k.ContractCode(), c.exit, c.status, c.retry, c.code)
		}
	}
}

func TestChains(t *testing.T) {
	p := Problem{Code: "P-1", Field: "a.b", Rule: "must", Msg: "is not", Hint: "do", File: "f.yaml", Line: 3}
	inner := Invalid("", p)
	outer := fmt.Errorf("outer: %w", Wrap("", "", "reading", inner))
	for _, c := range []struct {
		err  error
		kind Kind
		code string
		n    int
	}{
		{inner, Validation, "P-1", 1}, {outer, Validation, "P-1", 1}, {Wrap(Transport, "c", "m", inner), Transport, "c", 1},
		{io.EOF, Internal, "internal", 0}, {New(Policy, "", "m"), Policy, "policy", 0}, {nil, Internal, "internal", 0},
		{Wrap("", "", "m", io.EOF), Internal, "internal", 0},
	} {
		if KindOf(c.err) != c.kind || CodeOf(c.err) != c.code || len(ProblemsOf(c.err)) != c.n {
			t.Errorf("%v: %s %s %d", c.err, KindOf(c.err), CodeOf(c.err), len(ProblemsOf(c.err)))
		}
	}
	if Is(nil, Internal) || !Is(outer, Validation) || !errors.Is(Wrap(Tool, "", "", io.EOF), io.EOF) {
		t.Error("chain")
	}
	if got, want := inner.Error(), "f.yaml:3: a.b: is not (must); do"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	many := Invalid("two things", p, p).WithNext("mend them")
	if got := many.Error(); strings.Count(got, "\n  ") != 2 || !strings.HasPrefix(got, "two things\n") || !strings.HasSuffix(got,
		"Next: mend them") {
		t.Error(got)
	}
	if got := (&Error{Kind: Tool}).Error(); got != "tool" {
		t.Error(got)
	}
}
