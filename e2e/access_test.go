package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/gate/conformance"
)

// as runs a command line as a user of the login node, with some environment.
func (s *site) user(user string, env []string, args ...string) result {
	s.t.Helper()
	ctx, stop := commandContext(s.t)
	defer stop()
	c := inClusterContext(ctx, user, append([]string{"SLURMGATE_SITE=" + s.dir + "/site.yaml"}, env...),
		append([]string{world.dir + "/slurmgate"}, append(args, "--json")...)...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.t.Fatal(err)
	}
	return result{args, c.ProcessState.ExitCode(), out.Bytes(), errs.Bytes()}
}

type tokenAnswer struct {
	TokenID string `json:"token_id"`
	Token   string `json:"token"`
	State   string `json:"state"`
}

// A token allows what it was created for, in its projects, until it is revoked; its secret is nowhere on the disk.
//
// proves HTC-07
// short: HTTP
func TestTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	s.file("input.txt", "some input\n")
	r := s.submit(probePlan("nothing"))
	s.wait(r.RunID)
	make := func(args ...string) (tok tokenAnswer) {
		t.Helper()
		s.ok(&tok, append([]string{"token", "create"}, args...)...)
		return tok
	}
	reader, other := make("reader"), make("other", "--project", "other", "--capability", "gateway,read,import,slurm,operate")
	as := func(tok tokenAnswer, args ...string) result {
		return s.user("lab", []string{"SLURMGATE_TOKEN=" + tok.Token}, args...)
	}
	var page runPage
	as(reader, "runs", "list").object(t, &page)
	if len(page.Runs) != 1 || page.Runs[0].RunID != r.RunID {
		t.Errorf("runs list with a token of the project shows %+v, want run %s alone", page.Runs, r.RunID)
	}
	for _, args := range [][]string{{"cancel", r.RunID}, {"submit", s.plan(probePlan("exit", "1"))}, {"artifact", "import",
		s.dir + "/files/input.txt"}, {"token", "list"}, {"events"}, {"approvals"}, {"declare-absent", r.RunID}} {
		if f := as(reader, args...).failure(t, 4); f.Code != "capability_denied" || f.Kind != "capability" {
			t.Errorf("slurmgate %s with a token that may only read fails with %v, want capability_denied", args[0], f)
		}
	}
	as(other, "get", r.RunID).failure(t, 3) // to the token of another project there is nothing
	var expiring tokenAnswer
	s.ok(&expiring, "token", "create", "short", "--expires", "60s")
	s.ok(nil, "token", "revoke", reader.TokenID)
	if f := as(reader, "runs", "list").failure(t, 4); f.Code != "unauthenticated" {
		t.Errorf("runs list with a revoked token fails with %v, want unauthenticated", f)
	}
	if f := as(tokenAnswer{Token: other.Token[:len(other.Token)-1] + "A"}, "runs", "list").failure(t, 4); f.Kind != "auth" {
		t.Errorf("runs list with a token whose last byte is wrong fails with %v of kind %s, want kind auth", f,
			f.Kind)
	}
	var list struct{ Tokens []tokenAnswer }
	s.ok(&list, "token", "list")
	if len(list.Tokens) != 3 {
		t.Errorf("token list shows %d tokens, want the three created: %+v", len(list.Tokens), list.Tokens)
	}
	secrets := []string{reader.Token[21:], other.Token[21:], expiring.Token[21:]}
	s.nowhere(secrets...)
}

// nowhere fails the test if any file of the site contains one of the texts: ledger, artifacts, run folders, scripts.
func (s *site) nowhere(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if out := shell(s.t, "root", `grep -rlaF -e "$1" "$2" "$3" || true`, text, s.dir, "/home/lab/"+strings.TrimPrefix(s.dir,
			"/shared/")); out != "" {
			s.t.Errorf("%.12q… is in %s", text, out)
		}
	}
}

// The kernel identifies users of the host, each with the rights of the site file; others are rejected.
//
// short: every call passes the gate
func TestPeers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "domain_dir:", `  socket: `+s.dir+`/gw.sock
access:
  peers:
    - user: alice
      capabilities: [gateway, read, import, slurm]
      projects: [hers]
      accounts: [{project: "*", account: teaching}]
domain_dir:`)
	s.serve()
	if f := s.user("bob", nil, "runs", "list").failure(t, 4); f.Code != "unauthenticated" {
		t.Errorf("runs list by bob, whom the site file does not name, fails with %v, want unauthenticated", f)
	}
	var page runPage
	s.user("alice", nil, "runs", "list").object(t, &page)
	own := s.submit(probePlan("nothing"))
	s.user("alice", nil, "get", own.RunID).failure(t, 3)
	// Her jobs charge her account, which policy does not allow here; the site's default is not hers to charge.
	if f := s.user("alice", nil, "submit", s.plan(probePlan("exit", "3"))).failure(t, 4); f.Code != "account_denied" {
		t.Errorf("submit by alice fails with %v, want account_denied", f)
	}
	if f := s.user("alice", nil, "run", "probe.words", "--param", "word=x").failure(t, 4); f.Code != "POLICY-ACCOUNT" {
		t.Errorf("run by alice fails with %v, want POLICY-ACCOUNT", f)
	}
	var events struct {
		Events []struct{ Principal string }
	}
	s.ok(&events, "events", "list", "--principal", "user:alice")
	if len(events.Events) != 5 { // list, get, submit, and of run: show and the call
		t.Errorf("the records have %d calls by alice, want 5", len(events.Events))
	}
}

