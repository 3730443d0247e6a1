package e2e

import (
	"strings"
	"testing"
)

// callerFault is a fault planted on a site with run_as: caller, and the finding that doctor must report.
type callerFault struct {
	name, user          string // user is the user whose folder doctor checks; empty: none
	code, status, words string
	edit                func(doc tree)
	plant               func(t *testing.T, s *site, sign *signerProcess)
}

func (x callerFault) test(t *testing.T) {
	t.Parallel()
	var edits []func(tree)
	if x.edit != nil {
		edits = append(edits, x.edit)
	}
	s, sign := callerSite(t, edits...)
	if x.plant != nil {
		x.plant(t, s, sign)
	}
	args := []string{"doctor", "--no-jobs", "--json"}
	if x.user != "" {
		args = append(args, "--user", x.user)
	}
	var e examined
	r := s.cli(args...)
	r.object(t, &e)
	status, found, remedy := e.find(x.code)
	if status != x.status || !strings.Contains(found, x.words) || remedy == "" {
		t.Errorf("%s is %q: %q, next %q\n%s", x.code, status, found, remedy, r)
	}
}

// doctor of a site with run_as: caller names faults of the signer, the login, the user and the user's folder, each in
// its own check.
//
// proves OPS-02
func TestDoctorAsCaller(t *testing.T) {
	t.Parallel()
	caller := func(doc tree) tree { return doc["slurm"].(tree)["caller"].(tree) }
	port := func(name string) func(tree) {
		return func(doc tree) { caller(doc)["ssh"].(tree)["port"] = sshOf(t).Callers.Ports[name] }
	}
	of := func(verb string) string {
		name := newUser(t)
		shell(t, "root", `devd user "$1" "$2"`, name, verb)
		return name
	}
	root := func(line string, args ...string) func(*testing.T, *site, *signerProcess) {
		return func(t *testing.T, _ *site, _ *signerProcess) { shell(t, "root", line, args...) }
	}
	prints, unlisted := newUser(t), newUser(t)
	holdTight(t)
	fillTight(t)
	for _, x := range []callerFault{
		{"the signer is away", "", "signer", "fault", "does not answer", nil,
			func(_ *testing.T, _ *site, sign *signerProcess) { sign.stop("TERM") }},
		{"the socket is no socket", "", "signer", "fault", "is not a socket", func(doc tree) { caller(doc)["signer"] = "/etc/passwd" }, nil},
		{"the signer is the service", "", "signer", "fault", "belongs to lab", nil, func(t *testing.T, _ *site, sign *signerProcess) {
			shell(t, "root", `chown -h lab "$1"`, sign.socket)
		}},
		{"the signer does not know the service", "", "signer", "fault", "accepts no requests of user id", nil,
			func(_ *testing.T, _ *site, sign *signerProcess) {
				sign.stop("TERM")
				sign.write(sign.settings(tree{"gateway_users": []any{"bob"}}))
				sign.start()
			}},
		{"another source address", "", "signer", "fault", "has 127.0.0.1, for which the signer does not sign", nil,
			func(t *testing.T, s *site, sign *signerProcess) {
				sign.stop("TERM")
				sign.write(sign.settings(tree{"source_addresses": []any{"::1"}}))
				sign.start()
			}},
		{"certificates of more minutes", "", "signer", "warning", "at most 5", func(doc tree) { caller(doc)["certificate_minutes"] = 60 }, nil},
		{"a member of sudo", "carol", "user_rules", "fault", "the group sudo", nil, nil},
		{"a user removed", of("remove"), "user_rules", "fault", "no such user", nil, nil},
		{"a user of the site's own list", "bob", "user_rules", "fault", "refuse_users", func(doc tree) {
			caller(doc)["refuse_users"] = []any{"bob"}
		}, nil},
		{"the signer refuses", "alice", "user_certificate", "fault", "alice", nil, func(t *testing.T, _ *site, sign *signerProcess) {
			sign.stop("TERM")
			sign.write(sign.settings(tree{"users": []any{"bob"}}))
			sign.start()
		}},
		{"a second factor", "alice", "ssh_login", "fault", "does not let alice log in", port("mfa"), nil},
		{"no file of principals", unlisted, "ssh_login", "fault", "does not let", port("callers"),
			root(`rm "/etc/devcluster/ssh/principals/$1"`, unlisted)},
		{"a user whose time is over", of("expire"), "ssh_login", "fault", "does not let", nil, nil},
		{"an unknown host key", "alice", "ssh_host_key", "fault", "known_hosts", func(doc tree) {
			caller(doc)["ssh"].(tree)["known_hosts"] = []any{"/etc/devcluster/ssh/dtn_known_hosts"}
		}, root(`echo "other.example $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >/etc/devcluster/ssh/dtn_known_hosts`)},
		{"nobody listens", "alice", "ssh_connection", "fault", "refused", func(doc tree) { caller(doc)["ssh"].(tree)["port"] = 1 }, nil},
		{"start-up files that print", prints, "ssh_shell", "warning", "print text", nil, root(`sed -i '1i echo welcome' "/home/$1/.bashrc"`, prints)},
		{"no folder for the user", "alice", "user_folder", "fault", "there is no /shared/none/alice", func(doc tree) {
			doc["storage"].(tree)["runs_dir"] = "/shared/none/{user}/runs"
		}, nil},
		{"a full quota", "tight", "runs_dir_write", "fault", "No space left", nil, nil},
		{"images that users cannot read", "", "images_for_users", "fault", "mode 0700", func(doc tree) {
			doc["storage"].(tree)["image_store"] = "/home/lab/images"
		}, nil},
	} {
		t.Run(x.name, x.test)
	}
}

// doctor --user finds nothing wrong on a healthy site: it logs in as the user, and its probe jobs are the user's.
//
// proves OPS-02 SITE-08
func TestDoctorAsCallerAllIsWell(t *testing.T) {
	t.Parallel()
	s, sign := callerSite(t)
	user := newUser(t)
	r := s.cli("doctor", "--user", user, "--json")
	var e examined
	r.object(t, &e)
	e.healthy(t, []string{"fault", "unknown"}, []string{"accounts", "tool_jobs"},
		"signer", "images_for_users", "user_rules", "user_certificate", "all_jobs", "ssh_login", "ssh_shell",
		"user_folder",
		"runs_dir", "runs_dir_write", "runs_dir_links", "node_user", "node_images", "container")
	if _, found, _ := e.find("node_user"); !strings.Contains(found, user) {
		t.Errorf("the probe jobs ran as %q", found)
	}
	for _, c := range sign.certificates() {
		if c["principal"] != user {
			t.Errorf("certificate for another user: %v", c)
		}
	}
	if left := shell(t, "root", `find "$1" -maxdepth 1 -name '.doctor*'`, s.callerRuns(user)); left != "" {
		t.Errorf("doctor left %s", left)
	}
}
