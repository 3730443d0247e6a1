package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"slurmgate/gate"
	"slurmgate/gate/conformance"
)

// named lets in whom the suite names: the token is the principal itself.
type named struct{}

func (named) Peer(int) (gate.Principal, error) { return gate.Process().Principal, nil }

func (named) Bearer(_ context.Context, token string) (p gate.Principal, err error) {
	err = json.Unmarshal([]byte(token), &p)
	return p, err
}

// overSocket is the way through the unix socket.
type overSocket struct {
	http  *http.Client
	token string
}

func (o overSocket) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return gate.Response{}, err
	}
	return o.CallRaw(ctx, body)
}

func (o overSocket) CallRaw(ctx context.Context, body []byte) (gate.Response, error) {
	return o.send(ctx, "http://gateway", body)
}

func (o overSocket) send(ctx context.Context, url string, body []byte) (res gate.Response, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/tool-calls", bytes.NewReader(body))
	if err != nil {
		return res, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.token)
	got, err := o.http.Do(req)
	if err != nil {
		return res, err
	}
	defer got.Body.Close()
	return res, json.NewDecoder(got.Body).Decode(&res)
}

// The face's part of the suite of the gate, over the socket.
//
// proves HTC-06 HTC-12
func TestConformance(t *testing.T) {
	conformance.RunFace(t, gate.Local, func(t *testing.T, g *gate.Gate, who gate.Principal) conformance.Entry {
		dir, err := os.MkdirTemp("", "sg")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(dir, "s")
		s, err := Listen(SocketConfig{Path: path, Mode: 0o600}, Handler(Config{Gate: g, Contents: folder(dir), Auth: named{}}, nil), func() {},
			slog.New(slog.NewTextHandler(io.Discard, nil)))
		must(t, err)
		t.Cleanup(func() { s.Shutdown(context.Background()) })
		token, err := json.Marshal(who)
		must(t, err)
		return overSocket{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}, string(token)}
	})
}

// The face's part of the suite of the gate, over the port.
//
// proves HTC-06 HTC-12
func TestConformancePort(t *testing.T) {
	conformance.RunFace(t, gate.Other, func(t *testing.T, g *gate.Gate, who gate.Principal) conformance.Entry {
		stopping := make(chan struct{})
		port, err := Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 64}},
			Handler(Config{Gate: g, Contents: folder(t.TempDir()),
				Auth: named{}}, stopping), sync.OnceFunc(func() { close(stopping) }), slog.New(slog.DiscardHandler))
		must(t, err)
		t.Cleanup(func() { port.Shutdown(context.Background()) })
		token, err := json.Marshal(who)
		must(t, err)
		return overPort{overSocket{&http.Client{Transport: &http.Transport{}}, string(token)}, "http://" + port.Addr()}
	})
}

// overPort is the way through TCP.
type overPort struct {
	overSocket
	url string
}

func (o overPort) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return gate.Response{}, err
	}
	return o.CallRaw(ctx, body)
}

func (o overPort) CallRaw(ctx context.Context, body []byte) (gate.Response, error) {
	return o.send(ctx, o.url, body)
}
