package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/gate"
)

// pipes is a listener whose connections keep the time of the test.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// paceServer serves one import, which reads what is uploaded, and one artifact.
func paceServer(t *testing.T, read *error) *pipes {
	contents := t.TempDir()
	must(t, os.WriteFile(filepath.Join(contents, sum), make([]byte, 1<<20), 0o600))
	made := func(id string, effect gate.SideEffect, input string, h gate.Handler) gate.Tool {
		return gate.Tool{ID: id, Version: "1.0.0", SideEffect: effect, Idempotency: gate.Idempotent, Determinism: gate.BestEffort,
			Availability: gate.OfflineOK, Capabilities: []string{gate.CapGateway},
			Bindings: []gate.Transport{gate.Other}, Timeout: time.Hour, Input: json.RawMessage(input), Handle: h}
	}
	r := value(gate.NewRegistry(
		made("artifact.import", gate.Write, `{"type":"object"}`, func(_ context.Context, c gate.Call) (any, error) {
			b, err := io.ReadAll(c.Caller.Body)
			*read = err
			return map[string]any{"artifact_id": artA, "created": true, "size_bytes": len(b)}, err
		}),
		made("artifact.get", gate.Read, `{"type":"object"}`, func(context.Context, gate.Call) (any, error) {
			return map[string]any{"artifact_id": artA, "checksum_sha256": sum}, nil
		})))(t)
	p := newPipes()
	srv := &http.Server{Handler: Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: tokens{}, Contents: folder(contents)}, nil)}
	go srv.Serve(p)
	t.Cleanup(func() { srv.Close() })
	return p
}

func (p *pipes) dial(t *testing.T) net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	t.Cleanup(func() { here.Close() })
	return here
}

// An upload may take any time while pieces of it arrive; after a minute without one it ends, and the client gets an
// error.
func TestStalledUpload(t *testing.T) {
	for _, c := range []struct {
		name           string
		pieces, bytes  int // of ten bytes declared
		pause, between time.Duration
		status         int
		code           string
	}{
		{"steady", 10, 10, 0, uploadPause - time.Second, 201, ""},
		{"stalled at once", 0, 10, uploadPause, 0, 408, "upload_stalled"},
		{"stalled on the way", 3, 10, uploadPause, uploadPause - time.Second, 408, "upload_stalled"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var read error
			conn := paceServer(t, &read).dial(t)
			fmt.Fprintf(conn, "POST /v1/artifacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\nContent-Type: "+
				"application/octet-stream\r\nContent-Length: %d\r\n\r\n", c.bytes)
			last := time.Now()
			for range c.pieces {
				time.Sleep(c.between) // in the test's own time
				if _, err := conn.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				last = time.Now()
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != c.status || !strings.Contains(string(body), c.code) || time.Since(last) != c.pause ||
				errors.Is(read, os.ErrDeadlineExceeded) != (c.code != "") {
				t.Errorf("%s: %d %s after %s, read %v", c.name, res.StatusCode, body, time.Since(last), read)
			}
		})
	}
}

// A client that takes nothing more of a download for a minute loses the rest.
func TestStalledDownload(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		whole bool
	}{"slow": {writeTime - time.Second, true}, "stalled": {writeTime + time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			var read error
			conn := paceServer(t, &read).dial(t)
			fmt.Fprintf(conn, "GET /v1/artifacts/%s/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\nConnection: close\r\n\r\n", artA)
			buf := make([]byte, 4096)
			n := value(conn.Read(buf))(t)
			time.Sleep(c.pause)
			rest, _ := io.Copy(io.Discard, conn)
			if whole := int64(n)+rest > 1<<20; whole != c.whole {
				t.Errorf("%s: %d bytes", name, int64(n)+rest)
			}
		})
	}
}

// A request that sends an upload ends an earlier one that is still open, and begins when the bytes received by that
// one are stored; another caller's key, or another key, is another upload.
func TestUploadReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read error
		p := paceServer(t, &read)
		open := func(query string, n int) net.Conn {
			conn := p.dial(t)
			fmt.Fprintf(conn, "POST /v1/artifacts?%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\nContent-Type: "+
				"application/octet-stream\r\nContent-Length: %d\r\n\r\n", query, n)
			return conn
		}
		status := func(conn net.Conn, want int, code string) {
			t.Helper()
			res := value(http.ReadResponse(bufio.NewReader(conn), nil))(t)
			if body, _ := io.ReadAll(res.Body); res.StatusCode != want || !strings.Contains(string(body), code) {
				t.Errorf("%d %s, want %d %s", res.StatusCode, body, want, code)
			}
		}
		first, other := open("upload_key=of-monday", 10), open("upload_key=of-tuesday", 1)
		_, _ = first.Write([]byte("x"))
		synctest.Wait()
		began := time.Now()
		second := open("upload_key=of-monday&offset=1", 1)
		_, _ = second.Write([]byte("y"))
		status(first, 409, uploadReplaced)
		status(second, 201, "")
		_, _ = other.Write([]byte("z"))
		status(other, 201, "")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// The query describes which part of an upload a body is.
func TestUploadQuery(t *testing.T) {
	d := newDesk(t)
	for query, want := range map[string]string{"offset=3": "offset", "upload_key=short": "upload_key", "upload_key=of%20monday": "upload_key",
		"upload_key=of-monday&offset=-1": "offset", "upload_key=of-monday&offset=1e3": "offset",
		"upload_key=of-monday&offset=99999999999999999999": "offset", "upload_key=" + strings.Repeat("k", 65): "upload_key"} {
		r := d.send("POST /v1/artifacts?"+query, "bytes", "Content-Type: application/octet-stream")
		if r.status != 400 || !strings.Contains(string(r.body), `"field":"`+want+`"`) {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
}
