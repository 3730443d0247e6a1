package access

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/gate"
)

// A request in progress ends when its caller's credentials do: a token at its expiry or when it is revoked, an OpenID
// token at its expiry plus the leeway, a user of this host never. Other callers' requests continue.
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
		late := hold(one) // its token was found valid a moment before
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

// A principal's rights are checked again long after its request: a group that the user left, a narrowed entry, a user
// id with another user, a provider that is no longer trusted.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := campus(t)
		was := func(uid int) gate.Principal {
			t.Helper()
			p, err := a.Peer(uid)
			must(t, err)
			return p
		}
		alice, carol := was(1001), was(1003)
		if p, err := a.Again(t.Context(), alice); err != nil || p.ID != alice.ID || !p.Can(gate.CapSlurm, "proj_gpu") {
			t.Errorf("Again(alice): id %s, rights %v, %v; want %s with slurm on proj_gpu", p.ID, p.Rights, err, alice.ID)
		}
		d.set(func() { d.in["alice"], d.in["carol"] = []int{500}, nil })
		time.Sleep(memberFresh)
		if p, err := a.Again(t.Context(), alice); err != nil || p.Can(gate.CapSlurm, "proj_gpu") || !p.Can(gate.CapRead, "proj_lab") {
			t.Errorf("Again(alice) after she left the group: rights %v, %v; want read on proj_lab and no slurm on proj_gpu", p.Rights, err)
		}
		if p, err := a.Again(t.Context(), carol); err != nil || p.Can(gate.CapRead, "proj_lab") || !p.Can(gate.CapImport, "proj_own") {
			t.Errorf("Again(carol) after she left the group: rights %v, %v; want import on proj_own and no read on proj_lab", p.Rights, err)
		}
		d.set(func() { d.in["alice"] = nil })
		time.Sleep(memberFresh)
		_, err := a.Again(t.Context(), alice)
		wantUnauthenticated(t, "who left", err, "unauthenticated")
		d.set(func() { d.users[1001], d.in["dora"] = "dora", []int{500} })
		time.Sleep(memberFresh)
		_, err = a.Again(t.Context(), alice)
		wantUnauthenticated(t, "another user", err, "unauthenticated")
	})
	a := New(Config{Issuers: []Issuer{{URL: "https://id.example.org"}}})
	for name, want := range map[string]fault.Kind{"oidc:https://id.example.org#ana": "", "oidc:https://id.example.org.evil#ana": fault.Auth,
		"oidc:https://old.example.org#ana": fault.Auth} {
		_, err := a.Again(t.Context(), gate.Principal{Name: name, Method: gate.ByOIDC})
		if (want == "") != (err == nil) || err != nil && fault.KindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range []gate.Principal{{Name: "token:ci", Method: gate.ByToken}, {Name: "user:svc", Method: gate.ByPeer, Owner: true}} {
		if got, err := a.Again(t.Context(), p); err != nil || got.Name != p.Name {
			t.Errorf("Again(%s): %s, %v; want the same principal", p.Name, got.Name, err)
		}
	}
}

func grantOf(capabilities, projects []string, accounts map[string]string) Grant {
	return Grant{Grant: gate.Grant{Capabilities: capabilities, Projects: projects}, Accounts: accounts}
}

// A grant cannot exceed its giver's rights: no other capability or project, and no other Slurm account than the
// giver's jobs charge.
func TestWithin(t *testing.T) {
	lab := gate.Principal{Name: "token:lab", Rights: gate.RightsOf([]string{"gateway", "read", "admin"}, []string{"proj_a", "proj_b"}),
		Accounts: map[string]string{"proj_a": "research"}}
	boss := gate.Principal{Name: "user:boss", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}
	site := gate.Principal{Name: "user:site", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All}),
		Accounts: map[string]string{gate.All: "common"}}
	apart := gate.Principal{Name: "token:apart", Rights: gate.Rights{{Capabilities: []string{"read", "slurm"}, Projects: []string{"proj_a"}},
		{Capabilities: []string{"read"}, Projects: []string{"proj_b"}}}}
	for name, c := range map[string]struct {
		giver    gate.Principal
		grant    Grant
		code     string
		accounts map[string]string
	}{
		"its own": {lab, grantOf([]string{"read"}, []string{"proj_a"}, nil), "", map[string]string{"proj_a": "research"}},
		"its own, said": {lab, grantOf([]string{"read"}, []string{"proj_a"}, map[string]string{"proj_a": "research"}), "",
			map[string]string{"proj_a": "research"}},
		"another account": {lab, grantOf([]string{"read"}, []string{"proj_a"}, map[string]string{"proj_a": "other"}), "account_denied",
			nil},
		"free account": {lab, grantOf([]string{"read"}, []string{"proj_b"}, map[string]string{"proj_b": "other"}), "",
			map[string]string{"proj_b": "other"}},
		"a capability more": {lab, grantOf([]string{"slurm"}, []string{"proj_a"}, nil), "capability_denied", nil},
		"all capabilities":  {lab, grantOf([]string{gate.All}, []string{"proj_a"}, nil), "capability_denied", nil},
		"a project more":    {lab, grantOf([]string{"read"}, []string{"proj_c"}, nil), "project_not_found", nil},
		"all projects":      {lab, grantOf([]string{"read"}, []string{gate.All}, nil), "project_not_found", nil},
		"everything": {boss, grantOf([]string{gate.All}, []string{gate.All}, map[string]string{"proj_a": "x"}), "",
			map[string]string{"proj_a": "x"}},
		"beside everyone's": {site, grantOf([]string{"read"}, []string{"proj_a"}, map[string]string{"proj_a": "x"}), "account_denied",
			nil},
		"everyone's, not repeated": {site, grantOf([]string{"read"}, []string{"proj_a"}, nil), "", map[string]string{gate.All: "common"}},
		"each where it has it":     {apart, grantOf([]string{"read"}, []string{"proj_a", "proj_b"}, nil), "", map[string]string{}},
		"one where it has none":    {apart, grantOf([]string{"slurm"}, []string{"proj_a", "proj_b"}, nil), "capability_denied", nil},
		"another one for everyone": {site, grantOf([]string{"read"}, []string{gate.All}, map[string]string{gate.All: "x"}), "account_denied",
			nil},
	} {
		got, err := c.grant.Within(c.giver)
		if (c.code == "") != (err == nil) || err != nil && fault.CodeOf(err) != c.code || err == nil && !cmp.Equal(got.Accounts, c.accounts) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
