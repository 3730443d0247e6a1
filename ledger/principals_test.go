package ledger

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

func peer(uid int, name string) gate.Identity {
	return gate.Identity{Method: gate.ByPeer, Subject: fmt.Sprint(uid, " ", name), Name: "user:" + name, Former: "user:" + name}
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
		if earlier, twice := ids[got.ID]; twice || !strings.HasPrefix(got.ID, "prn_") || len(got.ID) != 30 || got.Former != "" {
			t.Errorf("%+v and %+v", got, earlier)
		}
		if again := identified(t, l, who); again != got {
			t.Errorf("%+v, then %+v", got, again)
		}
		ids[got.ID] = got
	}
	maker := gate.Principal{ID: identified(t, l, peer(1001, "alice")).ID, Name: "user:alice"}
	for _, id := range []string{"A", "B"} {
		must(t, l.AddToken(t.Context(), gate.Token{ID: "tok_" + strings.Repeat(id, 16), Name: "ci", SecretSHA256: strings.Repeat("0", 64),
			CreatedBy: maker.Name, MadeBy: maker.ID, ExpiresAt: t0.Add(time.Hour)}))
		got, err := l.Token(t.Context(), "tok_"+strings.Repeat(id, 16))
		if _, twice := ids[got.PrincipalID]; err != nil || twice || got.PrincipalID == "" || got.MadeBy != maker.ID || got.Former != "" {
			t.Errorf("%+v %v", got, err)
		}
		ids[got.PrincipalID] = gate.Identity{}
	}
	for _, q := range []string{"DELETE FROM principals", "UPDATE principals SET subject = 'x'", "UPDATE principals SET former = 'x'"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
}

// What an older ledger keeps under a name goes on working for the principal that had the name, where that is certain, and for nobody else.
func TestOlderNames(t *testing.T) {
	path, _, _ := olderLedger(t, 13)
	db, err := sql.Open("sqlite3", "file:"+path)
	must(t, err)
	exec := func(q string, args ...any) {
		t.Helper()
		_, err := db.Exec(q, args...)
		must(t, err)
	}
	token := func(letter, name string, revoked any) string {
		exec("INSERT INTO tokens VALUES (?,?,?,'[]','[]','{}','user:lab',1,9,?,NULL)", "tok_"+strings.Repeat(letter, 16), name,
			strings.Repeat("0", 64), revoked)
		return "tok_" + strings.Repeat(letter, 16)
	}
	one, twin, other, gone := token("A", "one", nil), token("B", "twin", nil), token("C", "twin", 5), token("D", "gone", 5)
	hash := strings.Repeat("1", 64)
	for _, name := range []string{"user:lab", "user:late", "token:one", "token:twin", "token:gone", "oidc:https://i#x"} {
		exec("INSERT INTO idempotency_keys VALUES (?,?,'x.y',?,'c','','{}',1,1)", name, hash, hash)
	}
	exec(`INSERT INTO tool_call_events VALUES ('looks',1,1,'c','x.y','user:lab',1,'{}','',?)`, hash)
	must(t, db.Close())

	l := openAt(t, path)
	holds := func(what string, who gate.Principal, want bool) {
		t.Helper()
		k, err := l.Key(t.Context(), who, hash)
		if want != (err == nil) || !want && !fault.Is(err, fault.NotFound) || want && k.Principal != who.Former {
			t.Errorf("%s: %+v %v", what, k, err)
		}
	}
	of := func(i gate.Identity) gate.Principal { return gate.Principal{ID: i.ID, Name: i.Name, Former: i.Former} }
	holds("a user of this host", of(identified(t, l, peer(1001, "lab"))), true)
	holds("the next user of that name", of(identified(t, l, peer(1002, "lab"))), false)
	must(t, l.CloseNames(t.Context()))
	must(t, l.CloseNames(t.Context()))
	holds("a user who comes later", of(identified(t, l, peer(1003, "late"))), false)
	holds("the first one, again", of(identified(t, l, peer(1001, "lab"))), true)
	subject := gate.Identity{Method: gate.ByOIDC, Subject: "https://i x", Name: "oidc:https://i#x", Former: "oidc:https://i#x"}
	holds("an OpenID subject", of(identified(t, l, subject)), true)
	for id, want := range map[string]bool{one: true, twin: false, other: false, gone: false} {
		tok, err := l.Token(t.Context(), id)
		must(t, err)
		holds(tok.Name, gate.Principal{ID: tok.PrincipalID, Name: "token:" + tok.Name, Former: tok.Former}, want)
	}
	must(t, l.AddToken(t.Context(), gate.Token{ID: "tok_" + strings.Repeat("E", 16), Name: "one", SecretSHA256: hash, ExpiresAt: t0}))
	tok, err := l.Token(t.Context(), "tok_"+strings.Repeat("E", 16))
	must(t, err)
	holds("a new token of an old name", gate.Principal{ID: tok.PrincipalID, Name: "token:one", Former: tok.Former}, false)
}

// A ledger that begins with ids has no names to take over.
func TestNoNamesToTakeOver(t *testing.T) {
	l := fresh(t)
	k := gate.Key{Principal: "user:lab", KeyHash: strings.Repeat("1", 64), ToolID: "x.y", Binding: strings.Repeat("2", 64), ToolCallID: "c"}
	must(t, l.Begin(t.Context(), &k, ""))
	must(t, l.Record(t.Context(), []gate.Record{{Chain: gate.Looks, Principal: "user:lab", Event: json.RawMessage(`{}`), At: t0}}))
	if got := identified(t, l, peer(1, "lab")); got.Former != "" {
		t.Errorf("%+v", got)
	}
}

// Requests of an older ledger do not say what they cover: they end, answered or not, and nobody can bring them back.
func TestOlderApprovals(t *testing.T) {
	path, _, _ := olderLedger(t, 13)
	db, err := sql.Open("sqlite3", "file:"+path)
	must(t, err)
	hash := strings.Repeat("1", 64)
	for id, status := range map[string]string{"A": "pending", "B": "approved", "C": "denied"} {
		var at any
		if status != "pending" {
			at = 5
		}
		_, err := db.Exec("INSERT INTO approvals VALUES (?,'user:lab','x.y','1.0.0',?,?,'{}',?,1,?,?,NULL,?,NULL)", "apr_"+strings.Repeat(id, 26),
			hash, hash, status, micros(t0.Add(time.Hour)), map[bool]int{true: 3}[status == "approved"], at)
		must(t, err)
	}
	must(t, db.Close())
	l := openAt(t, path)
	waiting, total, _, err := l.Approvals(t.Context(), nil, false)
	if err != nil || len(waiting) != 0 || total != 0 {
		t.Error(waiting, total, err)
	}
	for _, id := range []string{"A", "B", "C"} {
		id = "apr_" + strings.Repeat(id, 26)
		if err := l.Begin(t.Context(), nil, id); fault.CodeOf(err) != "consent_required" {
			t.Errorf("%s is good for a call: %v", id, err)
		}
		if _, err := l.AnswerApproval(t.Context(), id, Answer{Approve: true, Uses: 1, Expires: t0.Add(time.Hour)}); fault.CodeOf(err) !=
			"approval_answered" {
			t.Errorf("%s is answered: %v", id, err)
		}
	}
	for _, q := range []string{"UPDATE approvals SET uses_left = 1", "DELETE FROM approvals",
		"UPDATE approvals SET covers = '{\"account\":\"x\"}'",
		"UPDATE approvals SET binding = '" + strings.Repeat("2", 64) + "'", "UPDATE approvals SET principal_id = 'prn_x'"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
}
