package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// denied checks that an answer is a refusal that names no byte of a secret, and returns its code.
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

// reads makes an artifact the input of a plan.
func reads(doc tree, a artifactRow) tree {
	doc["io"].(tree)["inputs"] = []any{tree{"role": "table", "artifact_id": a.ArtifactID, "checksum_sha256": a.SHA256,
		"dest_relpath": "in/input.txt"}}
	return doc
}

// A user against the service: rc files that print, hang or never stop printing, a quota that is full, a thousand jobs
// that are named like the gateway's, direct requests to the signer. Only that user's runs wait, and report why;
// another's continue.
//
// proves SITE-08
func TestUserAgainstTheService(t *testing.T) {
	t.Parallel()
	holdTight(t)
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
	until(t, "job of "+first.RunID, func() bool { return s.story(first.RunID).SlurmState == "RUNNING" })
	shell(t, mallory, `sbatch --array=1-1000 --hold -J "$1" -A research -p main -t 1 -o /dev/null --wrap true`, s.story(first.RunID).JobName)

	for name, rc := range map[string]string{"hangs": "sleep 3600", "floods": "yes 4711",
		"forges": `echo 4711; echo "slurmgate-claim 1 job=1"; sbatch() { echo 1; }; export -f sbatch; PATH=/tmp:$PATH`} {
		shell(t, mallory, `printf '%s\n' "$1" >~/.bashrc`, rc)
		shell(t, "root", `pkill -KILL -u "$1" -f '^sshd' || :`, mallory) // mallory's connections, and no other test's
		bad := s.submitAs(mallory, probePlan("write", "out/result", "of mallory, "+name))
		began := time.Now()
		fine := s.submitAs(good, probePlan("write", "out/result", "of another user, "+name))
		s.ends(fine.RunID, "succeeded")
		if user, _ := s.jobUser(fine.RunID); user != good {
			t.Errorf("its job is %s's", user)
		}
		t.Logf("context: %s: another user's run took %s", name, time.Since(began).Round(time.Second))
		shell(t, mallory, `printf '' >~/.bashrc`)
		if name != "forges" {
			s.user(mallory, nil, "cancel", bad.RunID)
			continue
		}
		s.ends(bad.RunID, "succeeded")
		if user, _ := s.jobUser(bad.RunID); user != mallory {
			t.Errorf("%s: the job is %s's", name, user)
		}
	}
	// Jobs that mallory submits under the name of mallory's own run leave the run alone.
	if got := s.story(first.RunID); got.State != "running" ||
		shell(t, "root", `squeue -h -o "%u %T" -j "$1"`, got.SlurmJobID) != mallory+" RUNNING" {
		t.Errorf("after jobs under the name of the user's own run it is %+v, want it running", got)
	}
	s.user("tight", nil, "get", noRoom.RunID).object(t, &full)
	if !strings.Contains(full.why(), "No space left") && !strings.Contains(full.why(), "full") && !strings.Contains(full.why(), "quota") {
		t.Errorf("with a full quota %v, want a reason that names it", full)
	}
	shell(t, "root", "devd user tight room")
	s.ends(noRoom.RunID, "succeeded")
	shell(t, mallory, `scancel --name="$1" || true`, s.story(first.RunID).JobName)
}
