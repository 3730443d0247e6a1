package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
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

// overHTTP is the way through the unix socket or a port, as a principal.
type overHTTP struct {
	http *http.Client
	url  string
	who  gate.Principal
}

func (o overHTTP) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return gate.Response{}, err
	}
	return o.CallRaw(ctx, body)
}

func (o overHTTP) CallRaw(ctx context.Context, body []byte) (res gate.Response, err error) {
	token, err := json.Marshal(o.who)
	if err != nil {
		return res, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/v1/tool-calls", bytes.NewReader(body))
	if err != nil {
		return res, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+string(token))
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
		path := filepath.Join(shortFolder(t), "s")
		s, err := Listen(SocketConfig{Path: path, Mode: 0o600}, Handler(Config{Gate: g, Contents: folder(t.TempDir()), Auth: named{}}, nil),
			func() {}, quiet)
		must(t, err)
		t.Cleanup(func() { s.Shutdown(context.Background()) })
		return overHTTP{&http.Client{Transport: overUnix(path)}, "http://gateway", who}
	})
}

// The face's part of the suite of the gate, over the port.
//
// proves HTC-06 HTC-12
func TestConformancePort(t *testing.T) {
	conformance.RunFace(t, gate.Other, func(t *testing.T, g *gate.Gate, who gate.Principal) conformance.Entry {
		stopping := make(chan struct{})
		port := value(Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 64}},
			Handler(Config{Gate: g, Contents: folder(t.TempDir()),
				Auth: named{}}, stopping), sync.OnceFunc(func() { close(stopping) }), quiet))(t)
		t.Cleanup(func() { port.Shutdown(context.Background()) })
		return overHTTP{&http.Client{Transport: &http.Transport{}}, "http://" + port.Addr(), who}
	})
}
