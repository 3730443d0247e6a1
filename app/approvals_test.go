package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/site"
)

// enrolled returns a principal of the ledger with every right.
func (g *Gateway) enrolled(t *testing.T, method, subject, name string) gate.Principal {
	t.Helper()
	got, err := g.Ledger.Principals(t.Context(), gate.Identity{Method: method, Subject: subject, Name: name})
	must(t, err)
	return gate.Principal{ID: got[0].ID, Name: name, Method: method, Rights: gate.Everything()}
}

// tokenOf returns the principal of a new token, created by another principal, with every right.
func (g *Gateway) tokenOf(t *testing.T, id, name string, by gate.Principal, life time.Duration) gate.Principal {
	t.Helper()
	if err := g.Ledger.AddToken(t.Context(), gate.Token{ID: "tok_" + strings.Repeat(id, 16), Name: name,
		SecretSHA256: strings.Repeat("0", 64), CreatedBy: by.Name, MadeBy: by.ID, ExpiresAt: time.Now().Add(life)}); err != nil {
		t.Fatal(err)
	}
	tok, err := g.Ledger.Token(t.Context(), "tok_"+strings.Repeat(id, 16))
	must(t, err)
	return gate.Principal{ID: tok.PrincipalID, Name: "token:" + name, Method: gate.ByToken, Rights: gate.Everything()}
}

var questions int

func (g *Gateway) question(t *testing.T, who gate.Principal, project string) gate.Approval {
	t.Helper()
	questions++
	hash := fmt.Sprintf("%064d", questions)
	a, err := g.Ledger.Ask(t.Context(), gate.Question{Who: who, ToolID: "x.y", ToolVersion: "1.0.0", Binding: hash, ArgsHash: hash,
		Covers: gate.Coverage{ProjectID: project}, Payload: json.RawMessage(`{}`), Expires: time.Now().Add(time.Hour)})
	must(t, err)
	return a
}

func (g *Gateway) answers(t *testing.T, who gate.Principal, a gate.Approval, approve bool) string {
	t.Helper()
	res := g.calls(t, who, "approval.answer", fmt.Sprintf(`{"approval_id":%q,"approve":%t}`, a.ID, approve), "")
	if res.Error != nil {
		return res.Error.Code
	}
	return ""
}

// A person cannot approve through tokens: that person and all tokens created by that person, directly or through
// tokens, count as one.
func TestNoApprovalThroughOwnTokens(t *testing.T) {
	g := tableGateway(t)
	alice, bob := g.enrolled(t, gate.ByPeer, "1001 alice", "user:alice"), g.enrolled(t, gate.ByPeer, "1002 bob", "user:bob")
	alice2 := g.enrolled(t, gate.ByPeer, "1003 alice", "user:alice") // another user of the same name
	carol := g.enrolled(t, gate.ByOIDC, "https://i carol", "oidc:https://i#carol")
	owner := g.enrolled(t, gate.ByPeer, "1000 lab", "user:lab")
	owner.Owner = true
	aBot, aHelper := g.tokenOf(t, "A", "bot", alice, time.Hour), g.tokenOf(t, "B", "helper", alice, time.Hour)
	aDeep := g.tokenOf(t, "C", "deep", g.tokenOf(t, "D", "between", aHelper, time.Hour), time.Hour)
	bBot := g.tokenOf(t, "E", "bot", bob, time.Hour) // of the same name as alice's
	cBot := g.tokenOf(t, "F", "carols", carol, time.Hour)
	ownersBot, ownersHelper := g.tokenOf(t, "G", "g", owner, time.Hour), g.tokenOf(t, "H", "h", owner, time.Hour)
	const no = "consent_self"
	for _, c := range []struct {
		what      string
		asks, who gate.Principal
		code      string
	}{
		{"herself", alice, alice, no}, {"her token", alice, aBot, no}, {"a token of her token's token", alice, aDeep, no},
		{"the token itself", aBot, aBot, no}, {"its maker", aBot, alice, no}, {"the maker of its maker", aDeep, alice, no},
		{"another token of its maker", aBot, aHelper, no}, {"a cousin", aDeep, aBot, no}, {"the other way round", aBot, aDeep, no},
		{"another person", alice, bob, ""}, {"another person of the same name", alice, alice2, ""}, {"for another's token", aDeep, bob, ""},
		{"a person by OpenID", aBot, carol, ""}, {"her own token's request", cBot, carol, no},
		{"another person's token", alice, bBot, ""}, {"between tokens of two people", aBot, bBot, ""}, {"and of OpenID", aBot, cBot, ""},
		{"two tokens of the owner", ownersBot, ownersHelper, no}, {"the owner through a token", owner, ownersHelper, no},
		{"the owner", owner, owner, ""}, {"the owner for his token", ownersBot, owner, ""}, {"the owner for others", aDeep, owner, ""},
	} {
		if code := g.answers(t, c.who, g.question(t, c.asks, ""), true); code != c.code {
			t.Errorf("%s: got %q, want %q", c.what, code, c.code)
		}
		if code := g.answers(t, c.who, g.question(t, c.asks, ""), false); code != "" { // anyone may withdraw or refuse
			t.Errorf("%s denies: %s", c.what, code)
		}
	}
}

