package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
)

const sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

// folder is a store of one folder.
type folder string

func (f folder) Open(sha256 string) (*os.File, error) {
	file, err := os.Open(filepath.Join(string(f), sha256))
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, "object_not_found", "it is gone", err)
	}
	return file, nil
}

// Artifact opens the one object of the folder, for all but art_2.
func (f folder) Artifact(_ context.Context, id string) (io.ReadSeekCloser, error) {
	if id == "art_2" {
		return f.Open(strings.Repeat("0", 64))
	}
	return f.Open(sum)
}

// owner lets this user in, and the token "good".
type owner struct{}

func (owner) Peer(uid int) (gate.Principal, error) {
	if uid != os.Getuid() {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "somebody else")
	}
	return gate.Process().Principal, nil
}

func (owner) Bearer(_ context.Context, token string) (gate.Principal, error) {
	if token != "good" {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "not a token")
	}
	return gate.Principal{Name: "token:good", Method: gate.ByToken, Rights: gate.RightsOf([]string{gate.CapRead}, []string{gate.All})}, nil
}

// serve starts the face with three tools and returns its socket.
func serve(t *testing.T) (path string, s *Server) {
	t.Helper()
	dir := shortFolder(t)
	must(t, os.WriteFile(filepath.Join(dir, sum), bytes.Repeat([]byte("hello\n"), 100_000), 0o600))
	artifacts := func(_ context.Context, c gate.Call) (any, error) {
		var a struct {
			ID string `json:"artifact_id"`
		}
		if err := json.Unmarshal(c.Args, &a); err != nil {
			return nil, err
		}
		switch a.ID {
		case "art_1":
			return map[string]string{"checksum_sha256": sum}, nil
		case "art_2":
			return map[string]string{"checksum_sha256": strings.Repeat("0", 64)}, nil
		}
		return nil, fault.New(fault.NotFound, "artifact_not_found", "there is none")
	}
	object := json.RawMessage(`{"type":"object"}`)
	tool := func(id string, h gate.Handler) gate.Tool {
		return gate.Tool{ID: id, Version: "1.0.0", SideEffect: gate.Read, Idempotency: gate.Idempotent, Determinism: gate.BestEffort,
			Availability: gate.OfflineOK,
			Capabilities: []string{gate.CapRead}, Bindings: []gate.Transport{gate.Local, gate.Other}, Input: object, Handle: h}
	}
	rows := tool("batch.rows", func(context.Context, gate.Call) (any, error) { return bundleRows, nil })
	if o, ok := new(app.Gateway).Find(rows.ID); ok {
		rows.Input = o.Tool().Input
	}
	r, err := gate.NewRegistry(rows,
		tool("test.echo", func(_ context.Context, c gate.Call) (any, error) { return c.Args, nil }),
		tool("test.slow", func(ctx context.Context, c gate.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
		tool("test.file", func(_ context.Context, c gate.Call) (any, error) {
			if c.Caller.File == nil {
				return nil, fault.New(fault.Validation, "no_file", "there is none")
			}
			b, err := io.ReadAll(c.Caller.File)
			return map[string]string{"text": string(b)}, err
		}),
		tool("artifact.get", artifacts))
	must(t, err)
	path = filepath.Join(dir, "run", "api.sock")
	s, err = Listen(SocketConfig{Path: path, Mode: 0o600}, Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Contents: folder(dir),
		Auth: owner{}}, nil),
		func() {}, quiet)
	must(t, err)
	return path, s
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c := value(Dial(t.Context(), path))(t)
	return c
}

func TestSocket(t *testing.T) {
	path, s := serve(t)
	for p, want := range map[string]os.FileMode{path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		st, err := os.Lstat(p)
		if err != nil || st.Mode() != want {
			t.Errorf("%s: %v, want %v", p, st.Mode(), want)
		}
	}
	names, _ := filepath.Glob(filepath.Dir(path) + "/.*")
	if len(names) != 0 {
		t.Error(names)
	}
	dial(t, path)
	must(t, s.Shutdown(t.Context()))
	if _, err := Dial(t.Context(), path); !fault.Is(err, fault.NotFound) {
		t.Error("a dead gateway's socket:", err)
	}
}

// shortFolder returns a folder for a socket, whose path must be short.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir := value(os.MkdirTemp("", "sg"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// overUnix sends requests to a socket.
func overUnix(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
}

// leaveSocket leaves a socket as a dead gateway does.
func leaveSocket(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.Close()
}

var quiet = slog.New(slog.DiscardHandler)

