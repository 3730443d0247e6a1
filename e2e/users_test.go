package e2e

import (
	"strings"
	"testing"
)

// The tests of run_as: caller build on this: certificates of the authority are accepted for the group callers, on port 22 and on the
// port of their own. They are not enough where a second factor is asked for. A system user, root and the service get in nowhere.
//
// proves SITE-08
func TestUsersOfCluster(t *testing.T) {
	t.Parallel()
	info := callersOf(t)
	name := newUser(t)
	dir := "/tmp/users-" + name
	// The test signs as root of the cluster, who can read the signer's key.
	shell(t, "root", `umask 077; mkdir "$1"; cp "$2" "$1/ca"; ssh-keygen -q -t ed25519 -N "" -f "$1/id"`, dir, info.Signer.CAKey)
	t.Cleanup(func() { shell(t, "root", `rm -rf "$1"`, dir) })
	login := func(user, port string) string {
		t.Helper()
		return shell(t, "root", `cd "$1"
			ssh-keygen -q -s ca -I test -n "$2" -V -1m:+5m -O clear -O source-address=127.0.0.1/32 id.pub
			ssh -F none -p "$3" -i id -o IdentitiesOnly=yes -o BatchMode=yes -o "UserKnownHostsFile=$4" -l "$2" 127.0.0.1 'id -un' 2>&1 </dev/null |
				tail -n 1`, dir, user, port, info.KnownHosts)
	}
	for _, user := range []string{name, "alice", "alice@lab.example", "x1", "carol"} {
		for _, port := range []string{"22", "2022"} {
			if got := login(user, port); got != user {
				t.Errorf("%s at port %s: %s", user, port, got)
			}
		}
		if got := login(user, "2222"); !strings.Contains(got, "denied (keyboard-interactive)") {
			t.Errorf("%s without a second factor: %s", user, got)
		}
	}
	for _, user := range []string{"root", "sysuser", "lab"} {
		for _, port := range []string{"22", "2022", "2222"} {
			if got := login(user, port); got == user || !strings.Contains(got, "denied") {
				t.Errorf("%s at port %s: %s", user, port, got)
			}
		}
	}
	// PAM lets a locked account in by certificate; only sshd without PAM refuses it.
	for verb, want := range map[string][2]string{"lock": {"denied", name}, "expire": {"denied", "closed"},
		"nologin": {"not available", "not available"}, "remove": {"denied", "denied"}, "sudo": {name, name}} {
		shell(t, "root", `devd user "$1" "$2"`, name, verb)
		for i, port := range []string{"22", "2022"} {
			if got := login(name, port); !strings.Contains(strings.ReplaceAll(got, name+"@", ""), want[i]) {
				t.Errorf("%s at port %s after %s: %s", name, port, verb, got)
			}
		}
		shell(t, "root", `devd user "$1" restore`, name)
		if got := login(name, "22"); got != name {
			t.Errorf("%s after %s was undone: %s", name, verb, got)
		}
	}
	if got := shell(t, name, "srun --quiet id -un"); got != name {
		t.Errorf("a job of %s's ran as %s", name, got)
	}
}

// PrivateData hides other users' jobs, and answers with a clean, empty list.
func TestPrivateDataOfCluster(t *testing.T) {
	id := shell(t, "alice", `sbatch --parsable -D /tmp -o /dev/null --hold --wrap true`)
	t.Cleanup(func() {
		shell(t, "root", `devd set slurm.conf PrivateData; devd set slurmdbd.conf PrivateData; scancel "$1"`, id)
	})
	sees := func() string {
		return shell(t, "bob", `squeue -h -o %i -j "$1" 2>/dev/null || true; sacct -a -X -n -P -o jobid -j "$1"`, id)
	}
	until(t, 60e9, "record of the job", func() bool { return sees() == id+"\n"+id })
	shell(t, "root", "devd set slurm.conf PrivateData=jobs")
	if got := sees(); got != id {
		t.Errorf("of slurmctld's private jobs bob sees %q", got)
	}
	shell(t, "root", "devd set slurmdbd.conf PrivateData=jobs")
	if got := sees(); got != "" {
		t.Errorf("of all private jobs bob sees %q", got)
	}
	s, _ := callerSite(t)
	allJobs := func() (status, found string) {
		var e examined
		s.cli("doctor", "--no-jobs", "--json").object(t, &e)
		status, found, _ = e.find("all_jobs")
		return status, found
	}
	if status, found := allJobs(); status != "fault" || !strings.Contains(found, "PrivateData") {
		t.Errorf("all_jobs is %s: %s", status, found)
	}
	shell(t, "root", "devd set slurm.conf PrivateData; devd set slurmdbd.conf PrivateData")
	if status, found := allJobs(); status != "ok" {
		t.Errorf("all_jobs is %s: %s", status, found)
	}
}
