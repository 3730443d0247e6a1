package access

import (
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// What a principal may do is asked for again long after its request: a group that was left, an entry that was narrowed, a user id that
// changed hands, a provider that is no longer trusted.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := campus(t)
		was := func(uid int) gate.Principal {
			t.Helper()
			p, err := a.Peer(uid)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		alice, carol := was(1001), was(1003)
		if p, err := a.Again(t.Context(), alice); err != nil || p.ID != alice.ID || !p.Can(gate.CapSlurm, "proj_gpu") {
			t.Errorf("%+v %v", p, err)
		}
		d.set(func() { d.in["alice"], d.in["carol"] = []int{500}, nil })
		time.Sleep(memberFresh)
		if p, err := a.Again(t.Context(), alice); err != nil || p.Can(gate.CapSlurm, "proj_gpu") || !p.Can(gate.CapRead, "proj_lab") {
			t.Errorf("%+v %v", p, err)
		}
		if p, err := a.Again(t.Context(), carol); err != nil || p.Can(gate.CapRead, "proj_lab") || !p.Can(gate.CapImport, "proj_own") {
			t.Errorf("%+v %v", p, err)
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
			t.Errorf("%+v %v", got, err)
		}
	}
}
