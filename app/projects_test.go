package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// sharing returns a gateway whose users have their own projects, and share one.
func sharing(t *testing.T) *Gateway {
	t.Helper()
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\n", func(s *site.Site) {
		s.Access.Peers = []site.Peer{{Group: "lab", Capabilities: []string{"gateway", "read", "slurm"}, Projects: []string{plan.UserProject}},
			{User: "alice", Capabilities: []string{"gateway", "read"}, Projects: []string{"atlas"}},
			{Group: "ops", Capabilities: []string{"gateway", "read"}, Projects: []string{gate.All}}}
	})
	uids := map[string]int{"alice": 1001, "bob": 1002}
	g.ProjectUser = func(_ context.Context, name string) (gate.ProjectUser, error) {
		if uids[name] == 0 {
			return gate.ProjectUser{}, fault.New(fault.Auth, "unix_user_gone", "this host has no user "+name)
		}
		return gate.ProjectUser{Name: name, UID: uids[name]}, nil
	}
	return g
}

// userOf returns a user of this host with rights as at the site of sharing.
func (g *Gateway) userOf(t *testing.T, user string, shared ...string) gate.Caller {
	t.Helper()
	u, err := g.ProjectUser(t.Context(), user)
	must(t, err)
	ids, err := g.Ledger.Principals(t.Context(), gate.Identity{Method: gate.ByPeer, Subject: fmt.Sprint(u.UID, " ", user),
		Name: "user:" + user})
	must(t, err)
	u.PrincipalID = ids[0].ID
	own, err := g.Ledger.UserProject(t.Context(), u)
	must(t, err)
	p := gate.Principal{ID: ids[0].ID, Name: "user:" + user, Method: gate.ByPeer, UnixUser: user, UserProject: own,
		Rights: gate.RightsOf([]string{"gateway", "read", "import", "slurm"}, []string{own})}
	for _, name := range shared {
		p.Rights = append(p.Rights, gate.Grant{Capabilities: []string{"gateway", "read"}, Projects: []string{plan.ProjectID(name)}})
	}
	return gate.Caller{Transport: gate.Local, Principal: p}
}

// A token has the project of its Unix user, and of no one else. The user must exist, and the token's creator must
// have the rights there.
func TestTokensOnUserProjects(t *testing.T) {
	g := sharing(t)
	boss := everything("user:boss", gate.All)
	args := func(project, user string) map[string]any {
		a := map[string]any{"name": "x", "capabilities": []string{"gateway", "read", "slurm"}, "projects": []string{project},
			"expires_in_seconds": 600}
		if user != "" {
			a["unix_user"] = user
		}
		return a
	}
	for _, x := range []struct{ project, user, code string }{
		{plan.UserProject, "", "TOKEN-USER-PROJECT"}, // the user is not known
		{plan.UserProject, "carol", "TOKEN-USER-PROJECT"},
		{plan.UserProjectID("alice", 1), "alice", "GRANT-PROJECT"},
		{"{user:alice}", "alice", "GRANT-PROJECT"},
	} {
		g.says(t, boss, "token.create", args(x.project, x.user), x.code, nil)
	}
	var made TokenCreated
	g.says(t, boss, "token.create", args(plan.UserProject, "alice"), "", &made)
	if !slices.Equal(made.Projects, []string{plan.UserProject}) || made.UnixUser != "alice" {
		t.Errorf("the token has projects %v and the Unix user %q", made.Projects, made.UnixUser)
	}
	maker := g.userOf(t, "bob")
	maker.Rights = append(maker.Rights, gate.Grant{Capabilities: []string{"gateway", "admin"}, Projects: []string{gate.All}})
	g.says(t, maker, "token.create", args(plan.UserProject, "alice"), "capability_denied", nil)
	g.says(t, maker, "token.create", args(plan.UserProject, "bob"), "", nil)
}

