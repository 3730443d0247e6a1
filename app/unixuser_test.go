package app

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// asCallers makes the gateway one whose jobs run as their callers: as the Unix user of the principal, if it is one of those named.
func (g *Gateway) asCallers(users ...string) {
	g.UnixUser = func(_ context.Context, _ string, p gate.Principal) (string, error) {
		for _, u := range users {
			if u == p.UnixUser {
				return u, nil
			}
		}
		if p.UnixUser == "" {
			return "", fault.New(fault.Policy, "no_unix_user", p.Name+" names no Unix user")
		}
		return "", fault.New(fault.Policy, "unix_user_refused", "jobs may not run as the user "+p.UnixUser)
	}
}

// A token has the Unix user that its administrator gives it, and none by default; lists show it. Only who may create tokens at all can do
// that, and where jobs are their callers' the user must be one whom jobs may run as.
//
// proves SITE-08
func TestTokenForAUnixUser(t *testing.T) {
	g := tableGateway(t)
	boss := gate.Process().Principal
	user := gate.Principal{Name: "token:user", Method: gate.ByToken, UnixUser: "alice",
		Rights: gate.RightsOf([]string{"gateway", "admin"}, []string{plan.ProjectID("demo")})}
	create := func(who gate.Principal, unixUser string) (TokenCreated, string) {
		var out TokenCreated
		res := g.calls(t, who, "token.create", `{"name":"x","capabilities":["read"],"projects":["demo"],"expires_in_seconds":600`+unixUser+`}`, "")
		if !res.OK {
			return out, res.Error.Code
		}
		if err := json.Unmarshal(res.Result, &out); err != nil {
			t.Fatal(err)
		}
		return out, out.UnixUser
	}
	for _, x := range []struct {
		callers   bool
		who       gate.Principal
		args, got string
	}{
		{false, boss, ``, ""},
		{false, boss, `,"unix_user":"bob@lab.example"`, "bob@lab.example"},
		{false, boss, `,"unix_user":"1001"`, "TOKEN-UNIX-USER"},
		{false, boss, `,"unix_user":"a/b"`, "TOKEN-UNIX-USER"},
		{false, boss, `,"unix_user":""`, "ARGS-SCHEMA"},
		{false, user, `,"unix_user":"alice"`, "capability_denied"},
		{false, user, `,"unix_user":"bob"`, "capability_denied"},
		{true, boss, `,"unix_user":"alice"`, "alice"},
		{true, boss, `,"unix_user":"root"`, "unix_user_refused"},
		{true, boss, ``, ""},
	} {
		if g.UnixUser = nil; x.callers {
			g.asCallers("alice")
		}
		made, got := create(x.who, x.args)
		if got != x.got {
			t.Errorf("%s %t %s: %q, want %q", x.who.Name, x.callers, x.args, got, x.got)
		}
		if made.Token == "" {
			continue
		}
		if p, err := access.New(access.Config{Tokens: g.Ledger}).Bearer(t.Context(), made.Token); err != nil || p.UnixUser != x.got {
			t.Errorf("%s: the principal runs as %q, want %q (%v)", x.args, p.UnixUser, x.got, err)
		}
	}
	if res := g.calls(t, boss, "token.list", `{}`, ""); strings.Count(string(res.Result), `"unix_user":"alice"`) != 1 {
		t.Errorf("%s", res.Result)
	}
}
