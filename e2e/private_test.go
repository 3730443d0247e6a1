package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// With the site file's default – projects: ["{user}"] for a group – a user has no access to another user's things: from
// the shell, over HTTP and in a chat bob finds, reads, previews, cancels, retries, removes and asks again for nothing
// of alice's, with any id, project or name; whether jobs run as the gateway's user or as their callers.
//
// proves OPS-04
// short: private by default
func TestPrivateByDefault(t *testing.T) {
	t.Parallel()
	peers := func(group string) tree {
		return tree{"peers": []any{tree{"group": group, "capabilities": []any{"gateway", "read", "import", "slurm"},
			"projects": []any{"{user}"}}}}
	}
	t.Run("self", func(t *testing.T) {
		s := newSite(t, "probing")
		shell(t, "root", "groupadd -f sgate-private && usermod -aG sgate-private alice && usermod -aG sgate-private bob")
		text := value(json.Marshal(peers("sgate-private")))(t)
		s.replace("site.yaml", "domain_dir:", "  socket: "+s.dir+"/gw.sock\naccess: "+string(text)+"\ndomain_dir:")
		s.replace("site.yaml", "import:\n", "import:\n  local: own\n")
		s.keptPrivate(t)
	})
	t.Run("caller", func(t *testing.T) {
		s, _ := callerSite(t, func(doc tree) { doc["access"] = peers("callers") })
		s.keptPrivate(t)
	})
}

// keptPrivate tries as bob every operation on alice's things.
func (s *site) keptPrivate(t *testing.T) {
	const secret = "a private line"
	s.serve()
	as := func(user string, args ...string) result { return s.user(user, nil, args...) }
	alices := func(into any, args ...string) {
		t.Helper()
		r := as("alice", args...)
		if r.code != 0 {
			t.Fatal("alice cannot do what is her own:", r)
		}
		r.object(t, into)
	}
	file := s.fileOf("alice", "private.txt", secret)
	var own artifactRow
	alices(&own, "artifact", "import", file)
	var ended, going submitted
	alices(&ended, "submit", s.plan(reads(probePlan("report", "out/result"), own)))
	s.mustEnd(ended.RunID, "succeeded")
	alices(&going, "submit", s.plan(s.set(probePlan("sleep", "600"), "resources.time_limit_seconds", 900)))
	var projects struct {
		Projects []struct {
			ID   string `json:"project_id"`
			User *string
		}
	}
	alices(&projects, "projects")
	if len(projects.Projects) != 1 || !strings.HasPrefix(projects.Projects[0].ID, "proj_Z") || *projects.Projects[0].User != "alice" {
		t.Fatalf("alice sees the projects %+v, want her own alone", projects.Projects)
	}
	hers := projects.Projects[0].ID

	for _, args := range [][]string{{"artifact", "get", own.ArtifactID}, {"artifact", "get", own.ArtifactID, "-o", "-"},
		{"artifact", "preview", own.ArtifactID}, {"trace", own.ArtifactID}, {"artifact", "rm", own.ArtifactID, "--reason", "x"},
		{"get", ended.RunID}, {"runs", "show", ended.RunID}, {"logs", ended.RunID}, {"collect", ended.RunID}, {"export", ended.RunID},
		{"retry", ended.RunID}, {"runs", "rm", ended.RunID, "--reason", "x"}, {"cancel", going.RunID},
		{"submit", s.plan(reads(probePlan("report", "out/result"), own))}, {"runs", "list", "--project", hers},
		{"artifact", "list", "--project", hers}, {"artifact", "import", s.file("bobs", "x"), "--project", hers},
		{"runs", "list", "--project", "{user:alice}"}, {"artifact", "import", file}} {
		as("bob", args...).denied(t, secret)
	}
	for _, args := range [][]string{{"runs", "list"}, {"artifact", "list"}, {"artifact", "find", "private"}, {"projects"}, {"batch", "list"},
		{"cancel-all", "--everyone", "--yes"}} {
		r := as("bob", args...)
		if out := string(r.stdout) + string(r.stderr); r.code != 0 && args[0] != "artifact" ||
			regexp.MustCompile(strings.Join([]string{own.ArtifactID, ended.RunID, going.RunID, hers, secret}, "|")).MatchString(out) {
			t.Errorf("bob sees something of alice's: %v", r)
		}
	}
	for _, path := range []string{"runs/" + ended.RunID, "runs/" + ended.RunID + "/result", "runs/" + ended.RunID + "/story",
		"runs/" + ended.RunID + "/logs", "runs/" + ended.RunID + "/events",
		"artifacts/" + own.ArtifactID, "artifacts/" + own.ArtifactID + "/content",
		"artifacts/" + own.ArtifactID + "/preview", "runs?project_id=" + hers, "POST runs/" + going.RunID + ":cancel",
		"POST runs/" + ended.RunID + ":retry", "DELETE artifacts/" + own.ArtifactID + "?reason=x", "DELETE runs/" + ended.RunID + "?reason=x"} {
		method, at, ok := strings.Cut(path, " ")
		if !ok {
			method, at = http.MethodGet, path
		}
		out := s.overHTTP("bob", method, at, "{}")
		if strings.Contains(out, secret) || !regexp.MustCompile(` 40[034]$`).MatchString(out) {
			t.Errorf("%s of alice's by bob over HTTP: %s", path, out)
		}
	}
	for tool, args := range map[string]string{"artifact_get": `{"artifact_id":"` + own.ArtifactID + `"}`,
		"artifact_preview_text": `{"artifact_id":"` + own.ArtifactID + `"}`, "slurm_job_get": `{"run_id":"` + ended.RunID + `"}`,
		"slurm_job_logs": `{"run_id":"` + ended.RunID + `"}`, "slurm_job_cancel": `{"run_id":"` + going.RunID + `"}`,
		"slurm_job_retry": `{"run_id":"` + ended.RunID + `","after_attempt":1}`, "run_list": `{"project_id":"` + hers + `"}`} {
		if out := s.inChat("bob", tool, args); strings.Contains(out, secret) || !strings.Contains(out, "not_found") {
			t.Errorf("%s of alice's by bob in a chat: %s", tool, out)
		}
	}
	if got := s.story(going.RunID); got.State != "running" && got.State != "queued" {
		t.Errorf("after all that bob tried alice's run is %s (%s), want it running or queued", got.State, got.Reason)
	}
	alices(nil, "cancel", going.RunID)
}