// A call that needs consent by policy waits for it, runs once after the approval, and returns an error after a denial.
//
// proves HTC-07
// short: every call passes the gate
func TestConsent(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("domain/policies.yaml", "network: none", "network: none\nconsent: {tools: [probe_words], approval_expires_seconds: 600}")
	s.serve()
	word := func(w string) []string { return []string{"run", "probe.words", "--param", "word=" + w} }
	id := func(f failure) string { return regexp.MustCompile(`apr_[A-Z2-7]{26}`).FindString(f.Message) }
	asked := s.fails(4, word("one")...)
	if asked.Code != "consent_required" || asked.Kind != "policy" || id(asked) == "" {
		t.Fatalf("a run that needs consent fails with %v, want consent_required and the id of a request", asked)
	}
	var list struct {
		Approvals []struct {
			ID      string `json:"approval_id"`
			By      string `json:"principal_id"`
			Covers  gate.Coverage
			Payload json.RawMessage
			Status  string
		}
	}
	s.ok(&list, "approvals")
	if len(list.Approvals) != 1 || list.Approvals[0].ID != id(asked) || string(list.Approvals[0].Payload) == "" {
		t.Fatalf("approvals lists %+v, want the request %s with its payload", list.Approvals, id(asked))
	}
	if c := list.Approvals[0].Covers; !strings.HasPrefix(list.Approvals[0].By, "prn_") || c.Account != "research" || c.Partition == "" ||
		c.Site == "" || c.Image == "" || !strings.HasPrefix(c.ImageDigest, "sha256:") || c.ProjectID == "" || c.Resources == nil {
		t.Errorf("the request covers %+v, want the caller, account, partition, site, image and resources",
			list.Approvals[0])
	}
	var page runPage
	if s.ok(&page, "runs", "list"); len(page.Runs) != 0 {
		t.Errorf("without consent runs list shows %+v, want nothing", page.Runs)
	}
	s.ok(nil, "approve", id(asked), "--reason", "fine")
	var done submitted
	s.ok(&done, word("one")...)
	s.ends(done.RunID, "succeeded")
	if f := s.fails(4, word("two")...); f.Code != "consent_required" {
		t.Errorf("another run that needs consent fails with %v, want consent_required", f)
	} else {
		s.ok(nil, "deny", id(f), "--reason", "not today")
		if f := s.fails(4, word("two")...); f.Code != "consent_denied" || !strings.Contains(f.Message, "not today") {
			t.Errorf("after a denial the run fails with %v, want consent_denied and the reason", f)
		}
		s.fails(5, "approve", id(f))
	}
	s.fails(3, "approve", "apr_"+strings.Repeat("A", 26))
}

