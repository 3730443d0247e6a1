package ledger

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

func peer(uid int, name string) gate.Identity {
	return gate.Identity{Method: gate.ByPeer, Subject: fmt.Sprint(uid, " ", name), Name: "user:" + name}
}

func identified(t *testing.T, l *Ledger, who gate.Identity) gate.Identity {
	t.Helper()
	got, err := l.Principals(t.Context(), who)
	must(t, err)
	return got[0]
}

// An id is given once: a user who was deleted and made again with another user id is another principal, so is another user with the same
// user id, so is each of two tokens of one name, and so are two OpenID subjects that differ in case, in issuer or in where the issuer ends.
func TestPrincipalsAreNeverGivenTwice(t *testing.T) {
	l := fresh(t)
	oidc := func(issuer, subject string) gate.Identity {
		return gate.Identity{Method: gate.ByOIDC, Subject: issuer + " " + subject, Name: "oidc:" + issuer + "#" + subject}
	}
	ids := map[string]gate.Identity{}
	for _, who := range []gate.Identity{peer(1001, "alice"), peer(1002, "alice"), peer(1001, "bob"), peer(1001, ""), oidc("https://a", "x"),
		oidc("https://a", "X"), oidc("https://b", "x"), oidc("https://a", "#x"), oidc("https://a", "x ")} {
		got := identified(t, l, who)
		if earlier, twice := ids[got.ID]; twice || !strings.HasPrefix(got.ID, "prn_") || len(got.ID) != 30 {
			t.Errorf("the identity %s %q got the id %q, want a new prn_…; earlier: %s %q with %q", who.Method, who.Subject,
				got.ID, earlier.Method, earlier.Subject, earlier.ID)
		}
		if again := identified(t, l, who); again != got {
			t.Errorf("the identity %s %q has the id %q, then %q", who.Method, who.Subject, got.ID, again.ID)
		}
		ids[got.ID] = got
	}
	maker := gate.Principal{ID: identified(t, l, peer(1001, "alice")).ID, Name: "user:alice"}
	for _, id := range []string{"A", "B"} {
		must(t, l.AddToken(t.Context(), gate.Token{ID: "tok_" + strings.Repeat(id, 16), Name: "ci", SecretSHA256: strings.Repeat("0", 64),
			CreatedBy: maker.Name, MadeBy: maker.ID, ExpiresAt: t0.Add(time.Hour)}))
		got, err := l.Token(t.Context(), "tok_"+strings.Repeat(id, 16))
		if _, twice := ids[got.PrincipalID]; err != nil || twice || got.PrincipalID == "" || got.MadeBy != maker.ID {
			t.Errorf("the token has the principal %q, made by %q, %v; want a new principal, made by %q", got.PrincipalID,
				got.MadeBy, err, maker.ID)
		}
		ids[got.PrincipalID] = gate.Identity{}
	}
	for _, q := range []string{"DELETE FROM principals", "UPDATE principals SET subject = 'x'"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
}

// Whose a thing is, is remembered once it was asked, and only of things that are there.
func TestOwnersAreRemembered(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	w := waits(t, l, 1, plan.Promise{RunID: v.Run.ID, Role: "out"})
	const nothing = "run_00000000000000000000000000"
	for range 2 {
		for id, want := range map[string]string{v.Run.ID: project, w.Run.ID: project, nothing: ""} {
			got, err := l.Owner(t.Context(), id)
			if got != want || fault.Is(err, fault.NotFound) != (want == "") || l.OwnerSeen(id) != want {
				t.Errorf("%s is of %q, remembered as of %q, want %q: %v", id, got, l.OwnerSeen(id), want, err)
			}
		}
		if got := l.waitingNow(t, w.Run.ID); !got.Waits() {
			t.Errorf("the run %s is %s in phase %s, want one that waits", got.Run.ID, got.Run.State, got.Run.Phase)
		}
		if is, err := l.RunOf(t.Context(), v.Run.ID); err != nil || is != v.Run.ID {
			t.Errorf("RunOf(%s) of a run that has started = %s, %v; want the same id", v.Run.ID, is, err)
		}
	}
	for i := range 2 * maxOwners {
		l.owners.add(fmt.Sprint(i), owner{projectID: project})
	}
	if n := len(l.owners.of); n > maxOwners {
		t.Errorf("%d owners are remembered", n)
	}
	must(t, l.Integrity(t.Context()))
}

func tokenNamed(id string) gate.Token {
	return gate.Token{ID: "tok_" + strings.Repeat(id, 16), Name: "ci", SecretSHA256: strings.Repeat("0", 64),
		Capabilities: []string{gate.CapRead}, Projects: []string{gate.All}, Tools: []string{"seqkit.stats"}, ExpiresAt: t0.AddDate(0, 1, 0)}
}

// Tokens are found in memory, and so are unknown ids: guesses cost the ledger nothing. A new or revoked token takes
// effect at once.
func TestTokensInMemory(t *testing.T) {
	l := fresh(t)
	if _, err := l.Token(t.Context(), "tok_none"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	a, b := tokenNamed("A"), tokenNamed("B")
	must(t, l.AddToken(t.Context(), a))
	must(t, l.AddToken(t.Context(), b))
	if got, err := l.Token(t.Context(), a.ID); err != nil || got.PrincipalID == "" || got.RevokedAt != nil ||
		fmt.Sprint(got.Tools) != "[seqkit.stats]" {
		t.Errorf("the token has the principal %q, the tools %q, revoked %v; error %v", got.PrincipalID, got.Tools,
			got.RevokedAt, err)
	}
	if _, _, err := l.RevokeToken(t.Context(), a.ID, "user:x", false); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Token(t.Context(), a.ID); err != nil || got.RevokedAt == nil {
		t.Errorf("the revoked token has RevokedAt %v, error %v; want a time", got.RevokedAt, err)
	}
	must(t, l.r.Close())
	if got, err := l.Token(t.Context(), b.ID); err != nil || got.Name != "ci" {
		t.Errorf("with the database closed, the token has the name %q, error %v; want ci", got.Name, err)
	}
	if _, err := l.Token(t.Context(), "tok_none"); !fault.Is(err, fault.NotFound) {
		t.Error("a guess is a query:", err)
	}
}

// A read of a token that begins after its revocation was answered finds it revoked, however reads and revocations
// coincide.
func TestTokensInMemoryAtOnce(t *testing.T) {
	l := fresh(t)
	for i := range 20 {
		tok := tokenNamed("A")
		tok.ID = fmt.Sprintf("tok_%016d", i)
		must(t, l.AddToken(t.Context(), tok))
		var looks sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			looks.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = l.Token(t.Context(), tok.ID)
					}
				}
			})
		}
		if _, _, err := l.RevokeToken(t.Context(), tok.ID, "user:x", false); err != nil {
			t.Error(err)
		}
		if got, err := l.Token(t.Context(), tok.ID); err != nil || got.RevokedAt == nil {
			t.Errorf("the revoked token has RevokedAt %v, error %v; want a time", got.RevokedAt, err)
		}
		close(stop)
		looks.Wait()
	}
}
