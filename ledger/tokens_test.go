package ledger

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
)

func tokenNamed(id string) gate.Token {
	return gate.Token{ID: "tok_" + strings.Repeat(id, 16), Name: "ci", SecretSHA256: strings.Repeat("0", 64),
		Capabilities: []string{gate.CapRead}, Projects: []string{gate.All}, Tools: []string{"seqkit.stats"}, ExpiresAt: t0.AddDate(0, 1, 0)}
}

// A token is found in memory, and so is that there is none: guesses cost the ledger nothing. What is created or revoked takes effect at
// once.
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
		t.Errorf("%+v %v", got, err)
	}
	if _, _, err := l.RevokeToken(t.Context(), a.ID, "user:x", false); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Token(t.Context(), a.ID); err != nil || got.RevokedAt == nil {
		t.Errorf("%+v %v", got, err)
	}
	must(t, l.r.Close())
	if got, err := l.Token(t.Context(), b.ID); err != nil || got.Name != "ci" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := l.Token(t.Context(), "tok_none"); !fault.Is(err, fault.NotFound) {
		t.Error("a guess is a query:", err)
	}
}

// However a revocation and looks-ups meet, nobody who asks after the revocation was answered finds the token good.
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
			t.Errorf("%+v %v", got, err)
		}
		close(stop)
		looks.Wait()
	}
}
