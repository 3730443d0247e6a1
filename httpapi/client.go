package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Client calls a gateway through its socket.
type Client struct {
	http *http.Client
	path string
	face gate.Face // what the calls are recorded as

	token string // of the calls; empty: they are the user's own
	span  string // that the calls are part of, see [gate.Request]; empty: none

	hand func(body io.Reader) io.Reader // the body's reader when a file is sent with it; nil: no file
}

// As returns a client whose calls are recorded as those of another face on this host.
func (c *Client) As(face gate.Face) *Client {
	other := *c
	other.face = face
	return &other
}

// Bear makes the client's calls those of a token, with its rights instead of the user's own. An empty token changes nothing.
func (c *Client) Bear(token string) { c.token = token }

// exchange makes a request of the gateway. The body's type is empty where there is no body. What the gateway refused with a problem
// document is returned as the envelope has errors.
func (c *Client) exchange(ctx context.Context, method, path, typ string, body io.Reader) (*http.Response, *gate.ErrorBody, error) {
	h, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, body)
	if err != nil {
		return nil, nil, err
	}
	if c.hand != nil && h.Body != nil {
		h.Body, h.GetBody = io.NopCloser(c.hand(body)), nil
		h.Header.Set(handedHeader, "1")
		h.Header.Set("Expect", "100-continue")
	}
	for name, value := range map[string]string{"Content-Type": typ, FaceHeader: string(c.face), SpanHeader: c.span} {
		if value != "" {
			h.Header.Set(name, value)
		}
	}
	if c.token != "" {
		h.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(h)
	if err != nil {
		return nil, nil, c.gone(ctx, err)
	}
	if res.Header.Get("Content-Type") != problemType {
		return res, nil, nil
	}
	defer res.Body.Close()
	var p problemDoc
	if err := json.NewDecoder(io.LimitReader(res.Body, maxRequestBytes)).Decode(&p); err != nil {
		return nil, nil, fault.Wrap(fault.Internal, "", "the gateway's answer cannot be read", err)
	}
	e := &gate.ErrorBody{Code: p.Code, Kind: p.Title, Message: p.Detail, Retryable: p.Retryable, Details: p.Details}
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	if e.Details["kind"] == nil {
		e.Details["kind"] = p.Title
	}
	return nil, e, nil
}

// read makes a request and decodes its answer. What the gateway refused with a problem document is an error.
func (c *Client) read(ctx context.Context, method, path, typ string, body io.Reader, answer any) error {
	res, refused, err := c.exchange(ctx, method, path, typ, body)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused.Fault()
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		return c.gone(ctx, err)
	}
	return nil
}

// Registry is the catalogue that a gateway serves to a caller.
type Registry struct {
	DomainID string
	Version  string // of the catalogue
	Tools    []gate.Tool
	Named    []string // those that the caller's credentials name
}

// CatalogVersion returns the version of the catalogue that the caller sees.
func (c *Client) CatalogVersion(ctx context.Context) (string, error) {
	var doc domainDoc
	err := c.read(ctx, http.MethodGet, "/v1/domain", "", nil, &doc)
	return doc.Version, err
}

// Registry reads the registry, as far as the caller sees it.
func (c *Client) Registry(ctx context.Context) (Registry, error) {
	var doc registryDoc
	if err := c.read(ctx, http.MethodGet, "/v1/registry", "", nil, &doc); err != nil {
		return Registry{}, err
	}
	out := Registry{DomainID: doc.DomainID, Version: doc.Version, Named: doc.Named}
	for _, e := range doc.Tools {
		out.Tools = append(out.Tools, e.tool())
	}
	return out, nil
}

// Dial connects to the gateway at the socket; NotFound when no process listens there.
func Dial(ctx context.Context, path string) (*Client, error) {
	c := &Client{path: path, face: gate.FaceShell, http: &http.Client{Transport: &http.Transport{MaxIdleConns: 8, MaxIdleConnsPerHost: 8,
		IdleConnTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/healthz", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if refused := refusedAt(ctx, path); refused != nil {
			return nil, refused
		}
		return nil, fault.Wrap(fault.NotFound, "no_gateway", "no gateway listens at "+path, err)
	}
	defer res.Body.Close()
	if err := problemOf(res); err != nil {
		return nil, err
	}
	return c, nil
}

// problemOf returns the error in an answer; nil for any other answer.
func problemOf(res *http.Response) error {
	if res.Header.Get("Content-Type") != problemType {
		return nil
	}
	var p problemDoc
	if err := json.NewDecoder(io.LimitReader(res.Body, maxRequestBytes)).Decode(&p); err != nil {
		return fault.Wrap(fault.Internal, "", "the gateway's answer cannot be read", err)
	}
	return fault.New(fault.Kind(p.Title), p.Code, p.Detail)
}

// refusedAt returns why a gateway refuses connections before it reads anything; nil if it does not. Such an answer
// may come before the request is sent, which an HTTP client does not expect.
func refusedAt(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	return problemOf(res)
}

// Call sends one envelope.
func (c *Client) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	var out gate.Response
	body, err := json.Marshal(req)
	one := *c
	one.span = req.ParentSpanID
	if err == nil {
		err = one.read(ctx, http.MethodPost, "/v1/tool-calls", "application/json", bytes.NewReader(body), &out)
	}
	return out, err
}

// Content copies an artifact's bytes to w.
func (c *Client) Content(ctx context.Context, artifactID string, w io.Writer) error {
	res, refused, err := c.exchange(ctx, http.MethodGet, "/v1/artifacts/"+artifactID+"/content", "", nil)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused.Fault()
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fault.New(fault.Internal, "", fmt.Sprintf("the gateway answered %d", res.StatusCode))
	}
	_, err = io.Copy(w, res.Body)
	return err
}

// Upload imports the bytes of r as an artifact; the gateway chooses empty arguments.
func (c *Client) Upload(ctx context.Context, r io.Reader, label, typ, project string) (gate.Response, error) {
	q := url.Values{}
	for name, v := range map[string]string{"label": label, "type": typ, "project_id": project} {
		if v != "" {
			q.Set(name, v)
		}
	}
	res, refused, err := c.exchange(ctx, http.MethodPost, "/v1/artifacts?"+q.Encode(), uploadType, r)
	if err != nil || refused != nil {
		return gate.Response{Error: refused}, err
	}
	defer res.Body.Close()
	result, err := io.ReadAll(io.LimitReader(res.Body, maxRequestBytes))
	if err != nil {
		return gate.Response{}, c.gone(ctx, err)
	}
	return gate.Response{OK: true, Result: result}, nil
}

func (c *Client) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(fault.Canceled, "canceled", "given up", ctx.Err())
	}
	return fault.Wrap(fault.Transport, "gateway_gone", "the gateway at "+c.path+" stopped during the call", err).
		WithNext("make the same call again")
}
