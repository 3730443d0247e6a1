package app

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// An account named by a grant must be charged; a caller without such a grant charges what policy allows.
func TestChargedAccount(t *testing.T) {
	g := &Gateway{Site: &site.Site{Name: "table"}}
	c := gate.Call{Caller: gate.Caller{Principal: gate.Principal{Accounts: map[string]string{"*": "mine"}}}}
	for account, code := range map[string]string{"mine": "", "other": "account_denied"} {
		_, err := g.charged(t.Context(), c, g.Site, "proj_x", "", plan.Placement{Partition: "main", Account: account})
		if fault.CodeOf(err) != code && (err != nil || code != "") {
			t.Errorf("%s: %v", account, err)
		}
	}
	if _, err := g.charged(t.Context(), gate.Call{}, g.Site, "proj_x", "", plan.Placement{Partition: "main", Account: "any"}); err != nil {
		t.Error(err)
	}
}

// fromSlurm returns associations of three users.
func fromSlurm(_ context.Context, cluster, user string) (run.UserAccounts, error) {
	if cluster == "away" {
		return run.UserAccounts{}, fault.New(fault.Transport, "accounts_unknown", "slurmdbd does not answer").WithRetry(30)
	}
	return map[string]run.UserAccounts{
		"alice": {Default: "teaching", Accounts: []run.Account{{Name: "teaching", QOS: []string{"normal", "quick"}},
			{Name: "research", Partitions: []string{"short"}, QOS: []string{"normal"}}}},
		"bob":   {Accounts: []run.Account{{Name: "research"}, {Name: "big", QOS: []string{"+huge"}}}},
		"carol": {Accounts: []run.Account{{Name: "big"}, {Name: "small"}}},
	}[user], nil
}

