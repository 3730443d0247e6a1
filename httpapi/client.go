package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Client calls a gateway through its socket.
type Client struct {
	http *http.Client
	path string
	face gate.Transport // what the calls are recorded as; empty: the shell's
}

// As returns a client whose calls are recorded as those of another face on this host.
func (c *Client) As(face gate.Transport) *Client {
	other := *c
	other.face = face
	return &other
}

// send makes a request of the gateway. The body's type is empty where there is no body.
func (c *Client) send(ctx context.Context, method, path, typ string, body io.Reader) (*http.Response, error) {
	h, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, body)
	if err != nil {
		return nil, err
	}
	if typ != "" {
		h.Header.Set("Content-Type", typ)
	}
	if c.face != "" {
		h.Header.Set(FaceHeader, string(c.face))
	}
	res, err := c.http.Do(h)
	if err != nil {
		return nil, c.gone(ctx, err)
	}
	return res, nil
}

// Registry is what a gateway serves to a caller.
type Registry struct {
	DomainID string
	Version  string // of the catalogue
	Tools    []gate.Tool
}

// Registry reads the registry, as far as the caller sees it.
func (c *Client) Registry(ctx context.Context) (Registry, error) {
	res, err := c.send(ctx, http.MethodGet, "/v1/registry", "", nil)
	if err != nil {
		return Registry{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return Registry{}, readProblem(res.Body)
	}
	var doc registryDoc
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		return Registry{}, c.gone(ctx, err)
	}
	out := Registry{DomainID: doc.DomainID, Version: doc.Version}
	for _, e := range doc.Tools {
		out.Tools = append(out.Tools, e.Tool())
	}
	return out, nil
}

// Dial looks for a gateway at the socket. NotFound when nobody listens there.
func Dial(ctx context.Context, path string) (*Client, error) {
	c := &Client{path: path, http: &http.Client{Transport: &http.Transport{MaxIdleConns: 2, IdleConnTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/healthz", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, "httpapi.Dial", "no_gateway", "no gateway listens at "+path, err)
	}
	res.Body.Close()
	return c, nil
}

// Call sends one envelope.
func (c *Client) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	var out gate.Response
	body, err := json.Marshal(req)
	if err != nil {
		return out, err
	}
	res, err := c.send(ctx, http.MethodPost, "/v1/tool-calls", "application/json", bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") == "application/problem+json" {
		return out, readProblem(res.Body)
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return out, c.gone(ctx, err)
	}
	return out, nil
}

// Content copies an artifact's bytes to w.
func (c *Client) Content(ctx context.Context, artifactID string, w io.Writer) error {
	res, err := c.send(ctx, http.MethodGet, "/v1/artifacts/"+artifactID+"/content", "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusOK:
		_, err := io.Copy(w, res.Body)
		return err
	case res.Header.Get("Content-Type") == "application/problem+json":
		return readProblem(res.Body)
	}
	var env gate.Response
	if err := json.NewDecoder(res.Body).Decode(&env); err != nil || env.Error == nil {
		return fault.New(fault.Internal, "httpapi.Content", "", fmt.Sprintf("the gateway answered %d", res.StatusCode))
	}
	return env.Error.Fault()
}

func readProblem(r io.Reader) error {
	var p struct{ Title, Code, Detail string }
	if err := json.NewDecoder(r).Decode(&p); err != nil {
		return fault.Wrap(fault.Internal, "httpapi", "", "the gateway's answer cannot be read", err)
	}
	return fault.New(fault.Kind(p.Title), "httpapi", p.Code, p.Detail)
}

func (c *Client) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(fault.Canceled, "httpapi", "canceled", "given up", ctx.Err())
	}
	return fault.Wrap(fault.Transport, "httpapi", "gateway_gone", "the gateway at "+c.path+" stopped during the call", err).
		WithNext("make the same call again")
}
