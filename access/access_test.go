package access

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// shelf keeps tokens.
type shelf map[string]gate.Token

func (s shelf) Token(_ context.Context, id string) (gate.Token, error) {
	t, ok := s[id]
	if !ok {
		return t, fault.New(fault.NotFound, "token_not_found", "there is none")
	}
	return t, nil
}

func wantUnauthenticated(t *testing.T, what string, err error, code string) {
	t.Helper()
	if !fault.Is(err, fault.Auth) || fault.CodeOf(err) != code {
		t.Errorf("%s: %v", what, err)
	}
}

func TestPeers(t *testing.T) {
	g, err := NewGrant([]string{gate.CapGateway, gate.CapRead}, []string{"demo"}, map[string]string{"demo": "research"})
	if err != nil {
		t.Fatal(err)
	}
	a := New(Config{Peers: map[int][]Grant{12345: {g}, 0: {g}}})
	p, err := a.Peer(12345)
	demo := plan.ProjectID("demo")
	if want := (gate.Principal{Name: "user:#12345", Method: gate.ByPeer, Rights: gate.RightsOf([]string{"gateway", "read"}, []string{demo}),
		Accounts: map[string]string{demo: "research"}, PeerUID: 12345}); err != nil || !cmp.Equal(want, p) {
		t.Error(cmp.Diff(want, p), err)
	}
	for _, uid := range []int{0, os.Geteuid()} { // no grant takes anything from them
		if p, err := a.Peer(uid); err != nil || !p.Can(gate.CapAdmin, gate.All) || !p.Sees("proj_x") || !strings.HasPrefix(p.Name, "user:") {
			t.Error(uid, p, err)
		}
	}
	_, err = a.Peer(54321)
	wantUnauthenticated(t, "a stranger", err, "unauthenticated")
}

func TestGrants(t *testing.T) {
	g, err := NewGrant([]string{gate.All}, []string{gate.All, "a", plan.ProjectID("b")}, map[string]string{gate.All: "x"})
	if err != nil || !cmp.Equal(g.Projects, []string{gate.All, plan.ProjectID("a"), plan.ProjectID("b")}) || g.Accounts[gate.All] != "x" {
		t.Error(g, err)
	}
	_, err = NewGrant([]string{"raed", "read"}, []string{" x"}, map[string]string{"p": "--uid=0"})
	if p := fault.ProblemsOf(err); len(p) != 3 {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	s, now := shelf{}, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	a := New(Config{Tokens: s, Now: func() time.Time { return now }})
	g, err := NewGrant([]string{gate.CapRead}, []string{"demo"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tok, text := NewToken("bot", g, gate.Principal{Name: "user:lab"}, now.Add(time.Hour))
	s[tok.ID] = tok
	if strings.Contains(fmt.Sprintf("%+v", tok), text[21:]) || len(tok.SecretSHA256) != 64 || !tokenForm.MatchString(text) ||
		gate.Scrub("x "+text+" y") != "x "+gate.Redacted+" y" {
		t.Errorf("%+v of %s", tok, text)
	}
	p, err := a.Bearer(t.Context(), text)
	if err != nil || p.Name != "token:bot" || p.Method != gate.ByToken || !p.CanSomewhere(gate.CapRead) || p.CanSomewhere(gate.CapSlurm) ||
		!p.Sees(plan.ProjectID("demo")) || p.Sees(plan.ProjectID("other")) {
		t.Error(p, err)
	}
	other, otherText := NewToken("other", g, gate.Principal{Name: "user:lab"}, now.Add(time.Hour))
	_ = other // never kept
	for what, bad := range map[string]string{"another's secret": text[:21] + otherText[21:], "unknown": otherText,
		"short": text[:len(text)-1], "long": text + "A", "lower case": strings.ToLower(text), "empty": "", "id only": text[:20],
		"spaces": " " + text, "id of another": otherText[:21] + text[21:]} {
		_, err := a.Bearer(t.Context(), bad)
		wantUnauthenticated(t, what, err, "unauthenticated")
	}
	now = now.Add(time.Hour)
	_, err = a.Bearer(t.Context(), text)
	wantUnauthenticated(t, "expired", err, "token_expired")
	now = now.Add(-time.Minute)
	tok.RevokedAt = &now
	s[tok.ID] = tok
	_, err = a.Bearer(t.Context(), text)
	wantUnauthenticated(t, "revoked", err, "unauthenticated")
	_, err = New(Config{}).Bearer(t.Context(), text)
	wantUnauthenticated(t, "a gateway without tokens", err, "unauthenticated")
}