// With slurm.accounts: associations a user of this host charges what its associations allow. Callers with an account
// by a grant, tokens, OpenID tokens, root and the gateway's own user are not affected.
func TestAccountsOfAssociations(t *testing.T) {
	s := &site.Site{Name: "table", Slurm: site.Slurm{DefaultPartition: "main", DefaultAccount: "research", DefaultQOS: "site",
		Accounts: site.AccountsByAssociations, Cluster: "alpha"}}
	g := &Gateway{Site: s, Associations: fromSlurm}
	user := func(name string) gate.Principal { return gate.Principal{Name: "user:" + name, Method: gate.ByPeer} }
	granted, token, owner := user("alice"), user("alice"), user("alice")
	granted.Accounts = map[string]string{"proj_x": "granted"}
	token.Method = gate.ByToken
	owner.Owner = true
	away := *s
	away.Name = "away"
	asks := func(partition, account, qos string) plan.Placement {
		p := plan.Placement{Partition: partition, Account: account}
		if qos != "" {
			p.QOS = &qos
		}
		return p
	}
	for name, c := range map[string]struct {
		who    gate.Principal
		as     string // the Unix user whom the job runs as; empty: the gateway's own
		at     *site.Site
		asked  plan.Placement
		want   string // the account charged, or the code of the refusal
		saying string
	}{
		"her default":     {who: user("alice"), asked: asks("", "", ""), want: "teaching"},
		"another of hers": {who: user("alice"), asked: asks("short", "research", ""), want: "research"},
		"not in this partition": {who: user("alice"), asked: asks("main", "research", ""), want: "partition_denied",
			saying: "only in the partitions short"},
		"not hers": {who: user("alice"), asked: asks("main", "big", ""), want: "account_denied",
			saying: "charge teaching or research"},
		"a QOS of hers":             {who: user("alice"), asked: asks("main", "", "quick"), want: "teaching"},
		"another QOS":               {who: user("alice"), asked: asks("main", "", "huge"), want: "qos_denied", saying: "use normal, quick"},
		"the site's QOS":            {who: user("alice"), asked: asks("main", "", "site"), want: "teaching"},
		"QOS beyond another list":   {who: user("bob"), asked: asks("main", "big", "huge"), want: "big"},
		"no default but the site's": {who: user("bob"), asked: asks("", "", ""), want: "research"},
		"no default": {who: user("carol"), asked: asks("", "", ""), want: "no_default_account",
			saying: "sacctmgr modify user carol set DefaultAccount="},
		"no default, and one named": {who: user("carol"), asked: asks("", "small", ""), want: "small"},
		"no association": {who: user("dave"), asked: asks("", "", ""), want: "no_association",
			saying: "sacctmgr add user dave account="},
		"slurmdbd is down":       {who: user("alice"), at: &away, want: "accounts_unknown"},
		"granted":                {who: granted, asked: asks("", "", ""), want: "granted"},
		"granted another":        {who: granted, asked: asks("", "teaching", ""), want: "account_denied"},
		"a token":                {who: token, asked: asks("", "", ""), want: "research"},
		"a token names one":      {who: token, asked: asks("", "big", ""), want: "big"},
		"the gateway's user":     {who: owner, asked: asks("", "", ""), want: "research"},
		"granted, slurmdbd down": {who: granted, at: &away, want: "granted"},

		"a token as alice": {who: token, as: "alice", asked: asks("", "", ""), want: "teaching"},
		"a token as alice, not hers": {who: token, as: "alice", asked: asks("main", "big", ""), want: "account_denied",
			saying: "charge teaching or research"},
		"a token as bob":  {who: token, as: "bob", asked: asks("", "", ""), want: "research"},
		"a token as dave": {who: token, as: "dave", asked: asks("", "", ""), want: "no_association"},
		"granted what is not hers": {who: granted, as: "alice", asked: asks("", "", ""), want: "account_denied",
			saying: "no association with the Slurm account granted"},
		"granted, as alice, down":      {who: granted, as: "alice", at: &away, want: "accounts_unknown"},
		"alice's call as someone else": {who: user("alice"), as: "carol", asked: asks("", "small", ""), want: "small"},
	} {
		if c.at == nil {
			c.at = s
		}
		p, err := g.charged(t.Context(), gate.Call{Caller: gate.Caller{Principal: c.who}}, c.at, "proj_x", c.as, c.asked)
		got := fault.CodeOf(err)
		if err == nil {
			got = p.Account
		}
		if got != c.want || c.saying != "" && !strings.Contains(err.Error(), c.saying) {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

// The account is not part of a run's identity: the attempt has it. Another caller finds the run, and may retry it
// only if it may charge the account too.
func TestAssociationsChangeNoIdentity(t *testing.T) {
	var ids []string
	for _, accounts := range []string{site.AccountsBySite, site.AccountsByAssociations} {
		g := demoGateway(t, "version: 1\n")
		g.Site.Slurm.Accounts, g.Site.Slurm.Cluster = accounts, "alpha"
		g.Associations = func(ctx context.Context, cluster, user string) (run.UserAccounts, error) {
			return run.UserAccounts{Default: "teaching", Accounts: []run.Account{{Name: "teaching"}}}, nil
		}
		a := g.ask(t, "samtools.flagstat", map[string]any{"bam": demoBAM}, false)
		v, err := g.Ledger.View(t.Context(), a.RunID)
		must(t, err)
		want := map[string]string{site.AccountsBySite: "research", site.AccountsByAssociations: "teaching"}[accounts]
		if v.Attempt.Placement.Account != want {
			t.Errorf("%s: charged %s", accounts, v.Attempt.Placement.Account)
		}
		ids = append(ids, a.RunID)
		g.Associations = fromSlurm
		as := func(user string) gate.Call {
			return gate.Call{Caller: gate.Caller{Principal: gate.Principal{Name: "user:" + user, Method: gate.ByPeer}}}
		}
		for user, code := range map[string]string{"alice": "", "bob": "account_denied"} {
			if accounts == site.AccountsBySite {
				code = ""
			}
			if err := g.mayRetry(t.Context(), as(user), a.RunID); fault.CodeOf(err) != code && (err != nil || code != "") {
				t.Errorf("%s, %s retries: %v", accounts, user, err)
			}
		}
		x := g.toolOf(t, "slurm.job.retry")
		call := as("bob").Caller
		call.Transport = gate.Local
		if _, err := g.Ledger.AskFor(t.Context(), a.RunID, run.Asking{Principal: run.Principal{Name: call.Name}}, nil); err != nil {
			t.Fatal(err)
		}
		call.Rights = gate.RightsOf([]string{gate.CapGateway, gate.CapSlurm}, []string{plan.ProjectID("demo")})
		res := g.Gate.Call(t.Context(), call, request(t, x, map[string]any{"run_id": a.RunID, "after_attempt": 1}, false))
		if denied := res.Error != nil && res.Error.Code == "account_denied"; denied != (accounts == site.AccountsByAssociations) {
			t.Errorf("slurm.accounts %s: bob's retry ended with %+v", accounts, res.Error)
		}
	}
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("the runs are %v, want one", ids)
	}
}

// asCallers makes jobs of the gateway run as their callers: as the Unix user of the principal, if it is in users.
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

// A token has the Unix user that its administrator gives it, and none by default; lists show it. Only callers who may
// create tokens can do that, and where jobs run as their callers the user must be one whom jobs may run as.
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
		must(t, json.Unmarshal(res.Result, &out))
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
		t.Errorf("token.list returned %s, want one token of alice", res.Result)
	}
}