// Members of a shared project and administrators see who shares it; only its user sees a user's own project.
//
// proves OPS-04
func TestProjectsAreListedWithTheirMembers(t *testing.T) {
	g := sharing(t)
	boss, alice, bob := everything("user:boss", gate.All), g.userOf(t, "alice", "atlas"), g.userOf(t, "bob")
	g.says(t, boss, "token.create", map[string]any{"name": "ci", "capabilities": []string{"gateway", "read"}, "projects": []string{"atlas"},
		"expires_in_seconds": 600}, "", nil)
	g.says(t, alice, "artifact.import", map[string]any{"text": "mine", "label": "mine"}, "", nil)
	seen := func(who gate.Caller) (out []string) {
		t.Helper()
		var l ProjectList
		g.says(t, who, "project.list", map[string]any{}, "", &l)
		if l.Total != int64(len(l.Projects)) {
			t.Errorf("%s is told of %d projects and shown %d", who.Name, l.Total, len(l.Projects))
		}
		for _, p := range l.Projects {
			line := cmpText(p.Name) + cmpText(p.User)
			for _, m := range p.Members {
				line += " " + m.Who
			}
			if p.Default {
				line += " default"
			}
			if p.Artifacts > 0 {
				line += " stored"
			}
			out = append(out, line)
		}
		return out
	}
	for who, want := range map[*gate.Caller][]string{&boss: {"atlas user:alice token:ci", "default default", "alice stored", "bob"},
		&alice: {"atlas user:alice token:ci", "alice default stored"}, &bob: {"bob default"}} {
		if got := seen(*who); !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", who.Name, got, want)
		}
	}
}

