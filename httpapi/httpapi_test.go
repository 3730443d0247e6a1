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
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	dir, err := os.MkdirTemp("", "sg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, sum), bytes.Repeat([]byte("hello\n"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
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
	r, err := gate.NewRegistry(
		tool("test.echo", func(_ context.Context, c gate.Call) (any, error) { return c.Args, nil }),
		tool("test.slow", func(ctx context.Context, c gate.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }),
		tool("test.file", func(_ context.Context, c gate.Call) (any, error) {
			if c.Caller.File == nil {
				return nil, fault.New(fault.Validation, "no_file", "there is none")
			}
			b, err := io.ReadAll(c.Caller.File)
			return map[string]string{"text": string(b)}, err
		}),
		tool("artifact.get", artifacts),
		tool("batch.rows", func(_ context.Context, c gate.Call) (any, error) { return bundleRows, nil }))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "run", "api.sock")
	s, err = Listen(SocketConfig{Path: path, Mode: 0o600}, Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Contents: folder(dir),
		Auth: owner{}}, nil),
		func() {}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return path, s
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), path); !fault.Is(err, fault.NotFound) {
		t.Error("a dead gateway's socket:", err)
	}
}

func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
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
		if err := leaveSocket(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		s, err := Listen(SocketConfig{Path: filepath.Join(dir, "s"), Mode: 0o600}, http.NotFoundHandler(), func() {}, quiet)
		if err != nil {
			t.Fatal(err)
		}
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
			if err := leave(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
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
		if s, err := Listen(SocketConfig{Path: path, Mode: 0o600}, http.NotFoundHandler(), func() {},
			slog.New(slog.NewTextHandler(io.Discard, nil))); err == nil {
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
		t.Errorf("%+v %v", res, err)
	}
	res, err = c.Call(t.Context(), gate.NewRequest("test.none", "1.0.0", json.RawMessage(`{}`)))
	if err != nil || res.OK || res.Error.Fault().Kind != fault.NotFound {
		t.Errorf("%+v %v", res, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := c.Call(ctx, gate.NewRequest("test.slow", "1.0.0", json.RawMessage(`{}`))); !fault.Is(err, fault.Canceled) {
		t.Error(err)
	}
}

// A gateway that goes away in the middle is a transport fault that says what to do.
func TestGatewayGone(t *testing.T) {
	path, s := serve(t)
	c := dial(t, path)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.Call(t.Context(), gate.NewRequest("test.echo", "1.0.0", json.RawMessage(`{}`)))
	if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != "gateway_gone" || !strings.Contains(err.Error(), "Next: ") {
		t.Error(err)
	}
	if err := c.Content(t.Context(), "art_1", io.Discard); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}

// Shutdown waits for the calls under way.
func TestShutdownDrains(t *testing.T) {
	path, s := serve(t)
	c := dial(t, path)
	answered := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, err := c.Call(ctx, gate.NewRequest("test.slow", "1.0.0", json.RawMessage(`{}`)))
		answered <- err
	}()
	time.Sleep(50 * time.Millisecond)
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(t.Context()) }()
	select {
	case err := <-down:
		t.Error("did not wait:", err)
	case <-time.After(50 * time.Millisecond):
	}
	stop()
	<-answered
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// What is no envelope is answered in one. Part of HTC-01.
func TestBadEnvelopes(t *testing.T) {
	path, _ := serve(t)
	c := dial(t, path)
	good, _ := json.Marshal(gate.NewRequest("test.echo", "1.0.0", json.RawMessage(`{}`)))
	with := func(old, new string) string { return strings.Replace(string(good), old, new, 1) }
	for name, body := range map[string]string{
		"nothing": "", "not JSON": "{", "list": "[]", "null": "null", "trailing": string(good) + "{}", "unknown key": with(`"dry_run"`,
			`"x":1,"dry_run"`), "duplicate key": with(`"dry_run":false`, `"dry_run":false,"dry_run":true`),
		"wrong type": with(`"dry_run":false`, `"dry_run":"no"`), "case": with(`"tool_id"`, `"Tool_ID"`), "version": with("htc-1.0", "htc-0.9"),
		"oversized": with(`"args":{}`, `"args":{"x":"`+strings.Repeat("x", maxRequestBytes)+`"}`), "large": with(`"args":{}`,
			`"args":{"x":"`+strings.Repeat("x", 3<<19)+`"}`),
	} {
		res, err := c.http.Post("http://gateway/v1/tool-calls", "application/json", strings.NewReader(body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var out gate.Response
		err = json.NewDecoder(res.Body).Decode(&out)
		res.Body.Close()
		if err != nil || out.OK || out.Error == nil || out.Error.Kind != "validation" || out.Error.Code != "VAL-HTC-001" ||
			res.StatusCode != map[bool]int{false: 400, true: 413}[name == "oversized"] || out.SchemaVersion != gate.SchemaVersion {
			t.Errorf("%s: %d %+v %v", name, res.StatusCode, out.Error, err)
		}
	}
	for _, u := range []string{"GET /v1/tool-calls", "POST /healthz", "GET /", "GET /v1/artifacts/x"} {
		method, p, _ := strings.Cut(u, " ")
		req, _ := http.NewRequest(method, "http://gateway"+p, nil)
		res, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 404 && res.StatusCode != 405 {
			t.Errorf("%s: %d", u, res.StatusCode)
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
	res, err := c.http.Get("http://gateway/v1/artifacts/art_1/content")
	if err != nil {
		t.Fatal(err)
	}
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
	bundleRows["rows"] = append(bundleRows["rows"].([]map[string]any), short)
	if err := c.Bundle(t.Context(), "b", 0, 50, take); err == nil {
		t.Error("an artifact of another size went by")
	}
}

// A caller is known by its token, else by the kernel's word about the peer; a token that is not good is not made up for by the peer.
func TestCallers(t *testing.T) {
	path, _ := serve(t)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
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
		res, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status || (status == 401) != (res.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%q: %d %v", header, res.StatusCode, res.Header)
		}
	}
}

// A tool's result is canonical JSON and goes out as it is; none is null.
func TestWriteJSON(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{{json.RawMessage(`{"a":"<b>"}`), `{"a":"<b>"}` + "\n"}, {json.RawMessage(nil), "null\n"}, {map[string]int{"n": 1}, `{"n":1}` + "\n"}} {
		w := httptest.NewRecorder()
		writeJSON(w, 200, "application/json", c.v)
		if w.Body.String() != c.want {
			t.Errorf("%q, want %q", w.Body, c.want)
		}
	}
}
