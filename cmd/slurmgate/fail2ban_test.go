package main

import (
	"bytes"
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
)

// doorman rejects every caller. Its errors contain all that a hostile token might put into a message.
type doorman struct{}

func (doorman) Peer(int) (gate.Principal, error) { return gate.Principal{}, nil }

func (doorman) Bearer(_ context.Context, token string) (gate.Principal, error) {
	if token == "expired" {
		return gate.Principal{}, fault.New(fault.Auth, "token_expired", token)
	}
	if token == "away" {
		return gate.Principal{}, fault.New(fault.Transport, "issuer_away", "the provider of "+token+" cannot be reached")
	}
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", token+"\nlevel=WARN msg=\"login refused\" address=198.51.100.66")
}

// syncBuffer is a buffer that the server writes to while the test runs.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// The shipped filter finds, with fail2ban's own program, the address of each login with wrong credentials in the
// gateway's log, and no other: not those that a caller writes into the token, the path or a header. Requests without
// credentials and expired tokens are no attack.
//
// proves OPS-03
func TestFail2ban(t *testing.T) {
	const evil = `level=WARN msg="login refused" address=198.51.100.66 face=http reason=bad_credentials`
	for _, format := range []string{"text", formatJSON} {
		var log syncBuffer
		out := openLog(&log, format)
		registry := value(gate.NewRegistry())(t)
		stopping := make(chan struct{})
		p, err := httpapi.Serve(httpapi.PortConfig{Listen: "127.0.0.1:0", Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
			httpapi.Handler(httpapi.Config{Gate: gate.New(gate.Config{Registry: registry}), Auth: doorman{}, MCP: http.NotFoundHandler(),
				Log: out.log}, stopping), func() { close(stopping) }, out.log)
		must(t, err)
		for _, c := range []struct{ path, token, from string }{
			{"/v1/runs", "guess", "203.0.113.1"}, {"/mcp", "guess", "2001:db8::7"}, {"/v1/runs", evil, "203.0.113.2"},
			{"/v1/runs", `x"} {"level":"WARN","msg":"login refused","address":"198.51.100.66"`, "203.0.113.3"},
			{"/v1/runs?x=%0A" + strings.ReplaceAll(evil, " ", "%20"), "guess", "198.51.100.66, 203.0.113.4"},
			{"/v1/runs", "guess", evil + ", 203.0.113.5"}, {"/v1/runs", "expired", "203.0.113.6"}, {"/v1/runs", "", "203.0.113.7"},
			{"/v1/runs", "away", "203.0.113.8"},
		} {
			req := value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Addr()+c.path, nil))(t)
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			req.Header.Set("X-Forwarded-For", c.from)
			res, err := http.DefaultClient.Do(req)
			if err != nil || res.StatusCode < 400 {
				t.Fatal(c, res, err)
			}
			res.Body.Close()
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		lines := log.String()
		for _, sentence := range []string{"a job said " + evil, "\n" + evil + "\n", `{"level":"WARN","msg":"login refused"}`} {
			out.log.Warn(sentence, "err", sentence, "name", sentence)
		}
		want := []string{"2001:db8::7", "203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4", "203.0.113.5"}
		if got := banned(t, log.String()); !slices.Equal(got, want) {
			t.Errorf("%s: fail2ban finds %q, want %q in\n%s", format, got, want, log.String())
		}
		var journal strings.Builder // as fail2ban's backend for the journal puts it together
		for line := range strings.Lines(lines) {
			journal.WriteString("login1 slurmgate[4711]: " + line)
		}
		if got := banned(t, journal.String()); !slices.Equal(got, want) {
			t.Errorf("%s: of the journal fail2ban finds %q, want %q", format, got, want)
		}
	}
}

// banned returns the addresses in the lines that fail2ban matches, sorted.
func banned(t *testing.T, log string) (out []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(file, []byte(log), 0o600))
	text := value(exec.Command("../../scripts/fail2ban-regex", file).Output())(t)
	_, matched, found := strings.Cut(string(text), "Matched line(s):")
	if !found {
		t.Fatalf("fail2ban-regex printed no matched lines:\n%s", text)
	}
	matched, _, _ = strings.Cut(matched, "Missed line(s):")
	address := regexp.MustCompile(`address"?[=:]"?([0-9a-f:.]+)`)
	for line := range strings.Lines(matched) {
		if m := address.FindStringSubmatch(line); m != nil {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return out
}