func cmpText(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Only an administrator can decide who the owner of a project is.
func TestProjectIsReboundByAnAdministrator(t *testing.T) {
	g := sharing(t)
	alice := g.userOf(t, "alice")
	real := g.ProjectUser
	g.ProjectUser = func(ctx context.Context, name string) (gate.ProjectUser, error) {
		u, err := real(ctx, name)
		u.UID += 1000
		return u, err
	}
	u, err := g.ProjectUser(t.Context(), "alice")
	must(t, err)
	if _, err := g.Ledger.UserProject(t.Context(), u); fault.CodeOf(err) != "user_project_taken" {
		t.Fatalf("the project of a name with another user id: %v", err)
	}
	args := map[string]any{"user": "alice", "same_person": false, "reason": "she left"}
	g.says(t, alice, "project.rebind", args, "capability_denied", nil)
	g.says(t, everything("user:boss", gate.All), "project.rebind", map[string]any{"user": "nobody_here", "same_person": true}, "no_user", nil)
	var out Rebound
	g.says(t, everything("user:boss", gate.All), "project.rebind", args, "", &out)
	if out.ProjectID == alice.UserProject || out.UID != 2001 {
		t.Errorf("another person has %+v, want a new project", out)
	}
	g.says(t, everything("user:boss", gate.All), "project.rebind", args, "user_project_bound", nil)
}

// The limits of {user} apply to each user's own project, and folders of {user} are open to it.
func TestSettingsAboutUserProjects(t *testing.T) {
	l := site.Limits{ProjectQuotaMB: 7, Projects: []site.ProjectLimit{{Project: plan.UserProject, QuotaMB: 3, Weight: 2, RunsInFlight: 5}}}
	own, demo := plan.UserProjectID("alice", 1), plan.ProjectID("demo")
	c, q := NewCaps(l, func(string) string { return "" }), &Quotas{limits: l}
	for id, want := range map[string][3]int{own: {3, 2, 5}, demo: {7, 1, 0}} {
		quota, _ := q.quotaOf(id)
		if got := [3]int{int(quota >> 20), c.Weight(id), c.ProjectInFlight(id)}; got != want {
			t.Errorf("quota, weight and runs in flight of %s are %v, want %v", id, got, want)
		}
	}
}

// The project of a call is that of its declared inputs, in the order of their names. The order of a map's keys, which
// differs from call to call, does not matter, nor does an id in a text.
//
// proves ARC-11
func TestProjectOfACall(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	of := func(project string) string {
		a, err := b.addBytes(t.Context(), run.Artifact{ProjectID: plan.ProjectID(project), Type: "TEXT", Label: project, Source: "import"},
			[]byte(project))
		must(t, err)
		return a.ID
	}
	mine, other := of("mine"), of("other")
	made := func(tool, args string) string {
		t.Helper()
		res := b.call(gate.NewRequest(tool, "0.1.0", json.RawMessage(args)))
		if res.Error != nil {
			t.Fatalf("%s %s: %+v", tool, args, res.Error)
		}
		return b.run(res.RunID).Run.ProjectID
	}
	for range 30 {
		if project := made("web.count", `{"data":"`+mine+`","more":["`+other+`"]}`); project != plan.ProjectID("mine") {
			t.Fatalf("a call whose first input is of the project mine is in %s; want %s", project, plan.ProjectID("mine"))
		}
	}
	if got, want := made("web.scrape", `{"url":"`+other+`"}`), made("web.scrape", `{"url":"https://example.org"}`); got != want {
		t.Errorf("a call with another project's artifact in a text is in %s; want the caller's own, %s", got, want)
	}
}

// The files of a directory can be listed from any of them, and each is read by its path in the list. A path that is
// not in the list, wherever it leads, is refused; a single file has no list.
//
// proves ARC-01
func TestFilesOfADirectory(t *testing.T) {
	g := tableGateway(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.MkdirAll(dir+"/out/logs", 0o755))
	for i := range 30 {
		must(t, os.WriteFile(fmt.Sprintf("%s/out/logs/lane%02d.txt", dir, i), []byte(strings.Repeat("line\n", i+1)), 0o644))
	}
	must(t, os.WriteFile(dir+"/secret", []byte("outside\n"), 0o644))
	if g.Importer, err = artifact.NewImporter(g.Store, artifact.ImportPolicy{MaxBytes: 1 << 20, Roots: []artifact.Root{{Folder: dir,
		Projects: []string{plan.ProjectID("demo")}}}}); err != nil {
		t.Fatal(err)
	}
	g.Policy.Import.Roots = []string{dir} // as at the start of a gateway
	who := gate.Caller{Transport: gate.MCP, Principal: gate.Principal{Name: "token:a", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport}, []string{plan.ProjectID("demo")})}}
	path, text := dir+"/out", "one\n"
	var folder, file ImportAnswer
	g.says(t, who, "artifact.import", ImportArgs{Path: &path}, "", &folder)
	g.says(t, who, "artifact.import", ImportArgs{Text: &text}, "", &file)
	var p PreviewAnswer
	show := func(args map[string]any, code string) {
		t.Helper()
		p = PreviewAnswer{}
		if args["artifact_id"] == nil {
			args["artifact_id"] = folder.ArtifactID
		}
		g.says(t, who, "artifact.preview.text", args, code, &p)
	}
	if show(map[string]any{"max_lines": 4}, ""); p.FilesTotal != 30 || !p.Truncated || strings.Count(p.Text, "\n") != 4 ||
		!strings.Contains(p.Text, "  logs/lane02.txt\n") {
		t.Errorf("4 lines of the list: %d files, truncated %t, text:\n%s", p.FilesTotal, p.Truncated, p.Text)
	}
	if show(map[string]any{"first_file": 28}, ""); p.FirstFile != 28 || strings.Contains(p.Text, "lane27") ||
		!strings.HasSuffix(p.Text, "  logs/lane28.txt\n         150  logs/lane29.txt\n") {
		t.Errorf("the list from file 28 begins at %d, text:\n%s", p.FirstFile, p.Text)
	}
	if show(map[string]any{"first_file": 30}, ""); p.FilesTotal != 30 || strings.Count(p.Text, "\n") != 1 {
		t.Errorf("the list from file 30: %d files, text:\n%s", p.FilesTotal, p.Text)
	}
	if show(map[string]any{"path": "logs/lane01.txt"}, ""); p.Text != "line\nline\n" || p.SizeBytes != 10 || p.Path != "logs/lane01.txt" {
		t.Errorf("the file %s: %d bytes, text %q", p.Path, p.SizeBytes, p.Text)
	}
	if show(map[string]any{"path": "logs/lane29.txt", "max_bytes": 20}, ""); len(p.Text) > 20 || !p.Truncated {
		t.Errorf("20 bytes of a file: %d bytes, truncated %t", len(p.Text), p.Truncated)
	}
	for _, none := range []string{"logs", "lane01.txt", "../secret", "logs/../../secret", dir + "/secret", "logs//lane01.txt"} {
		show(map[string]any{"path": none}, "file_not_found")
	}
	show(map[string]any{"artifact_id": file.ArtifactID, "path": "one"}, "PREVIEW-DIRECTORY")
	show(map[string]any{"artifact_id": file.ArtifactID, "first_file": 1}, "PREVIEW-DIRECTORY")
}
