package access

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/gate"
)

// A request in progress ends when its caller's credentials do: a token at its expiry or when it is revoked, an OpenID token at its expiry
// and the leeway, a user of this host never. Another's requests go on.
func TestRequestsEndWithTheirCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{})
		in := func(method, id string, d time.Duration) gate.Principal {
			return gate.Principal{ID: id, Method: method, Expires: time.Now().Add(d)}
		}
		one, other := in(gate.ByToken, "prn_1", time.Hour), in(gate.ByToken, "prn_2", time.Hour)
		begin := time.Now()
		hold := func(p gate.Principal) context.Context {
			ctx, stop := a.While(t.Context(), p)
			t.Cleanup(stop)
			return ctx
		}
		first, second, apart := hold(one), hold(one), hold(other)
		oidc, peer := hold(in(gate.ByOIDC, "prn_3", time.Hour)), hold(gate.Principal{ID: "prn_4", Method: gate.ByPeer})
		done, stop := a.While(t.Context(), one)
		stop()
		a.Revoked(one)
		late := hold(one) // it was found valid a moment before
		for _, ctx := range []context.Context{first, second, late} {
			wantUnauthenticated(t, "revoked", context.Cause(ctx), "unauthenticated")
		}
		if context.Cause(done) != context.Canceled || len(a.sessions.open) != 1 {
			t.Error(context.Cause(done), a.sessions.open)
		}
		if apart.Err() != nil || oidc.Err() != nil {
			t.Error("another's request ended")
		}
		<-apart.Done()
		wantUnauthenticated(t, "expired", context.Cause(apart), "token_expired")
		if d := time.Since(begin); d != time.Hour {
			t.Error("it ended after", d)
		}
		<-oidc.Done()
		wantUnauthenticated(t, "expired OpenID token", context.Cause(oidc), "token_expired")
		if d := time.Since(begin); d != time.Hour+leeway {
			t.Error("it ended after", d)
		}
		time.Sleep(24 * time.Hour)
		if peer.Err() != nil {
			t.Error("a user of this host has no end")
		}
	})
}

// BenchmarkWhile is what each request of a token pays.
func BenchmarkWhile(b *testing.B) {
	a := New(Config{})
	p := gate.Principal{ID: "prn_1", Method: gate.ByToken, Expires: time.Now().Add(time.Hour)}
	for b.Loop() {
		_, stop := a.While(b.Context(), p)
		stop()
	}
}
