package e2e

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"
)

// denied holds an answer to being a refusal that names no byte of a secret, and gives its code.
func (r result) denied(t testing.TB, secret string) string {
	t.Helper()
	if r.code == 0 || strings.Contains(string(r.stdout)+string(r.stderr), secret) {
		t.Fatalf("it was carried out, or shows what it may not: %v", r)
	}
	var e struct{ Error *failure }
	r.object(t, &e)
	if e.Error == nil || e.Error.Code == "" {
		t.Fatalf("no error: %v", r)
	}
	return e.Error.Code
}

// recorded counts the calls of a tool by a user that the records have with an error of this code; all of them for "".
func (s *site) recorded(user, tool, code string) (n int) {
	s.t.Helper()
	var list struct{ Events []struct{ Count int } }
	args := []string{"events", "--tool", tool, "--principal", "user:" + user, "--limit", "200"}
	if code != "" {
		args = append(args, "--outcome", code)
	}
	s.ok(&list, args...)
	for _, e := range list.Events {
		n += e.Count
	}
	return n
}

// reads gives a plan an artifact as its input.
func reads(doc tree, a artifactRow) tree {
	doc["io"].(tree)["inputs"] = []any{tree{"role": "table", "artifact_id": a.ArtifactID, "checksum_sha256": a.SHA256,
		"dest_relpath": "in/input.txt"}}
	return doc
}