// overHTTP returns the answer of the gateway's socket to a user, with the status after a blank.
func (s *site) overHTTP(user, method, path, body string) string {
	return shell(s.t, user, `curl -s -X "$1" -H "Content-Type: application/json" -d "$4" -w ' %{http_code}' --unix-socket "$2" \
  "http://gateway/v1/$3"`, method, s.dir+"/gw.sock", path, body)
}

// inChat returns a tool's answer to a user's chat.
func (s *site) inChat(user, tool, args string) string {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
		`"clientInfo":{"name":"t","version":"1"}}}`
	return shell(s.t, user, `printf '%s\n' "$1" '{"jsonrpc":"2.0","method":"notifications/initialized"}' "$2" | SLURMGATE_SITE="$3" "$4" mcp`, hello,
		fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args), s.dir+"/site.yaml",
		world.dir+"/slurmgate")
}

// Users who share a project by choice submit the same run and import the same file. Each removes their own claim, over
// every face, and learns who still holds it; the job ends, and the bytes go, with the last of them. A member without a
// claim changes nothing.
//
// proves OPS-04
// short: private by default
func TestSharedByChoice(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	shell(t, "root", "groupadd -f sgate-shared && for u in alice bob carol; do usermod -aG sgate-shared $u; done")
	s.replace("site.yaml", "domain_dir:", "  socket: "+s.dir+`/gw.sock
access: {peers: [{group: sgate-shared, capabilities: [gateway, read, import, slurm], projects: [demo]}]}
domain_dir:`)
	s.replace("site.yaml", "import:\n", "import:\n  local: own\n")
	s.serve()
	job := s.plan(s.set(probePlan("sleep", "600"), "resources.time_limit_seconds", 900))
	var going, again submitted
	s.user("alice", nil, "submit", job).object(t, &going)
	if s.user("bob", nil, "submit", job).object(t, &again); again.RunID != going.RunID || again.RunID == "" {
		t.Fatalf("alice and bob ask for the same: %s and %s, want one run", going.RunID, again.RunID)
	}
	in := func(user string, args ...string) string {
		r := s.user(user, nil, args...)
		return string(r.stdout) + string(r.stderr)
	}
	told := func(who, got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("the answer to %s is %s, want %q in it", who, got, w)
			}
		}
	}
	one := `{"run_id":"` + going.RunID + `"}`
	told("carol", s.overHTTP("carol", "POST", "runs/"+going.RunID+":cancel", "{}"), "not_your_run", "user:alice, user:bob", " 403")
	told("carol", s.inChat("carol", "slurm_job_cancel", one), "not_your_run", "user:alice, user:bob")
	told("carol", in("carol", "cancel", going.RunID, "--everyone"), "capability_denied")
	told("alice", s.inChat("alice", "slurm_job_cancel", one), "you no longer ask for this run, and it continues for user:bob")
	told("alice", in("alice", "cancel", going.RunID), `"withdrawn": true`, "it continues for user:bob")
	if got := s.story(going.RunID); got.State != "running" && got.State != "queued" {
		t.Fatalf("after alice's cancel the run that bob asked for is %s (%s)", got.State, got.Reason)
	}
	told("bob", s.overHTTP("bob", "POST", "runs/"+going.RunID+":cancel", `{"reason":"enough"}`), `"withdrawn":false`, " 200")
	s.ends(going.RunID, "cancelled")
	told("carol", in("carol", "retry", going.RunID), "not_your_run")

	var file artifactRow
	for _, who := range []string{"alice", "bob"} {
		s.user(who, nil, "artifact", "import", s.fileOf(who, "same.txt", "the same bytes")).object(t, &file)
	}
	told("carol", s.overHTTP("carol", "DELETE", "artifacts/"+file.ArtifactID+"?reason=x", ""), "not_your_artifact", " 403")
	told("alice", in("alice", "artifact", "rm", file.ArtifactID, "--reason", "x"), `"askers"`, "user:bob")
	told("carol", in("carol", "artifact", "preview", file.ArtifactID), "the same bytes")
	told("bob", s.overHTTP("bob", "DELETE", "artifacts/"+file.ArtifactID+"?reason=x", ""), `"withdrawn":[]`, " 200")
	told("carol", in("carol", "artifact", "preview", file.ArtifactID), "artifact_removed")
}
