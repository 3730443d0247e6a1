package rest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// jwt returns the output of scontrol token for a user; n makes tokens differ.
func jwt(claims string, n int) string {
	return fmt.Sprintf("e30.%s.sig%d", base64.RawURLEncoding.EncodeToString([]byte(claims)), n)
}

func ofLab(n int, ends time.Time) string {
	return jwt(fmt.Sprintf(`{"sun":"lab","exp":%d}`, ends.Unix()), n)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// tokensSeen returns the tokens of the posts, in order.
func (f *fake) tokensSeen() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		if strings.HasPrefix(s, "POST ") {
			list = append(list, s[strings.LastIndexByte(s, '.')+1:strings.IndexByte(s, ']')])
		}
	}
	return list
}

func accepts(*http.Request, []byte) []byte { return said(200, `{"job_id":7}`) }

// A token is read again when its file changes, and before it ends; the old one is used until there is a new one.
func TestTokenFile(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "token"), time.Now()
	f := newFake(t, "v0.0.42", accepts)
	s := f.client(t, func(c *Config) { c.TokenFile = path })
	s.client.tokens.now = func() time.Time { return now }
	send := func(k int, want run.SendOutcome) run.SendResult {
		t.Helper()
		res := s.Send(t.Context(), testJob(), k)
		runtest.WantSend(t, res, want, "")
		return res
	}
	if res := send(1, run.SendNotRun); res.Code != TokenFault || res.Scope != run.ScopeSite {
		t.Errorf("the send without a token ended as %s, want the fault of the token, of the site", sendText(res))
	}
	write(t, path, "SLURM_JWT="+ofLab(1, now.Add(time.Hour))+"\n")
	send(2, run.SendAccepted)
	write(t, path, ofLab(22, now.Add(2*time.Hour)))
	send(3, run.SendAccepted)
	write(t, path, "half")
	send(4, run.SendAccepted)
	now = now.Add(3 * time.Hour)
	if res := send(5, run.SendNotRun); strings.Contains(res.Text, "sig22") {
		t.Errorf("the result contains a token: %s", res.Text)
	}
	if got := f.tokensSeen(); !slices.Equal(got, []string{"sig1", "sig22", "sig22"}) {
		t.Errorf("slurmrestd saw the tokens %q, want sig1 and twice sig22", got)
	}
}

// A command is run again before its token ends, and not before that.
func TestTokenCommand(t *testing.T) {
	t.Setenv("SLURM_JWT", "of the gateway's caller")
	dir, now := t.TempDir(), time.Now()
	write(t, dir+"/1", ofLab(1, now.Add(time.Hour)))
	write(t, dir+"/2", ofLab(2, now.Add(2*time.Hour)))
	f := newFake(t, "v0.0.42", accepts)
	s := f.client(t, func(c *Config) {
		c.TokenCommand = []string{"/bin/sh", "-c", `cd "$0"; echo x >>runs; env >env; cat "$(grep -c x runs)"`, dir}
	})
	s.client.tokens.now = func() time.Time { return now }
	for k, ahead := range []time.Duration{0, 40 * time.Minute, 10 * time.Minute, 0} {
		now = now.Add(ahead)
		runtest.WantSend(t, s.Send(t.Context(), testJob(), k+1), run.SendAccepted, "")
	}
	if got := f.tokensSeen(); !slices.Equal(got, []string{"sig1", "sig1", "sig2", "sig2"}) {
		t.Errorf("slurmrestd saw the tokens %q, want twice sig1 and twice sig2", got)
	}
	if env, err := os.ReadFile(dir + "/env"); err != nil || strings.Contains(string(env), "SLURM_JWT") {
		t.Errorf("the token command's environment is %q %v, want no SLURM_JWT", env, err)
	}
}

// A token that slurmrestd does not accept is replaced when there is another one, and the same post is sent again, because it had no effect.
func TestRefusedToken(t *testing.T) {
	path, ends := filepath.Join(t.TempDir(), "token"), time.Now().Add(time.Hour)
	write(t, path, ofLab(1, ends))
	f := newFake(t, "v0.0.42", func(r *http.Request, _ []byte) []byte {
		if strings.HasSuffix(r.Header["X-Slurm-User-Token"][0], "sig1") {
			write(t, path, ofLab(222, ends))
			return plainly(401, "Authentication failure")
		}
		return said(200, `{"job_id":7}`)
	})
	s := f.client(t, func(c *Config) { c.TokenFile = path })
	runtest.WantSend(t, s.Send(t.Context(), testJob(), 1), run.SendAccepted, "")
	runtest.WantCount(t, "POST", f.requests("POST"), 2)
	f = newFake(t, "v0.0.42", func(*http.Request, []byte) []byte { return plainly(401, "") })
	s = f.client(t, func(c *Config) { c.TokenFile = path })
	runtest.WantSend(t, s.Send(t.Context(), testJob(), 1), run.SendNotRun, AuthFault)
	runtest.WantCount(t, "POST", f.requests("POST"), 1)
}

// slurmrestd accepts any token; one that slurmctld does not accept is detected before a post. On a post the same error
// number is doubt.
func TestTokenOfNoUse(t *testing.T) {
	const refusal = `{"errors":[{"error_number":1007,"error":"Protocol authentication error"}]}`
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, ofLab(1, time.Now().Add(time.Hour)))
	f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte { return said(511, refusal) })
	s := f.client(t, func(c *Config) { c.TokenFile = path })
	runtest.WantSend(t, s.Send(t.Context(), testJob(), 1), run.SendDoubt, "")
	f.proof = func(*http.Request) []byte { return said(511, refusal) }
	for k := range 2 {
		runtest.WantSend(t, s.Send(t.Context(), testJob(), k+2), run.SendNotRun, AuthFault)
		runtest.WantCount(t, "POST", f.requests("POST"), 1)
	}
}

// Tokens of other users, and texts that are no token, are not used.
func TestTokensOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for claims, why := range map[string]string{
		`{"sun":"root"}`: "root", `{"sun":"slurm","exp":99999999999}`: "slurm", `{"username":"alice"}`: "alice", `{"exp":99999999999}`: "no user",
		`{"sun":"lab","username":"slurm"}`: "two users", `{"sun":"lab","exp":1}`: "ended", `{"sun":"lab","exp":"soon"}`: "read",
		`{"sun":7}`: "read", `[]`: "read", `{"sun":"lab","exp":1e300}`: "end",
	} {
		write(t, path, jwt(claims, 1))
		f := newFake(t, "v0.0.42", accepts)
		_, err := f.client(t, func(c *Config) { c.TokenFile = path }).client.tokens.get(t.Context())
		if fault.CodeOf(err) != TokenFault || !strings.Contains(err.Error(), why) {
			t.Errorf("a token with the claims %s gives %v, want %s with %q", claims, err, TokenFault, why)
		}
	}
	if _, err := New(Config{URL: "unix:/s", User: "root"}); err == nil {
		t.Error("New accepted the user root")
	}
}

// Reading the claims of any token ends.
func FuzzClaims(f *testing.F) {
	f.Add(jwt(`{"sun":"lab","exp":1}`, 1))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if user, _, err := claims(token); err == nil && user == "" {
			t.Errorf("claims(%q) accepted a token without a user", token)
		}
	})
}