// alice against bob, who shares a project with her, on one gateway: she reads, cancels, retries, collects, adopts and ends nothing of
// his, by whatever id, name, link, key or file; nor does she get his run in place of one of her own, or have a job charged to him. Each
// try is in the records.
//
// proves SITE-08
func TestAliceAgainstBob(t *testing.T) {
	t.Parallel()
	const secret = "bob's secret"
	s, _ := callerSite(t, func(doc tree) {
		peer := func(user string, projects ...any) tree {
			return tree{"user": user, "capabilities": []any{"gateway", "read", "import", "slurm"}, "projects": projects}
		}
		doc["access"] = tree{"peers": []any{peer("alice", "demo", "hers"), peer("bob", "demo", "his")}}
		doc["import"] = tree{"local": "own"}
	})
	s.serve()
	as := func(user string, args ...string) result { return s.user(user, nil, args...) }

	// His file, under its name and behind links of hers.
	file := s.fileOf("bob", "secret.txt", secret)
	link := strings.Replace(path.Dir(file), "/home/bob", "/home/alice", 1)
	shell(t, "alice", `mkdir -p "$1" && ln -sf "$2" "$1/secret.txt" && ln -sfn "${2%/*}" "$1/folder"`, link, file)
	t.Cleanup(func() { shell(t, "root", `rm -rf "$1"`, link) })
	for _, name := range []string{file, link + "/secret.txt", link + "/folder/secret.txt",
		link + "/../../bob/" + path.Base(link) + "/secret.txt"} {
		as("alice", "artifact", "import", name).denied(t, secret)
	}
	var own artifactRow
	if r := as("bob", "artifact", "import", file, "--project", "his"); r.code != 0 {
		t.Fatal("bob cannot import his own file", r)
	} else {
		r.object(t, &own)
	}
	for _, args := range [][]string{{"artifact", "get", own.ArtifactID}, {"artifact", "get", own.ArtifactID, "--output", "-"},
		{"artifact", "preview", own.ArtifactID}} {
		as("alice", args...).denied(t, secret)
	}
	as("alice", "submit", s.plan(reads(probePlan("report", "out/result"), own))).denied(t, secret)

	// The same plan is a run of each, and each is charged for his own.
	both := s.plan(probePlan("write", "out/result", "the same for both"))
	submit := func(user string, args ...string) (a submitted) {
		t.Helper()
		r := as(user, append([]string{"submit"}, args...)...)
		r.object(t, &a)
		if a.RunID == "" {
			t.Fatal(r)
		}
		return a
	}
	hers, his := submit("alice", both), submit("bob", both)
	keyed := submit("bob", s.plan(probePlan("write", "out/result", "bob's key")), "--idempotency-key", "a-key-of-bobs")
	stolen := as("alice", "submit", s.plan(probePlan("write", "out/result", "bob's key")), "--idempotency-key", "a-key-of-bobs")
	if strings.Contains(string(stolen.stdout), keyed.RunID) {
		t.Errorf("alice got bob's run by his key: %v", stolen)
	}
	if hers.RunID == his.RunID || his.Replayed {
		t.Errorf("bob was answered with alice's run: %+v", his)
	}

	// His running job, and what she may do to it.
	lasting := func(seconds string) string {
		return s.plan(s.set(probePlan("sleep", seconds), "resources.time_limit_seconds", 900))
	}
	long := submit("bob", lasting("600"))
	private := submit("bob", lasting("601"), "--project", "his")
	for _, id := range []string{long.RunID, private.RunID} {
		until(t, patience, "job of "+id, func() bool { return s.story(id).SlurmState == "RUNNING" })
	}
	tries := map[string][]string{"slurm.job.cancel": {"cancel", long.RunID}, "slurm.job.retry": {"retry", long.RunID},
		"slurm.job.recollect": {"recollect", long.RunID},
		"slurm.job.absent":    {"declare-absent", long.RunID}, "slurm.job.adopt": {"adopt", long.RunID, s.story(long.RunID).SlurmJobID},
		"slurm.job.logs": {"logs", long.RunID}}
	for tool, args := range tries {
		code := as("alice", args...).denied(t, secret)
		if n := s.recorded("alice", tool, code); n != 1 {
			t.Errorf("the records have %d calls of %s with %s by alice", n, tool, code)
		}
	}
	for _, verb := range []string{"get", "cancel", "retry", "collect", "logs"} {
		if code := as("alice", verb, private.RunID).denied(t, secret); code != "run_not_found" {
			t.Errorf("%s of a run in bob's project: %s", verb, code)
		}
	}
	// A job under the name of his run, and one under the name of hers.
	named := func(user, name string) string {
		return shell(t, user, `sbatch --parsable -J "$1" -A research -p main -t 1 -o /dev/null --wrap "sleep 20"`, name)
	}
	forged := named("alice", s.story(long.RunID).JobName)
	mine := submit("alice", lasting("602"))
	until(t, patience, "job of "+mine.RunID, func() bool { return s.story(mine.RunID).SlurmState == "RUNNING" })
	strange := named("bob", s.story(mine.RunID).JobName)
	// Her own files say that his job is hers.
	target := s.story(long.RunID)
	shell(t, "alice", `printf '%s\n' "$2" >"$1/a1/ctl/send.1.out"; rm -f "$1/a1/ctl/claim"; sed "s/job=[0-9]*/job=$2/" >"$1/a1/ctl/claim" <<<"slurmgate-claim 1 job=7 task=- restart=0 token=$(cat "$1/a1/ctl/token") node=n1"`,
		s.callerRuns("alice")+"/"+mine.RunID, target.SlurmJobID)
	if r := as("alice", "cancel", mine.RunID); r.code != 0 {
		t.Error(r)
	}
	if l := s.wait(mine.RunID); l.State != "cancelled" && l.State != "failed" {
		t.Errorf("%+v", l)
	}
	if got := s.story(long.RunID); got.SlurmJobID != target.SlurmJobID || got.SlurmState != "RUNNING" {
		t.Errorf("bob's run after all that: %+v", got)
	}
	state := func(job string) string { return shell(t, "root", `squeue -h -t all -o "%u %T" -j "$1"`, job) }
	for job, want := range map[string]string{target.SlurmJobID: "bob RUNNING", strange: "bob RUNNING", forged: "alice RUNNING"} {
		if got := state(job); got != want && !(job != target.SlurmJobID && strings.HasSuffix(got, "COMPLETED")) {
			t.Errorf("job %s is %q, want %q", job, got, want)
		}
	}
	for user, id := range map[string]string{"alice": hers.RunID, "bob": his.RunID} {
		if l := s.wait(id); l.State != "succeeded" {
			t.Errorf("%s: %+v %s", user, l, l.why())
		}
		if who, account := s.jobUser(id); who != user || account != "research" {
			t.Errorf("the job of %s's run is %s's and charges %s", user, who, account)
		}
		if got := shell(t, "root", `stat -c "%U %a" "$1"`, s.callerRuns(user)); got != user+" 700" {
			t.Errorf("%s's runs_dir is %s", user, got)
		}
	}
	// A folder of hers that leads into his.
	shell(t, "alice", `mv "$1" "$1.old" && ln -s "$2" "$1"`, s.callerRuns("alice"), s.callerRuns("bob"))
	before := shell(t, "root", `find "$1" | sort | sha256sum`, s.callerRuns("bob"))
	led := submit("alice", s.plan(probePlan("write", "out/result", "into bob's folder")))
	var l looked
	until(t, patience, "word about "+led.RunID, func() bool {
		l = looked{}
		as("alice", "get", led.RunID).object(t, &l)
		return l.why() != ""
	})
	if after := shell(t, "root", `find "$1" | sort | sha256sum`, s.callerRuns("bob")); after != before {
		t.Errorf("bob's folder has changed; alice's run is %+v %s", l, l.why())
	}
	for _, id := range []string{long.RunID, private.RunID} {
		if r := as("bob", "cancel", id); r.code != 0 {
			t.Error(r)
		}
	}
	if n := s.recorded("alice", "artifact.import", ""); n != 0 {
		t.Errorf("alice, whose shell can open none of it, has %d imports", n)
	}
	s.ok(nil, "events", "verify")
}