// What a dry run shows is what the call then does, byte for byte; and it leaves nothing behind.
//
// short: every call passes the gate
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	s.ok(nil, "runs", "list")
	state := func() string {
		return shell(t, "root", `cd "$1" && find . -type f ! -name 'ledger.db*' ! -name '*.waiting' -printf '%p %s %T@\n' | sort; ls -A "$2" 2>/dev/null`,
			"/home/lab/"+strings.TrimPrefix(s.dir, "/shared/"), s.dir+"/runs")
	}
	var before, after runPage
	files := state()
	type shown struct {
		DryRun bool `json:"dry_run"`
		Would  struct {
			RunID  string `json:"run_id"`
			Exists bool
			Script string
			Params json.RawMessage
		}
	}
	for _, args := range [][]string{{"run", "probe.words", "--param", "word=dry"}, {"submit", s.plan(probePlan("nothing"))}} {
		var d, again shown
		s.ok(&before, "runs", "list")
		s.ok(&d, append(args, "--dry-run")...)
		if s.ok(&after, "runs", "list"); len(after.Runs) != len(before.Runs) || !d.DryRun || d.Would.Exists ||
			!strings.HasPrefix(d.Would.Script, "#!/bin/bash") {
			t.Errorf("a dry run of %v answers %+v, with %d runs in the list, want a script, and %d runs", args, d,
				len(after.Runs), len(before.Runs))
		}
		if now := state(); now != files {
			t.Errorf("%v left files:\n%s\nbefore:\n%s", args, now, files)
		}
		var real submitted
		s.ok(&real, args...)
		if real.RunID != d.Would.RunID || real.Replayed {
			t.Errorf("%v makes %v, want the run %s that its dry run showed", args, real, d.Would.RunID)
		}
		s.wait(real.RunID)
		script := value(os.ReadFile(host(s.story(real.RunID).Workspace) + "/a1/ctl/script"))(t)
		token := regexp.MustCompile(`[0-9a-f]{32}`).FindString(s.token(real.RunID))
		name := regexp.MustCompile(`(-a1-)[0-9a-f]{12}`)
		if got := name.ReplaceAllString(strings.ReplaceAll(string(script), token, strings.Repeat("0", 32)),
			"${1}000000000000"); got != d.Would.Script {
			t.Errorf("%v: the script is\n%s\nand was shown as\n%s", args, got, d.Would.Script)
		}
		if s.ok(&again, append(args, "--dry-run")...); !again.Would.Exists {
			t.Errorf("a dry run of %v, whose run exists, answers %+v, want that it exists", args, again.Would)
		}
		files = state()
	}
	for _, args := range [][]string{{"submit", s.plan(s.set(probePlan("nothing"), "placement.partition", "nowhere")), "--dry-run"}} {
		s.refused(4, "POLICY-PARTITION", args...)
	}
}

// token reads the submission token of a run's first attempt.
func (s *site) token(runID string) string {
	s.t.Helper()
	data := value(os.ReadFile(host(s.story(runID).Workspace) + "/a1/ctl/token"))(s.t)
	return string(data)
}

// Fifty secrets, through every face – the command line, the port, a chat –: as parameters, labels, reasons, texts, words of a query, and
// files' content shown by previews. None is found in the ledger, in an answer, in a job script or in the gateway's log.
//
// proves HTC-09
// short: every call passes the gate
func TestPlantedSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	p := s.openPort(t)
	d, c := p.by, s.chat(t, "")
	r := s.submit(probePlan("nothing"))
	s.wait(r.RunID)
	s.file("x", "x")
	var said strings.Builder
	for i, secret := range conformance.Secrets() {
		text := strings.ReplaceAll(secret.Text, "\n", " ")
		lines := [][]string{{"run", "probe.words", "--param", "word=" + text}, {"cancel", r.RunID, "--reason", text}, {"artifact", "import",
			s.dir + "/files/x", "--label", text}, {"runs", "list", "--tool", text}}
		args := lines[i%len(lines)]
		res := s.cli(append(args, "--json")...)
		said.Write(res.stdout)
		said.Write(res.stderr)
		if f := res.failure(t, 2); f.Code != "secret_in_args" && f.Code != "usage" { // a text that begins with dashes is no option's value
			t.Errorf("a call with a %s in it fails with %v, want secret_in_args", secret.Kind, f)
		}
		quoted := value(json.Marshal(text))(t)
		for _, call := range [][3]string{{"POST", "/v1/tools/probe.words:run", `{"input":{"word":` + string(quoted) + `}}`},
			{"GET", "/v1/runs?tool_id=" + url.QueryEscape(text), ""},
			{"POST", "/v1/artifacts?label=" + url.QueryEscape(text), "x"}} {
			status, body := p.send(call[0], call[1], call[2])
			said.Write(body)
			if status != 400 {
				t.Errorf("a call of %s with a %s in it answers %d %s, want 400", call[1][:12], secret.Kind, status,
					body)
			}
		}
		for tool, args := range map[string]tree{"slurm_job_cancel": {"run_id": r.RunID, "reason": text}, "artifact_import": {"text": text},
			"probe_words": {"word": text}} {
			answer := c.say(tool, args, nil)
			said.WriteString(answer)
			if !strings.HasPrefix(answer, "error: ") {
				t.Errorf("a chat's %s with a %s in it returned %s, want an error", tool, secret.Kind, answer)
			}
		}
	}
	// A file with secrets is the caller's own; what a preview shows of it has none.
	var all strings.Builder
	for _, secret := range conformance.Secrets() {
		all.WriteString(secret.Text + "\n")
	}
	a := s.import1(s.file("secrets.txt", all.String()))
	res := s.cli("artifact", "preview", a.ArtifactID, "--lines", "200", "--json")
	said.Write(res.stdout)
	if !strings.Contains(string(res.stdout), "[redacted]") {
		t.Errorf("preview of a file with secrets: %v, want them redacted", res)
	}
	shown := c.say("artifact_preview_text", tree{"artifact_id": a.ArtifactID}, nil)
	status, body := p.send("GET", "/v1/artifacts/"+a.ArtifactID+"/preview", "")
	said.WriteString(shown + string(body))
	if !strings.Contains(shown, "redacted") || status != 200 || !strings.Contains(string(body), "redacted") {
		t.Errorf("the file with secrets is shown in a chat as %s and over HTTP as %d %s, want them redacted", shown,
			status, body)
	}
	d.signal("TERM")
	<-d.done
	d.done <- nil
	said.WriteString(d.text.String())
	var cores []string
	for _, secret := range conformance.Secrets() {
		cores = append(cores, secret.Core)
		if strings.Contains(said.String(), secret.Core) {
			t.Errorf("the %s was said", secret.Kind)
		}
	}
	must(t, os.Remove(host(s.dir)+"/files/secrets.txt"))
	list := host(s.dir) + "/cores"
	must(t, os.WriteFile(list, []byte(strings.Join(cores, "\n")+"\n"), 0o644))
	// Everywhere but in the object of the imported file itself.
	if out := shell(t, "root", `grep -rlaF -f "$1" "$2" "$3" | grep -v -e /cores$ -e "/$4" || true`, s.dir+"/cores", s.dir,
		"/home/lab/"+strings.TrimPrefix(s.dir, "/shared/"), a.SHA256); out != "" {
		t.Errorf("secrets are in %s", out)
	}
}