// The sockets of a dead gateway are replaced.
func TestStaleSocket(t *testing.T) {
	for _, name := range []string{"s", ".s"} {
		dir := shortFolder(t)
		must(t, leaveSocket(filepath.Join(dir, name)))
		s, err := Listen(SocketConfig{Path: filepath.Join(dir, "s"), Mode: 0o600}, http.NotFoundHandler(), func() {}, quiet)
		must(t, err)
		dial(t, filepath.Join(dir, "s"))
		s.Shutdown(t.Context())
	}
}

// Anything else where the socket belongs is refused by what it is, and stays as it was.
func TestSocketPathIsTaken(t *testing.T) {
	cases := map[string]func(path string) error{
		"is a file":          func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"is a folder":        func(path string) error { return os.Mkdir(path, 0o700) },
		"is a symbolic link": func(path string) error { return os.Symlink("/nowhere", path) },
		"is a named pipe":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"another program serves the socket": func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		},
	}
	if os.Geteuid() == 0 { // only root can make another user's socket
		cases["is a socket of another user (uid 12345)"] = func(path string) error {
			return errors.Join(leaveSocket(path), os.Lchown(path, 12345, 12345))
		}
	}
	for want, leave := range cases {
		for _, name := range []string{"s", ".s"} {
			dir := shortFolder(t)
			path := filepath.Join(dir, name)
			must(t, leave(path))
			before := value(os.Lstat(path))(t)
			s, err := Listen(SocketConfig{Path: filepath.Join(dir, "s"), Mode: 0o600}, http.NotFoundHandler(), func() {}, quiet)
			if err == nil {
				s.Shutdown(t.Context())
				t.Errorf("%s: %s was replaced", name, want)
				continue
			}
			if text := err.Error(); !strings.Contains(text, path) || !strings.Contains(text, want) || !strings.Contains(text, "gateway.socket") {
				t.Error(text)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
				t.Errorf("%s: %s was changed: %v", name, want, err)
			}
		}
	}
}

func TestDialNobody(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none")); !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != "no_gateway" {
		t.Error(err)
	}
}

func TestListenRefuses(t *testing.T) {
	for _, path := range []string{"/proc/none/s", filepath.Join(t.TempDir(), strings.Repeat("x", 120), "s")} {
		if s, err := Listen(SocketConfig{Path: path, Mode: 0o600}, http.NotFoundHandler(), func() {}, quiet); err == nil {
			s.Shutdown(t.Context())
			t.Errorf("served %s", path)
		}
	}
}

func TestCallRoundTrip(t *testing.T) {
	path, _ := serve(t)
	c := dial(t, path)
	req := gate.NewRequest("test.echo", "1.0.0", json.RawMessage(`{"é":[1,null]}`))
	res, err := c.Call(t.Context(), req)
	if err != nil || !res.OK || string(res.Result) != `{"é":[1,null]}` || res.ToolCallID != req.ToolCallID {
		t.Errorf("Call returned %s for %s, error %+v, %v; want the arguments for %s", res.Result, res.ToolCallID, res.Error,
			err, req.ToolCallID)
	}
	res, err = c.Call(t.Context(), gate.NewRequest("test.none", "1.0.0", json.RawMessage(`{}`)))
	if err != nil || res.OK || res.Error.Fault().Kind != fault.NotFound {
		t.Errorf("a call of an unknown tool returned ok %t, error %+v, %v; want NotFound", res.OK, res.Error, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := c.Call(ctx, gate.NewRequest("test.slow", "1.0.0", json.RawMessage(`{}`))); !fault.Is(err, fault.Canceled) {
		t.Error(err)
	}
}

// A gateway that stops in the middle of a call causes a transport fault with a next step.
func TestGatewayGone(t *testing.T) {
	path, s := serve(t)
	c := dial(t, path)
	must(t, s.Shutdown(t.Context()))
	_, err := c.Call(t.Context(), gate.NewRequest("test.echo", "1.0.0", json.RawMessage(`{}`)))
	if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != "gateway_gone" || !strings.Contains(err.Error(), "Next: ") {
		t.Error(err)
	}
	if err := c.Content(t.Context(), "art_1", io.Discard); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}

// Shutdown waits for the requests in progress.
func TestShutdownDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, leave := newPipes(), make(chan struct{})
		s := start(&door{Listener: p, conns: newConns(Limits{})}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }),
			func() {}, quiet)
		conn := p.dial(t)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		synctest.Wait()
		down := make(chan error, 1)
		go func() { down <- s.Shutdown(t.Context()) }()
		select {
		case err := <-down:
			t.Fatalf("Shutdown returned %v while a request was in progress", err)
		case <-time.After(time.Hour):
		}
		close(leave)
		if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") {
			t.Errorf("the request in progress was answered with %q, %v, want 200", got, err)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown after the request = %v", err)
		}
	})
}