// A user against the service: rc files that print, hang or never stop printing, a quota that is full, a thousand jobs that are named
// like the gateway's, the signer asked directly. Only that user's runs wait, and say why; another's go on.
//
// proves SITE-08
func TestUserAgainstTheService(t *testing.T) {
	t.Parallel()
	s, sign := callerSite(t, func(doc tree) {
		doc["slurm"].(tree)["caller"].(tree)["idle_seconds"] = 5
	})
	mallory, good := newUser(t), newUser(t)
	edit := `access:
    peers:
`
	for _, user := range []string{mallory, good, "tight"} {
		edit += fmt.Sprintf("        - {user: %s, capabilities: [gateway, read, import, slurm], projects: [demo]}\n", user)
	}
	s.replace("site.yaml", "access:\n    peers:\n", edit)
	s.serve()
	fillTight(t)
	var full looked
	noRoom := s.submitAs("tight", probePlan("write", "out/result", "no room"))

	if out := shell(t, mallory, `perl -MIO::Socket::UNIX -e '$SIG{PIPE} = "IGNORE"; $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 0; print $s "$ARGV[1]\n"; print <$s>' "$1" "$2"`,
		sign.socket, `{"user":"`+good+`","public_key":"ssh-ed25519 AAAA","run_id":"","caller":"","gateway":"","source_addresses":["127.0.0.1"],"minutes":5}`); strings.Contains(out, "cert-v01") {
		t.Errorf("the signer answers a user: %s", out)
	}
	first := s.submitAs(mallory, s.set(probePlan("sleep", "600"), "resources.time_limit_seconds", 900))
	until(t, patience, "job of "+first.RunID, func() bool { return s.story(first.RunID).SlurmState == "RUNNING" })
	shell(t, mallory, `sbatch --array=1-1000 --hold -J "$1" -A research -p main -t 1 -o /dev/null --wrap true`, s.story(first.RunID).JobName)

	for name, rc := range map[string]string{"hangs": "sleep 3600", "floods": "yes 4711",
		"forges": `echo 4711; echo "slurmgate-claim 1 job=1"; sbatch() { echo 1; }; export -f sbatch; PATH=/tmp:$PATH`} {
		shell(t, mallory, `printf '%s\n' "$1" >~/.bashrc`, rc)
		shell(t, "root", `pkill -KILL -u "$1" -f '^sshd' || :`, mallory) // his connections, and no other test's
		bad := s.submitAs(mallory, probePlan("write", "out/result", "of mallory, "+name))
		began := time.Now()
		fine := s.submitAs(good, probePlan("write", "out/result", "of another user, "+name))
		if l := s.wait(fine.RunID); l.State != "succeeded" {
			t.Errorf("with shells of another user that are those of %q: %+v %s", name, l, l.why())
		}
		if user, _ := s.jobUser(fine.RunID); user != good {
			t.Errorf("its job is %s's", user)
		}
		t.Logf("context: %s: another user's run took %s", name, time.Since(began).Round(time.Second))
		shell(t, mallory, `printf '' >~/.bashrc`)
		if name != "forges" {
			s.user(mallory, nil, "cancel", bad.RunID)
			continue
		}
		if l := s.wait(bad.RunID); l.State != "succeeded" {
			t.Errorf("%s: %+v %s", name, l, l.why())
		}
		if user, _ := s.jobUser(bad.RunID); user != mallory {
			t.Errorf("%s: the job is %s's", name, user)
		}
	}
	// What he does under the name of his own run leaves the run alone.
	if got := s.story(first.RunID); got.State != "running" ||
		shell(t, "root", `squeue -h -o "%u %T" -j "$1"`, got.SlurmJobID) != mallory+" RUNNING" {
		t.Errorf("%+v", got)
	}
	s.user("tight", nil, "get", noRoom.RunID).object(t, &full)
	if !strings.Contains(full.why(), "No space left") && !strings.Contains(full.why(), "full") && !strings.Contains(full.why(), "quota") {
		t.Errorf("a full quota: %+v %s", full, full.why())
	}
	shell(t, "root", "devd user tight room")
	if l := s.wait(noRoom.RunID); l.State != "succeeded" {
		t.Errorf("%+v %s", l, l.why())
	}
	shell(t, mallory, `scancel --name="$1" || true`, s.story(first.RunID).JobName)
}
