package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// Bounds of one call.
const (
	maxAnswer = 1 << 20  // bytes of an answer, unless the request allows more
	maxHeader = 64 << 10 // bytes of its header
	maxText   = 500      // bytes of an answer that are shown
	callTime  = time.Minute
)

// Fault codes of a call. If slurmrestd cannot be reached the code is [run.Unreachable].
const (
	Refused   = "rest_refused"    // Slurm answered with an error number; see [problemsOf]
	Unread    = "rest_unreadable" // the answer is not whole
	Status    = "rest_status"     // a whole answer without an error member, but with a status of failure
	AuthFault = "rest_auth"       // slurmrestd does not accept the token, or the user of the socket
	NoPath    = "rest_no_path"    // slurmrestd does not serve this call in this version
)

// request is one call of slurmrestd.
type request struct {
	method string
	path   string // {v} stands for the version, e.g. /slurm/{v}/jobs/
	query  url.Values
	body   []byte
	limit  int64 // of the answer in bytes; 0: maxAnswer

	// members decodes the required members of the answer while it arrives. Each function must consume exactly one
	// value. Their results are invalid until call has returned without an error.
	members members
}

type members = map[string]func(*jsontext.Decoder) error

// unsent marks the error of a call whose request certainly did not reach slurmrestd.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

func notSent(err error) error { return unsent{err} }

func wasNotSent(err error) bool {
	_, ok := errors.AsType[unsent](err)
	return ok
}

// refusal is the cause of a fault with code [Refused].
type refusal struct{ problems []problem }

func (r *refusal) Error() string { return fmt.Sprint(r.problems) }

// problemsOf returns the errors with which Slurm refused a call, or nil if there was no answer or none with errors.
func problemsOf(err error) []problem {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.problems
	}
	return nil
}

// call sends one request and reads its answer. An answer is whole if it is exactly one JSON object, for any status. The
// error is a Transport fault:
//   - for which wasNotSent returns true if the request certainly did not arrive;
//   - with code [Refused] when the whole answer has errors: problemsOf lists them, and the answer is returned too;
//   - with codes [AuthFault] and [NoPath] when slurmrestd refused the request before it processed it;
//   - otherwise the effect of the request is unknown.
//
// Without a deadline in ctx a call has a minute.
func (c *client) call(ctx context.Context, r request) (answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	if strings.Contains(r.path, "{v}") {
		v, err := c.negotiated(ctx)
		if err != nil {
			return answer{}, notSent(err)
		}
		r.path = strings.Replace(r.path, "{v}", v.name, 1)
	}
	for again := false; ; again = true {
		token, err := c.tokens.get(ctx)
		if err != nil {
			return answer{}, notSent(err)
		}
		a, err := c.once(ctx, r, token)
		switch {
		case fault.CodeOf(err) == AuthFault && !again && c.tokens.replace(ctx, token):
			continue // refused before it was processed, and there is a new token
		case fault.CodeOf(err) == NoPath && !strings.HasPrefix(r.path, "/slurmdb/"): // slurmdb paths exist only with accounting
			c.version.forget() // it may be another slurmrestd by now
		}
		return a, err
	}
}

// once sends the request on one connection and reads its answer.
func (c *client) once(ctx context.Context, r request, token string) (answer, error) {
	k, err := c.pool.take(ctx)
	if err != nil {
		return answer{}, notSent(err)
	}
	if err := c.prove(ctx, k, c.version.known(), token); err != nil {
		c.pool.drop(k)
		return answer{}, notSent(err)
	}
	a, err := c.exchange(ctx, k, r, token)
	if err != nil && !answered(err) {
		c.epoch.Add(1)
	}
	c.pool.put(k, a.reusable)
	return a, err
}

// answered reports whether slurmctld itself refused a call: all numbers are its own errors, none is of the connection
// to it.
func answered(err error) bool {
	problems := problemsOf(err)
	for _, p := range problems {
		if !p.answered() {
			return false
		}
	}
	return len(problems) > 0
}

// exchange writes the request and reads the answer.
func (c *client) exchange(ctx context.Context, k *conn, r request, token string) (answer, error) {
	stop := k.obey(ctx)
	defer stop()
	resp, arrived, err := k.roundTrip(c.header(r, token), cmp.Or(r.limit, maxAnswer))
	if err != nil {
		err = c.unanswered(ctx, k, r, err)
		if !arrived {
			err = notSent(err)
		}
		return answer{}, err
	}
	a, err := read(resp.Body, r.members)
	a.status = resp.StatusCode
	if err != nil {
		return a, c.misread(ctx, k, r, resp, err)
	}
	a.reusable = stop() && !resp.Close && k.finished()
	if len(a.errors) > 0 {
		return a, fault.Wrap(fault.Transport, Refused, "Slurm refused "+r.what()+": "+a.complaints(), &refusal{a.errors})
	}
	if resp.StatusCode/100 != 2 {
		return a, fault.New(fault.Transport, Status, fmt.Sprintf("slurmrestd answered %s with status %d and no error", r.what(), a.status))
	}
	return a, nil
}

// header builds the request for net/http, which only writes it.
func (c *client) header(r request, token string) *http.Request {
	u := url.URL{Scheme: "http", Host: c.host, Path: r.path, RawQuery: r.query.Encode()}
	h := &http.Request{Method: r.method, URL: &u, Host: c.host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{
		"Accept": {"application/json"}, "User-Agent": {"slurmgate"}}}
	if token != "" {
		h.Header["X-SLURM-USER-NAME"] = []string{c.user}
		h.Header["X-SLURM-USER-TOKEN"] = []string{token}
	}
	if r.body != nil {
		h.Header.Set("Content-Type", "application/json")
		h.Body, h.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	return h
}

// what returns the name of the request in messages.
func (r request) what() string { return r.method + " " + r.path }

// unanswered returns the fault of a call without an answer.
func (c *client) unanswered(ctx context.Context, k *conn, r request, err error) error {
	said := ""
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		said = k.complaint()
	}
	return fault.Wrap(fault.Transport, run.Unreachable, fmt.Sprintf("slurmrestd at %s did not answer %s%s", c.pool.name, r.what(), said), err)
}

// misread returns the fault of a call whose answer is not a whole JSON object.
func (c *client) misread(ctx context.Context, k *conn, r request, resp *http.Response, err error) error {
	plain := !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	switch {
	case plain && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		return fault.New(fault.Transport, AuthFault, fmt.Sprintf("slurmrestd at %s does not accept the gateway as %s (status %d)", c.pool.name,
			c.user, resp.StatusCode)).WithNext("check slurm.rest.user and the token in the site file, and how slurmrestd authenticates")
	case plain && resp.StatusCode == http.StatusNotFound:
		return fault.New(fault.Transport, NoPath, fmt.Sprintf("slurmrestd at %s does not serve %s", c.pool.name, r.what()))
	case ctx.Err() != nil:
		return c.unanswered(ctx, k, r, err)
	}
	return fault.Wrap(fault.Transport, Unread, fmt.Sprintf("the answer of slurmrestd at %s to %s (status %d) is not whole", c.pool.name,
		r.what(), resp.StatusCode), err)
}

// shown returns another program's output as one line, bounded and without secrets.
func shown(s string) string {
	return slurm.Excerpt(strings.Join(strings.Fields(s), " "), maxText)
}