// The request of a token that was revoked, or has expired, cannot be approved.
func TestApprovalOfARevokedToken(t *testing.T) {
	g := tableGateway(t)
	bob := g.enrolled(t, gate.ByPeer, "1002 bob", "user:bob")
	boss := gate.Process().Principal
	gone, late := g.tokenOf(t, "A", "gone", bob, time.Hour), g.tokenOf(t, "B", "late", bob, -time.Second)
	first, second := g.question(t, gone, ""), g.question(t, late, "")
	if _, _, err := g.Ledger.RevokeToken(t.Context(), "tok_"+strings.Repeat("A", 16), "user:lab", false); err != nil {
		t.Fatal(err)
	}
	for _, a := range []gate.Approval{first, second} {
		if code := g.answers(t, boss, a, true); code != "requester_gone" {
			t.Errorf("approving the request of %s ended with %q, want requester_gone", a.Principal, code)
		}
		if code := g.answers(t, boss, a, false); code != "" {
			t.Errorf("denying the request of %s ended with %q, want success", a.Principal, code)
		}
	}
}

// Approvals belong to a project: callers who may not approve there neither see them nor answer them.
func TestApprovalsOfAProject(t *testing.T) {
	g := tableGateway(t)
	asks := g.enrolled(t, gate.ByPeer, "1001 alice", "user:alice")
	demo, other := plan.ProjectID("demo"), plan.ProjectID("other")
	bob := g.enrolled(t, gate.ByPeer, "1002 bob", "user:bob")
	bob.Rights = gate.Rights{{Capabilities: []string{gate.CapGateway, gate.CapApprove}, Projects: []string{demo}},
		{Capabilities: []string{gate.CapGateway, gate.CapRead}, Projects: []string{other}}}
	mine, theirs, all := g.question(t, asks, demo), g.question(t, asks, other), g.question(t, asks, "")
	var list ApprovalList
	g.says(t, gate.Caller{Principal: bob, Transport: gate.Local}, "approval.list", map[string]any{"all": true}, "", &list)
	if list.Total != 1 || len(list.Approvals) != 1 || list.Approvals[0].ID != mine.ID || list.Snapshot.Approvals != 1 {
		t.Errorf("approval.list of bob: %d approvals, %d in the snapshot; want only %s", list.Total, list.Snapshot.Approvals, mine.ID)
	}
	for _, a := range []gate.Approval{theirs, all, {ID: "apr_" + strings.Repeat("A", 26)}} {
		for _, approve := range []bool{true, false} {
			if code := g.answers(t, bob, a, approve); code != "approval_not_found" {
				t.Errorf("answering %s (approve %t) ended with %q, want approval_not_found", a.ID, approve, code)
			}
		}
	}
	if code := g.answers(t, bob, mine, true); code != "" {
		t.Errorf("approving %s ended with %q, want success", mine.ID, code)
	}
}

