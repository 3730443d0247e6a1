package fault

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// The one table of kinds: exit code, HTTP status, whether trying again may help.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind         Kind
		exit, status int
		retry        bool
	}{
		{Internal, 1, 500, false}, {Validation, 2, 400, false}, {NotFound, 3, 404, false}, {Auth, 4, 401, false}, {Capability, 4, 403, false},
		{Policy, 4, 403, false},
		{Conflict, 5, 409, false}, {Tool, 6, 502, false}, {Canceled, 6, 409, false}, {Timeout, 7, 504, true}, {Transport, 8, 503, true},
		{Unknown, 9, 500, false}, {"new", 1, 500, false},
	} {
		if c.kind.ExitCode() != c.exit || c.kind.HTTPStatus() != c.status || c.kind.Retryable() != c.retry {
			t.Errorf("%s: %d %d %v", c.kind, c.kind.ExitCode(), c.kind.HTTPStatus(), c.kind.Retryable())
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
