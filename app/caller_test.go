package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// mapped returns a principal with rights on one project that acts as a Unix user.
func mapped(user, project string, capabilities ...string) gate.Principal {
	return gate.Principal{ID: "prn_" + user, Name: "token:" + user, Method: gate.ByToken, UnixUser: user,
		Rights: gate.RightsOf(append([]string{gate.CapGateway, gate.CapRead}, capabilities...), []string{project})}
}

// codeOf makes a call of a tool and returns its answer, or the code of its error.
func (g *Gateway) codeOf(t *testing.T, who gate.Principal, x gate.Tool, args map[string]any, dry bool) (code string,
	answer json.RawMessage) {
	t.Helper()
	res := g.Gate.Call(t.Context(), gate.Caller{Transport: gate.Local, Principal: who}, request(t, x, args, dry))
	if res.Error != nil {
		return res.Error.Code, nil
	}
	return "", res.Result
}

// Where jobs run as their callers, every tool of the registry works for a run's own user as before, and refuses
// callers that act as another user, also for a dry run, unless it reads data of the gateway itself. Operators may act
// on any run of their project.
//
// proves SITE-08
func TestEveryToolKnowsWhoseRunItIs(t *testing.T) {
	g := tableGateway(t)
	g.asCallers("alice", "bob")
	g.Person = func(_ context.Context, p gate.Principal) (string, error) { return personOf[p.UnixUser], nil }
	g.ReadAs = func(context.Context, string, string, func(artifact.OpenAs) error) error {
		return fault.New(fault.NotFound, "import_missing", "there is no such file")
	}
	seen := 0
	for _, x := range g.Gate.Registry().List() {
		acts := ActsAsCaller
		if o, own := g.Find(x.ID); own {
			acts = o.Acts
		}
		if x.SiteWide || x.Body > 0 || acts == ActsAsGateway && x.SideEffect == gate.Read {
			continue // not about a run, or reads data of the gateway itself: TestEveryOperationHoldsPairs
		}
		for _, who := range []string{"alice", "bob", "nobody", "carol", "operator"} {
			b := g.fillAs(t, x.ID+" "+who, "alice")
			p := mapped(map[string]string{"nobody": "", "operator": "bob"}[who], b.project, gate.CapSlurm, gate.CapImport)
			switch who {
			case "operator":
				p.Rights[0].Capabilities = append(p.Rights[0].Capabilities, gate.CapOperate)
			case "alice", "bob", "carol":
				p.UnixUser = who
			}
			for _, args := range g.argsOf(t, x, b) {
				for _, dry := range []bool{true, false} {
					code, _ := g.codeOf(t, p, x, args, dry)
					want := refusalOf(acts, x, args, who)
					mine := slices.Contains([]string{"no_unix_user", "unix_user_refused", "not_your_run"}, code)
					// The call of a plan or a toolpack that policy or the image lock refuses ends there.
					elsewhere := acts == ActsAsCaller && x.ID != "artifact.import" && (code == "image_not_locked" ||
						strings.HasPrefix(code, "PLAN-") || code == "ARGS-ARTIFACT-TYPE")
					if dry && x.DryRun == nil {
						want = code
					}
					if want != code && !elsewhere && (want != "" || mine) {
						t.Errorf("%s %v as %s (dry run: %t): %q, want %q", x.ID, args, who, dry, code, want)
					}
					if mine {
						seen++
					}
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d calls were refused: is the registry walked?", seen)
	}
}

// refusalOf returns the code with which a tool refuses a caller for alice's run, or for want of a Unix user; empty:
// it does not refuse.
func refusalOf(acts Acting, x gate.Tool, args map[string]any, who string) string {
	_, path := args["path"]
	switch {
	case x.ID == "artifact.import" && (!path || args["text"] != nil || args["upload"] != nil):
		return ""
	case (args["for_all"] != nil || args["for_principal"] != nil) && acts == ActsForAskers && who != "operator":
		return "capability_denied"
	case x.ID == "artifact.remove" && who != "alice" && who != "operator":
		return "not_your_artifact"
	case acts == ActsForAskers && who != "alice" && who != "operator":
		return "not_your_run"
	case acts != ActsAsCaller && acts != ActsOnOwnRun && acts != ActsOnOwnLiveRun:
		return ""
	case who == "nobody":
		return "no_unix_user"
	case who == "carol":
		return "unix_user_refused"
	case who == "bob" && acts != ActsAsCaller:
		return "not_your_run"
	}
	return ""
}

// Once a run has ended anyone with rights on its project may read its log again: the log is the gateway's then.
func TestLogsOfAnotherUser(t *testing.T) {
	g := tableGateway(t)
	b := g.fillAs(t, "shared", "alice")
	g.asCallers("alice", "bob")
	bob := mapped("bob", b.project)
	x := g.toolOf(t, "slurm.job.logs")
	if code, _ := g.codeOf(t, bob, x, map[string]any{"run_id": b.run}, false); code != "not_your_run" {
		t.Errorf("live: %q", code)
	}
	v, err := g.Ledger.View(t.Context(), b.run)
	must(t, err)
	v.Run.State, v.Run.Phase, v.Run.FinishedAt = run.Cancelled, run.Done, new(time.Now())
	if _, err := g.Ledger.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.cancelled"}}); err != nil {
		t.Fatal(err)
	}
	if code, _ := g.codeOf(t, bob, x, map[string]any{"run_id": b.run}, false); code == "not_your_run" {
		t.Errorf("ended: %q", code)
	}
}

// The user whom a run is executed as is part of the run's identity: for raw plans and toolpacks, and in dry runs too.
// The same request of another user is another run; the same user finds it with any credentials; where jobs are the
// gateway's own nothing changes.
//
// proves SITE-08 ABI-18
func TestRunsAreTheirCallers(t *testing.T) {
	policies, err := os.ReadFile("testdata/demo/domain/policies.yaml")
	must(t, err)
	spec, err := os.ReadFile("testdata/demo/raw-waits.json")
	must(t, err)
	for tool, args := range map[string]map[string]any{"samtools.flagstat": {"bam": demoBAM},
		"slurm.submit": {"job_spec": json.RawMessage(spec)}} {
		t.Run(tool, func(t *testing.T) { areTheirCallers(t, demoGateway(t, string(policies)), tool, args) })
	}
}

func areTheirCallers(t *testing.T, g *Gateway, tool string, args map[string]any) {
	x := g.toolOf(t, tool)
	demo := plan.ProjectID("demo")
	before := g.ask(t, x.ID, args, true)
	g.asCallers("alice", "bob")
	alice, bob := mapped("alice", demo, gate.CapSlurm), mapped("bob", demo, gate.CapSlurm)
	peer := gate.Principal{ID: "prn_peer", Name: "user:alice", Method: gate.ByPeer, UnixUser: "alice", PeerUID: 1001, Rights: alice.Rights}
	ids := map[string]string{}
	for name, who := range map[string]gate.Principal{"alice": alice, "bob": bob, "the peer": peer} {
		for _, dry := range []bool{true, false} {
			code, answer := g.codeOf(t, who, x, args, dry)
			var a struct {
				RunID      string `json:"run_id"`
				ExecutedAs string `json:"executed_as"`
				Would      struct {
					RunID      string `json:"run_id"`
					ExecutedAs string `json:"executed_as"`
				}
			}
			if err := json.Unmarshal(answer, &a); code != "" || err != nil {
				t.Fatal(name, code, err)
			}
			if dry {
				a.RunID, a.ExecutedAs = a.Would.RunID, a.Would.ExecutedAs
			}
			if a.ExecutedAs != who.UnixUser || ids[name] != "" && ids[name] != a.RunID || a.RunID == before.RunID {
				t.Errorf("%s, dry run %t: %s", name, dry, answer)
			}
			ids[name] = a.RunID
		}
		if v, err := g.Ledger.View(t.Context(), ids[name]); err != nil || v.Run.ExecutedAs != who.UnixUser {
			t.Errorf("%s: executed as %q, %v; want %q", name, v.Run.ExecutedAs, err, who.UnixUser)
		}
	}
	if ids["alice"] == ids["bob"] || ids["alice"] != ids["the peer"] {
		t.Error(ids)
	}
	g.UnixUser = nil
	if again := g.ask(t, x.ID, args, true); again.RunID != before.RunID {
		t.Errorf("%s is %s now", before.RunID, again.RunID)
	}
}

// An approval names whom the job runs as and holds for that user's job only: the call runs as the asking user, never
// as the approver, and a person cannot approve what that person asked for with other credentials.
//
// proves SITE-08 HTC-07
func TestApprovalsNameTheUnixUser(t *testing.T) {
	g := demoGateway(t, "version: 1\nconsent: {tools: [samtools_flagstat]}\n")
	g.asCallers("alice", "bob")
	x := g.toolOf(t, "samtools.flagstat")
	demo := plan.ProjectID("demo")
	if err := g.Ledger.AddToken(t.Context(), gate.Token{ID: "tok_" + strings.Repeat("A", 16), Name: "alice", UnixUser: "alice",
		SecretSHA256: strings.Repeat("0", 64), Capabilities: []string{"*"}, Projects: []string{demo},
		ExpiresAt: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	tok, err := g.Ledger.Token(t.Context(), "tok_"+strings.Repeat("A", 16))
	must(t, err)
	alice := mapped("alice", demo, gate.CapSlurm, gate.CapApprove)
	alice.ID = tok.PrincipalID
	args := map[string]any{"bam": demoBAM}
	if code, _ := g.codeOf(t, alice, x, args, false); code != "consent_required" {
		t.Fatal(code)
	}
	list, _, _, err := g.Ledger.Approvals(t.Context(), nil, false)
	if err != nil || len(list) != 1 || list[0].Covers.ExecutedAs != "alice" {
		t.Fatalf("%d requests, %v; want one for a job of alice", len(list), err)
	}
	peer := g.enrolled(t, gate.ByPeer, "1001 alice", "user:alice")
	peer.UnixUser = "alice"
	bob := mapped("bob", demo, gate.CapSlurm, gate.CapApprove)
	if code := g.answers(t, peer, list[0], true); code != "consent_self" {
		t.Errorf("the same person approves: %q", code)
	}
	if code := g.answers(t, bob, list[0], true); code != "" {
		t.Errorf("another person: %q", code)
	}
	if code, _ := g.codeOf(t, bob, x, args, false); code != "consent_required" {
		t.Errorf("who approves has no approval: %q", code)
	}
	code, answer := g.codeOf(t, alice, x, args, false)
	if code != "" || !strings.Contains(string(answer), `"executed_as":"alice"`) {
		t.Errorf("%q %s", code, answer)
	}
	moved := alice
	moved.UnixUser = "bob" // her token now has another user
	if code, _ := g.codeOf(t, moved, x, args, false); code != "consent_required" {
		t.Errorf("an approval of a job of another user: %q", code)
	}
}

// A key holds for the Unix user whom it was used for.
func TestKeysAreAUnixUsers(t *testing.T) {
	g := demoGateway(t, "version: 1\n")
	g.asCallers("alice", "bob")
	who := mapped("alice", plan.ProjectID("demo"), gate.CapSlurm)
	for i, want := range []string{"", "", "idempotency_rights"} {
		if i == 2 {
			who.UnixUser = "bob"
		}
		got := ""
		x := g.toolOf(t, "samtools.flagstat")
		req := gate.NewRequest(x.ID, x.Version, json.RawMessage(`{"bam":"`+demoBAM+`"}`))
		key := "once"
		req.IdempotencyKey = &key
		if res := g.Gate.Call(t.Context(), gate.Caller{Transport: gate.MCP, Principal: who}, req); res.Error != nil {
			got = res.Error.Code
		}
		if got != want {
			t.Errorf("call %d: %q, want %q", i, got, want)
		}
	}
}

// opened is an open file of a user.
type opened struct {
	io.Reader
	size    int64
	changed bool
}

func (o opened) Bytes() int64 { return o.size }
func (o opened) Close() error { return nil }

func (o opened) Unchanged(context.Context) error {
	if o.changed {
		return fault.New(fault.Validation, "import_changed", "it changed")
	}
	return nil
}

// A path is read with the rights of the caller's Unix user, over that user's login, and in no other way: the
// gateway's own rights are not used. Bytes that changed while they were read are not stored.
//
// proves SITE-08 ARC-02
func TestImportWithTheCallersRights(t *testing.T) {
	g := tableGateway(t)
	g.asCallers("alice", "bob")
	project := plan.ProjectID("demo")
	files := map[string]map[string]opened{"alice": {
		"/home/alice/secret":  {size: 6},
		"/home/alice/swapped": {size: 6, changed: true},
		"/home/alice/grown":   {size: 4},
	}}
	g.ReadAs = func(_ context.Context, site, user string, f func(artifact.OpenAs) error) error {
		if site != g.Site.Name {
			t.Errorf("read on %s", site)
		}
		return f(func(_ context.Context, path string, limit int64) (artifact.Reading, error) {
			o, ok := files[user][path]
			if !ok {
				return nil, fault.New(fault.Policy, artifact.ImportAccess, path+" is not readable by "+user)
			}
			if o.size > limit {
				t.Errorf("no limit: %d", limit)
			}
			o.Reader = bytes.NewReader([]byte("secret"))
			return o, nil
		})
	}
	x := g.toolOf(t, "artifact.import")
	oidc := mapped("alice", project, gate.CapImport)
	oidc.Method = gate.ByOIDC
	for _, c := range []struct {
		who        gate.Principal
		path, want string
	}{
		{mapped("bob", project, gate.CapImport), "/home/alice/secret", artifact.ImportAccess},
		{mapped("", project, gate.CapImport), "/home/alice/secret", "no_unix_user"},
		{mapped("", project, gate.CapImport), "/etc/passwd", "no_unix_user"}, // which the gateway could read
		{mapped("carol", project, gate.CapImport), "/home/alice/secret", "unix_user_refused"},
		{mapped("alice", project, gate.CapImport), "/etc/passwd", artifact.ImportAccess},
		{mapped("alice", project, gate.CapImport), "/home/alice/swapped", "import_changed"},
		{mapped("alice", project, gate.CapImport), "/home/alice/grown", "import_changed"},
		{mapped("alice", project, gate.CapImport), "home/alice/secret", artifact.ImportPath},
		{oidc, "/home/alice/secret", ""},
		{mapped("alice", project, gate.CapImport), "/home/alice/secret", ""},
	} {
		for _, dry := range []bool{true, false} {
			code, answer := g.codeOf(t, c.who, x, map[string]any{"path": c.path, "project_id": "demo"}, dry)
			if code != c.want {
				t.Errorf("%s as %s (dry run: %t): %q %s, want %q", c.path, c.who.Name, dry, code, answer, c.want)
			}
		}
	}
	page, err := g.Ledger.Artifacts(t.Context(), ledger.ArtifactFilter{Projects: []string{project}, Limit: 50})
	if err != nil || len(page.Artifacts) != 1 {
		t.Errorf("%d artifacts, %v; want one", len(page.Artifacts), err)
	}
}
