// Package worker calls service workers: long-running programs of the domain that serve a tool over HTTP (docs/tools/workers.md).
//
//	POST URL   {"meta":{"trace_id","tool_run_id","domain_id","deadline_ms"},"input":{…}}
//	answer     {"ok":true, "meta":{"trace_id","tool_run_id","duration_ms"},"output":{…}}
//	           {"ok":false,"meta":{…},"error":{"code","message","retryable","details"?}}
//
// A call opens a new connection, which is closed afterwards: it is sent at most once, and a connection that the worker has dropped
// in the meantime cannot put a call in doubt. The client calls the URLs of its configuration and nothing else: it uses no proxy and follows
// no redirect.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Bounds that hold when the configuration sets no others.
const (
	AnswerBytes = 8 << 20         // of an answer
	Connections = 64              // at a time
	grace       = time.Second     // after the deadline, for an answer that reports that it has passed
	dialTime    = 5 * time.Second // to connect, TLS included
	headerBytes = 64 << 10        // of an answer's header
	textBytes   = 2000            // of a worker's message
)

// Config bounds a client.
type Config struct {
	URLs        []string       // the only ones it calls
	AnswerBytes int            // of an answer; 0: [AnswerBytes]
	Connections int            // at a time, further calls wait; 0: [Connections]
	Roots       *x509.CertPool // authorities of https; nil: the host's
}

// Client calls workers. It may be used by several goroutines.
type Client struct {
	urls  []string
	limit int
	slots chan struct{}
	roots *x509.CertPool
}

// New returns a client.
func New(c Config) *Client {
	return &Client{urls: slices.Clone(c.URLs), limit: cmp.Or(c.AnswerBytes, AnswerBytes),
		slots: make(chan struct{}, cmp.Or(c.Connections, Connections)), roots: c.Roots}
}

// Meta identifies a call to the worker.
type Meta struct {
	TraceID    string `json:"trace_id"`
	ToolRunID  string `json:"tool_run_id"`
	DomainID   string `json:"domain_id"`
	DeadlineMS int64  `json:"deadline_ms"` // milliseconds since the Unix epoch
}

// Request is one call of a tool. Input is a JSON object.
type Request struct {
	Meta  Meta            `json:"meta"`
	Input json.RawMessage `json:"input"`
}

// Answer is a tool's result.
type Answer struct {
	Output     json.RawMessage // an object, as canonical JSON
	DurationMS int64           // as the worker reports it, at most the time that the call took
}

// Call sends a request once and reads its answer until the deadline, or until ctx ends. A fault's code is one of this package's: [Upstream]
// and the other three are the worker's own, with [Away] the request was never sent, with [Unknown] it is unknown whether the tool ran.
// headers are the toolpack's; those of the contract cannot be replaced.
func (c *Client) Call(ctx context.Context, url string, headers map[string]string, r Request) (Answer, error) {
	if !slices.Contains(c.urls, url) {
		return Answer{}, fault.New(fault.Internal, "", "the URL of this call is not in the manifest")
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return Answer{}, fault.Wrap(fault.Internal, "", "cannot encode the input", err)
	}
	started := time.Now()
	deadline := time.UnixMilli(r.Meta.DeadlineMS)
	if !started.Before(deadline) {
		return Answer{}, fault.New(fault.Timeout, TimedOut, "the call's deadline passed before it was sent to the worker")
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(grace))
	defer cancel()
	resp, err := c.exchange(ctx, url, headers, body.Bytes())
	if err != nil {
		return Answer{}, err
	}
	a, err := c.read(url, resp, r.Meta)
	if err != nil {
		return Answer{}, err
	}
	a.DurationMS = min(a.DurationMS, time.Since(started).Milliseconds())
	return a, nil
}

// read reads an answer with JSON. An error may come with any status, a result only with 200.
func (c *Client) read(url string, r response, sent Meta) (Answer, error) {
	a, err := readAnswer(r.body, c.limit, sent)
	report := reportOf(err)
	switch {
	case report == nil && r.status != http.StatusOK:
		return Answer{}, badStatus(url, r.status, r.body)
	case report != nil:
		return Answer{}, report.fault(name(url))
	case err != nil:
		return Answer{}, broken(url, fault.First(err))
	}
	return a, nil
}

// response is a whole HTTP answer.
type response struct {
	status int
	date   string // its header
	body   []byte
}

// reserved lists the headers that a toolpack cannot set: they frame the message, or are the contract's.
var reserved = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host",
	"Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent"}

// exchange posts a request and reads its answer, which is JSON by its header. Redirects are faults.
func (c *Client) exchange(ctx context.Context, url string, headers map[string]string, body []byte) (response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return response{}, fault.Wrap(fault.Internal, "", "cannot make the request", err)
	}
	for k, v := range headers {
		if k = http.CanonicalHeaderKey(k); !slices.Contains(reserved, k) {
			req.Header.Set(k, v)
		}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "slurmgate")
	req.Header.Set("Content-Type", "application/json")
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return response{}, unsent(ctx, "all connections to workers are in use; the call was not sent", ctx.Err())
	}
	w := &wire{roots: c.roots}
	resp, err := w.transport().RoundTrip(req)
	if err != nil {
		return response{}, w.failed(ctx, url, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 3:
		return response{}, broken(url, fmt.Sprintf("it answered with a redirect (status %d), and redirects are not followed", resp.StatusCode)).
			WithNext("set base_url and endpoint of its entry in manifest.yaml to the address that serves the tool")
	case resp.StatusCode < 200:
		return response{}, badStatus(url, resp.StatusCode, nil)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.limit)+1))
	switch {
	case err != nil:
		return response{}, w.failed(ctx, url, err)
	case len(data) > c.limit:
		return response{}, broken(url, fmt.Sprintf("its answer has more than %d bytes", c.limit))
	}
	if why := notPlainJSON(resp.Header); why != "" {
		if resp.StatusCode != http.StatusOK {
			return response{}, badStatus(url, resp.StatusCode, data)
		}
		return response{}, broken(url, why)
	}
	return response{resp.StatusCode, resp.Header.Get("Date"), data}, nil
}

// notPlainJSON returns a fault in the header of an answer; empty: none.
func notPlainJSON(h http.Header) string {
	if coding := strings.Join(h.Values("Content-Encoding"), ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return "its answer is compressed (Content-Encoding " + fault.Clip(coding) + "), though it was asked not to"
	}
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return fmt.Sprintf("its answer has %d Content-Type headers instead of one", len(types))
	}
	media, params, err := mime.ParseMediaType(types[0])
	charset := params["charset"]
	if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "its answer has the type " + fault.Clip(types[0]) + " instead of application/json"
	}
	return ""
}

// name returns a URL as messages show it: without query, where a toolpack may have a key.
func name(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return fault.Clip(raw)
	}
	return fault.Clip(u.Scheme + "://" + u.Host + u.EscapedPath())
}