// The status of an invalid envelope is 400, and 413 of one that is too large; the suite of the gate checks the
// answers.
func TestBadEnvelopes(t *testing.T) {
	path, _ := serve(t)
	c := dial(t, path)
	for body, want := range map[string]int{"{": 400, `{"args":"` + strings.Repeat("x", maxRequestBytes) + `"}`: 413} {
		res := value(c.http.Post("http://gateway/v1/tool-calls", "application/json", strings.NewReader(body)))(t)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("POST /v1/tool-calls of %d bytes that are no envelope has status %d, want %d", len(body), res.StatusCode, want)
		}
	}
}

func TestContent(t *testing.T) {
	path, _ := serve(t)
	c := dial(t, path)
	var got bytes.Buffer
	if err := c.Content(t.Context(), "art_1", &got); err != nil || got.Len() != 600_000 {
		t.Error(got.Len(), err)
	}
	for id, code := range map[string]string{"art_3": "artifact_not_found", "art_2": "object_not_found"} {
		if err := c.Content(t.Context(), id, io.Discard); !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != code {
			t.Errorf("%s: %v", id, err)
		}
	}
	res := value(c.http.Get("http://gateway/v1/artifacts/art_1/content"))(t)
	defer res.Body.Close()
	if res.Header.Get("Content-Type") != "application/octet-stream" || res.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(res.Header)
	}
}

// bundleRows is a page of rows: of its outputs the first two are for a bundle.
var bundleRows = map[string]any{"rows": []map[string]any{
	{"outputs": []packed{{ArtifactID: "art_1", Size: 600_000, SHA256: sum}, {ArtifactID: "art_2", SHA256: strings.Repeat("0", 64)}}},
	{"outputs": []packed{{ArtifactID: "art_3", Size: 600_000, SHA256: sum}, {ArtifactID: "art_1", Size: 600_000, SHA256: sum}}},
	{"outputs": []packed{{ArtifactID: "art_4", Size: 600_000, SHA256: sum, Gone: true},
		{ArtifactID: "art_5", Size: 9, SHA256: sum, Type: "DIRECTORY"}, {ArtifactID: "art_6", Size: BundledAtMost + 1, SHA256: sum}}}}}

// A bundle has each small output of its rows once: no directory, nothing that was removed, and not what has no bytes. One whose bytes are
// not those of its size ends the answer early.
func TestBundle(t *testing.T) {
	path, _ := serve(t)
	c := dial(t, path)
	got := map[string]int{}
	take := func(id string, r io.Reader) error {
		b, err := io.ReadAll(r)
		got[id] += len(b)
		return err
	}
	if err := c.Bundle(t.Context(), "b", 0, 50, take); err != nil || !maps.Equal(got, map[string]int{"art_1": 600_000, "art_3": 600_000}) {
		t.Error(got, err)
	}
	refuse := fault.New(fault.Validation, "no", "no")
	if err := c.Bundle(t.Context(), "b", 0, 50, func(string, io.Reader) error { return refuse }); err != refuse {
		t.Error(err)
	}
	short := map[string]any{"outputs": []packed{{ArtifactID: "art_7", Size: 9, SHA256: sum}}}
	rows := bundleRows["rows"].([]map[string]any)
	t.Cleanup(func() { bundleRows["rows"] = rows })
	bundleRows["rows"] = append(rows, short)
	if err := c.Bundle(t.Context(), "b", 0, 50, take); err == nil {
		t.Error("an artifact of another size went by")
	}
}

// A caller is known by its token, else by the kernel's word about the peer; a token that is not good is not made up for by the peer.
func TestCallers(t *testing.T) {
	path, _ := serve(t)
	conn := value(net.Dial("unix", path))(t)
	defer conn.Close()
	if uid, pid, err := peer(conn.(*net.UnixConn)); err != nil || uid != os.Getuid() || pid != os.Getpid() {
		t.Error(uid, pid, err)
	}
	c := dial(t, path)
	body, _ := json.Marshal(gate.NewRequest("test.echo", "1.0.0", json.RawMessage(`{}`)))
	for header, status := range map[string]int{"": 200, "Bearer good": 200, "bearer good": 200, "Bearer bad": 401, "Bearer ": 401,
		"Basic Z29vZA==": 401, "good": 401} {
		req, _ := http.NewRequest("POST", "http://gateway/v1/tool-calls", bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		res := value(c.http.Do(req))(t)
		res.Body.Close()
		if res.StatusCode != status || (status == 401) != (res.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%q: %d %v", header, res.StatusCode, res.Header)
		}
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a result, and ends the test if an error came with it.
func value[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
