package access

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"slurmgate/gate"
)

// register gives ids as the ledger does, and counts how often it is asked.
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

// A caller has the id of exactly one subject, and finding it again asks nobody.
func TestIdentities(t *testing.T) {
	issuer, now, book := newProvider(t), noon, &register{ids: map[string]string{}}
	a := issuer.access(t, &now, "RS256")
	if err := a.Enroll(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	me, err := a.Peer(os.Geteuid())
	if name, _ := nameOf(os.Geteuid()); err != nil || me.ID == "" || me.ID != book.ids[fmt.Sprint("peer ", os.Geteuid(), " ", name)] {
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
	if book.asked != 4 { // the users of this host, and three subjects
		t.Errorf("asked %d times", book.asked)
	}
	// Someone whom nothing is granted leaves nothing behind.
	p, err := a.Bearer(t.Context(), issuer.token(t, jose.RS256, "r", issuer.rsa, issuer.claims(set("sub", "bob"), set("groups", "none"),
		set("scope", "none"))))
	if err != nil || p.ID != "" || book.asked != 4 {
		t.Errorf("%+v %v, asked %d times", p, err, book.asked)
	}
	tok, text := NewToken("bot", Grant{}, me, now.Add(time.Hour))
	tok.PrincipalID, tok.Former = "prn_T", "token:bot"
	b := New(Config{Tokens: shelf{tok.ID: tok}, Now: func() time.Time { return now }})
	if p, err := b.Bearer(t.Context(), text); err != nil || p.ID != "prn_T" || p.Former != "token:bot" || tok.MadeBy != me.ID ||
		tok.CreatedBy != me.Name {
		t.Errorf("%+v of %+v: %v", p, tok, err)
	}
}
