package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
)

// oneToken knows one token, and tells the context of each request that has it.
type oneToken struct{ seen chan error }

func (oneToken) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "no peers")
}

func (o oneToken) Bearer(ctx context.Context, token string) (gate.Principal, error) {
	if token != "good" {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "not valid here")
	}
	o.seen <- ctx.Err()
	return gate.Principal{Name: "token:good", Rights: gate.Everything()}, nil
}

// A proxy sends the requests of many over one connection. A failed login that is answered late does not spoil it for the others: their
// requests would begin with a context that has ended.
func TestFailedLoginsLeaveTheConnectionWhole(t *testing.T) {
	r, err := gate.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	auth := oneToken{make(chan error, 1)}
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: auth, Contents: folder(t.TempDir())}, nil)
	port, err := Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 4}}, h, func() {}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Shutdown(context.Background()) })
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	get := func(token string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+port.Addr()+"/v1/tools", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil { // so that the connection is used again
			t.Error(err)
		}
		res.Body.Close()
	}
	for range freeFailures + 6 { // the last waits for 1.6 s
		get("guess")
	}
	get("good")
	if err := <-auth.seen; err != nil {
		t.Error(err)
	}
}