// Every call is in the record, and the record verifies; a changed ledger does not.
//
// proves HTC-08
// short: every call passes the gate
func TestEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	r := s.submit(probePlan("write", "out/result", "x"))
	s.wait(r.RunID)
	s.fails(3, "get", "run_"+strings.Repeat("0", 26))
	s.fails(5, "retry", r.RunID, "--idempotency-key", "once")
	var list struct {
		Events []struct {
			Chain     string
			Principal string
			Event     struct {
				ToolCallID string `json:"tool_call_id"`
				ToolID     string `json:"tool_id"`
				OK         bool
				Error      *struct{ Code string }
			}
		}
	}
	s.ok(&list, "events", "list", "--limit", "200")
	seen := map[string]int{}
	for _, e := range list.Events {
		key := e.Chain + " " + e.Event.ToolID
		if e.Event.Error != nil {
			key += " " + e.Event.Error.Code
		}
		seen[key]++
		if e.Principal != "user:lab" {
			t.Errorf("the records name %s as the caller of %s, want user:lab", e.Principal, e.Event.ToolID)
		}
	}
	for _, want := range []string{"effects slurm.submit", "refused slurm.job.get run_not_found", "effects slurm.job.retry run_succeeded",
		"looks run.show"} {
		if seen[want] != 1 {
			t.Errorf("%q is recorded %d times: %v", want, seen[want], seen)
		}
	}
	var story struct {
		Payloads []struct{ Kind string }
	}
	s.ok(&story, "events", "show", list.Events[0].Event.ToolCallID)
	if len(story.Payloads) != 2 && len(story.Payloads) != 1 {
		t.Errorf("events show has the payloads %+v, want one or two", story.Payloads)
	}
	var v struct {
		OK    bool
		Calls []struct{ Kept int }
	}
	if s.ok(&v, "events", "verify"); !v.OK || len(v.Calls) != 3 || v.Calls[0].Kept != 2 {
		t.Errorf("events verify returned %+v, want three whole chains, two effects in the first", v)
	}
}

// The scripts of completion ask the program; bash has it for good.
func TestCompletion(t *testing.T) {
	t.Parallel()
	bash := func(words string) string {
		return shell(t, "lab", `PATH=`+world.dir+`:$PATH; source <(slurmgate completion bash); compopt() { :; }; COMP_WORDS=(slurmgate `+words+
			`); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _slurmgate; echo "${COMPREPLY[*]}"`)
	}
	for words, want := range map[string]string{"ru": "run runs", "runs ''": "diff list show", "runs list --sta": "--state",
		"runs list --state bl": "blocked", "token cre": "create", "completion ''": "bash zsh fish", "nosuch ''": ""} {
		got := strings.Fields(bash(words))
		for _, w := range strings.Fields(want) {
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+w+" ") {
				t.Errorf("%s: %v, want %s", words, got, want)
			}
		}
	}
	for _, sh := range []string{"bash", "zsh", "fish"} {
		out, err := exec.Command(host(world.dir)+"/slurmgate", "completion", sh).Output()
		if err != nil || !bytes.Contains(out, []byte("complete-words")) {
			t.Errorf("completion %s prints %s (%v), want a script that asks the program", sh, out, err)
		}
	}
}