// The approver is shown what will run, where, for whom and at whose expense, and the approval holds for nothing else:
// after a change of the image, the account, the partition, the site's QOS or the toolpack the call needs another
// approval.
func TestApprovalIsBoundToWhatRuns(t *testing.T) {
	type world struct {
		digest, account, partition, qos, version string
	}
	var bam string
	asks := gate.Principal{ID: "prn_1", Name: "token:bot", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{plan.ProjectID("demo")})}
	was := world{strings.Repeat("a", 64), "research", "main", "normal", "1.0.0"}
	dir := t.TempDir()
	in := func(name string, w world, do func(*testing.T, *Gateway)) {
		t.Run(name, func(t *testing.T) {
			domain := t.TempDir()
			must(t, os.CopyFS(domain, os.DirFS("testdata/demo/domain")))
			edit := func(file, old, new string) {
				t.Helper()
				data, err := os.ReadFile(filepath.Join(domain, file))
				if err != nil || !strings.Contains(string(data), old) {
					t.Fatalf("no %s in %s: %v", old, file, err)
				}
				must(t, os.WriteFile(filepath.Join(domain, file), []byte(strings.ReplaceAll(string(data), old, new)), 0o600))
			}
			edit("images.lock.yaml", "e8f2541904ee11119da131d5a00c90913d1ad26116e86eaaf480ad9bc5684c63", w.digest)
			edit("toolpacks/samtools.flagstat.tool.yaml", "version: 1.0.0", "version: "+w.version)
			do(t, gatewayOver(t, dir, domain, "version: 1\nconsent: {tools: [samtools_flagstat, slurm_job_retry]}\n", func(s *site.Site) {
				s.Slurm.DefaultAccount, s.Slurm.DefaultPartition, s.Slurm.DefaultQOS = w.account, w.partition, w.qos
			}))
		})
	}
	var last gate.Approval
	call := func(t *testing.T, g *Gateway) (res gate.Response) {
		t.Helper()
		x := g.toolOf(t, "samtools.flagstat")
		return g.Gate.Call(t.Context(), gate.Caller{Principal: asks, Transport: gate.Local},
			gate.NewRequest(x.ID, x.Version, json.RawMessage(`{"bam":"`+bam+`"}`)))
	}
	asked := func(t *testing.T, g *Gateway) (message string) {
		t.Helper()
		res := call(t, g)
		var list ApprovalList
		g.says(t, gate.Caller{Principal: gate.Process().Principal, Transport: gate.Local}, "approval.list", map[string]any{}, "", &list)
		if res.OK || res.Error.Code != "consent_required" || len(list.Approvals) != 1 {
			t.Fatalf("the call ended with %+v and %s, and %d requests; want consent_required and one", res.Error, res.Result, len(list.Approvals))
		}
		last = list.Approvals[0]
		return res.Error.Message
	}
	approved := func(t *testing.T, g *Gateway) {
		t.Helper()
		if code := g.answers(t, gate.Process().Principal, last, true); code != "" {
			t.Fatal(code)
		}
	}
	in("asked", was, func(t *testing.T, g *Gateway) {
		bam = g.fill(t, "demo").artifact
		asked(t, g)
		c := last.Covers
		if last.Principal != "token:bot" || last.PrincipalID != "prn_1" || last.ToolVersion != "1.0.0" || c.ContractVersion != "v1" ||
			c.ProjectID != plan.ProjectID("demo") || c.Site != "table" || c.Partition != "main" || c.Account != "research" || c.QOS != "normal" ||
			c.Image != "samtools" || c.ImageDigest != "sha256:"+was.digest || c.Resources == nil || c.Resources.CPUs == 0 || c.PackHash == "" ||
			c.ParamsHash == "" {
			t.Errorf("%+v, covers %+v of %+v", last, c, c.Resources)
		}
		approved(t, g)
	})
	for name, x := range map[string]struct {
		now  world
		says string
	}{
		"image digest": {world{strings.Repeat("b", 64), was.account, was.partition, was.qos, was.version},
			"image digest sha256:" + strings.Repeat("b", 64)},
		"account":   {world{was.digest, "other", was.partition, was.qos, was.version}, "account other instead of research"},
		"partition": {world{was.digest, was.account, "big", was.qos, was.version}, "partition big instead of main"},
		"QOS":       {world{was.digest, was.account, was.partition, "", was.version}, "QOS (none) instead of normal"},
		"version":   {world{was.digest, was.account, was.partition, was.qos, "1.2.0"}, "version 1.2.0 instead of 1.0.0"},
	} {
		before := gate.Approval{}
		in(name, x.now, func(t *testing.T, g *Gateway) {
			before = last
			if message := asked(t, g); !strings.Contains(message, x.says) || !strings.Contains(message, before.ID) || last.Replaces == nil ||
				*last.Replaces != before.ID || last.ID == before.ID {
				t.Errorf("%q for request %s, which replaces %v; want %q and a new request for %s", message, last.ID, last.Replaces, x.says, before.ID)
			}
			if runs := g.runIDs(t); len(runs) != 1 { // the run of the fixture
				t.Errorf("the runs are %v, want only that of the fixture", runs)
			}
		})
		in(name+" back", was, func(t *testing.T, g *Gateway) { // a void approval stays void
			changed := last
			if x.now.digest+x.now.version != was.digest+was.version { // the approver would not get what is shown
				if code := g.answers(t, gate.Process().Principal, changed, true); code != "approval_void" {
					t.Errorf("approving a changed call ended with %q, want approval_void", code)
				}
			}
			asked(t, g)
			for _, void := range []gate.Approval{before, changed} {
				if a, err := g.Ledger.Approval(t.Context(), void.ID); err != nil || a.UsesLeft != 0 || last.ID == void.ID {
					t.Errorf("the void approval %s has %d uses left (%v), the last one is %s", void.ID, a.UsesLeft, err, last.ID)
				}
			}
			if code := g.answers(t, gate.Process().Principal, changed, true); code != "approval_answered" && code != "approval_void" {
				t.Errorf("answering the replaced request ended with %q", code)
			}
			approved(t, g)
		})
	}
	in("at last", was, func(t *testing.T, g *Gateway) {
		if res := call(t, g); !res.OK {
			t.Errorf("the call ended with %+v, want success", res.Error)
		}
		if res := call(t, g); res.OK { // once
			t.Errorf("a second call under one approval returned %s, want a refusal", res.Result)
		}
	})
}
