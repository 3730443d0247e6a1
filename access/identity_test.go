package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/nss"
	"slurmgate/plan"
)

// register gives ids as the ledger does, and counts the requests.
type register struct {
	ids   map[string]string
	asked int
}

func (r *register) Principals(_ context.Context, who ...gate.Identity) (out []gate.Identity, err error) {
	r.asked++
	for _, i := range who {
		key := i.Method + " " + i.Subject
		if r.ids[key] == "" {
			r.ids[key] = fmt.Sprint("prn_", len(r.ids))
		}
		i.ID = r.ids[key]
		out = append(out, i)
	}
	return out, nil
}

// A caller has the id of exactly one subject, and finding it again needs no request.
func TestIdentities(t *testing.T) {
	issuer, now, book := newProvider(t), noon, &register{ids: map[string]string{}}
	a := issuer.access(t, &now, "RS256")
	must(t, a.Enroll(t.Context(), book))
	me, err := a.Peer(os.Geteuid())
	if name, _ := (nss.Host{}).NameOf(t.Context(), os.Geteuid()); err != nil || me.ID == "" ||
		me.ID != book.ids[fmt.Sprint("peer ", os.Geteuid(), " ", name)] {
		t.Error(me, err, book.ids)
	}
	ids := map[string]string{me.ID: "me"}
	for _, sub := range []string{"alice", "Alice", "alice#1"} {
		for range 3 {
			p, err := a.Bearer(t.Context(), issuer.token(t, jose.RS256, "r", issuer.rsa, issuer.claims(set("sub", sub))))
			if err != nil || p.ID == "" || ids[p.ID] != "" && ids[p.ID] != sub {
				t.Errorf("%s: %+v %v %v", sub, p, err, ids)
			}
			ids[p.ID] = sub
		}
	}
	if book.asked != 4 { // the users of this host and three subjects
		t.Errorf("asked %d times", book.asked)
	}
	// A subject without a grant is not stored.
	p, err := a.Bearer(t.Context(), issuer.token(t, jose.RS256, "r", issuer.rsa, issuer.claims(set("sub", "bob"), set("groups", "none"),
		set("scope", "none"))))
	if err != nil || p.ID != "" || book.asked != 4 {
		t.Errorf("Bearer of a subject without a grant: id %q, %v, after %d requests for ids; want no id and 4 requests", p.ID, err, book.asked)
	}
	tok, text := NewToken("bot", Grant{}, me, now.Add(time.Hour))
	tok.PrincipalID = "prn_T"
	b := New(Config{Tokens: shelf{tok.ID: tok}, Now: func() time.Time { return now }})
	if p, err := b.Bearer(t.Context(), text); err != nil || p.ID != "prn_T" || tok.MadeBy != me.ID ||
		tok.CreatedBy != me.Name {
		t.Errorf("Bearer of a token: id %q, %v; created by %s %s, want prn_T by %s %s", p.ID, err, tok.MadeBy, tok.CreatedBy, me.ID, me.Name)
	}
}

// A user id that now belongs to another user is refused, from the first call on; the gateway's own user and root are
// not checked.
func TestAUserIDChangesHands(t *testing.T) {
	now, names := noon, map[int]string{1001: "alice", os.Geteuid(): "me", 0: "me"}
	a := New(Config{Peers: map[int][]Grant{1001: {grantOf([]string{gate.CapRead}, []string{"proj_a"}, nil)}},
		Now: func() time.Time { return now },
		NameOf: func(uid int) (string, error) {
			if names[uid] == "" {
				return "", errors.New("nobody knows")
			}
			return names[uid], nil
		}})
	for _, step := range []struct {
		after time.Duration
		name  string
		ok    bool
	}{{0, "alice", true}, {nameCheck - 1, "bob", true}, {1, "bob", false}, {1, "bob", false}, {nameCheck, "", false},
		{nameCheck, "alice", true},
		{nameCheck, "", true}, {nameCheck, "Alice", false}} {
		now, names[1001] = now.Add(step.after), step.name
		if _, err := a.Peer(1001); (err == nil) != step.ok || err != nil && !fault.Is(err, fault.Auth) {
			t.Errorf("Peer(1001) %v later, as %q: %v, want success: %t", step.after, step.name, err, step.ok)
		}
		names[os.Geteuid()], names[0] = "other", "other"
		for _, uid := range []int{os.Geteuid(), 0} {
			if p, err := a.Peer(uid); err != nil || !p.Owner {
				t.Error(p, err)
			}
		}
	}
}

// Names in lists and records show every character that is not plain, so that no name looks like another and none
// controls a terminal.
func TestShownNames(t *testing.T) {
	for name, want := range map[string]string{"alice": "alice", "a b": `a\u{20}b`, "\x1b[2J": `\u{1b}[2J`, "\u0430lice": `\u{430}lice`,
		"a\u202eb": `a\u{202e}b`, `a\u{20}b`: `a\u{5c}u{20}b`, "a\x7f": `a\u{7f}`, "user@example.org#1": "user@example.org#1", "": ""} {
		if got := shown(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// shelf stores tokens.
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
	must(t, err)
	a := New(Config{Peers: map[int][]Grant{12345: {g}, 0: {g}}})
	p, err := a.Peer(12345)
	demo := plan.ProjectID("demo")
	if want := (gate.Principal{Name: "user:#12345", Method: gate.ByPeer, Rights: gate.RightsOf([]string{"gateway", "read"}, []string{demo}),
		Accounts: map[string]string{demo: "research"}, PeerUID: 12345}); err != nil || !cmp.Equal(want, p) {
		t.Error(cmp.Diff(want, p), err)
	}
	for _, uid := range []int{0, os.Geteuid()} { // they keep all rights, whatever the grants
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
	must(t, err)
	tok, text := NewToken("bot", g, gate.Principal{Name: "user:lab"}, now.Add(time.Hour))
	s[tok.ID] = tok
	if strings.Contains(fmt.Sprintf("%+v", tok), text[21:]) || len(tok.SecretSHA256) != 64 || !tokenForm.MatchString(text) ||
		gate.Scrub("x "+text+" y") != "x "+gate.Redacted+" y" {
		t.Errorf("NewToken: a hash of %d characters, want 64; the text must match %v, be scrubbed, and not be in the token",
			len(tok.SecretSHA256), tokenForm)
	}
	p, err := a.Bearer(t.Context(), text)
	if err != nil || p.Name != "token:bot" || p.Method != gate.ByToken || !p.CanSomewhere(gate.CapRead) || p.CanSomewhere(gate.CapSlurm) ||
		!p.Sees(plan.ProjectID("demo")) || p.Sees(plan.ProjectID("other")) {
		t.Error(p, err)
	}
	other, otherText := NewToken("other", g, gate.Principal{Name: "user:lab"}, now.Add(time.Hour))
	_ = other // never stored
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
