package site

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

// caller returns a site file with run_as: caller, further lines of slurm, and a folder for each user.
func caller(slurm, storage string) string {
	text := strings.Replace(least, "slurm:\n", "slurm:\n  run_as: caller\n"+slurm, 1)
	text = strings.Replace(text, "storage:\n", "storage:\n"+storage, 1)
	return strings.Replace(text, "/shared/runs", "/shared/{user}/slurmgate", 1)
}

// Omitted settings of slurm.caller have defaults; the host is the login node, or this machine.
//
// proves SITE-08
func TestCallerDefaults(t *testing.T) {
	here := Caller{SSH: CallerSSH{Host: "127.0.0.1", Port: 22}, Signer: "/run/slurmgate-signer/signer.sock", CertificateMinutes: 5,
		SourceAddresses: []string{"127.0.0.1", "::1"}, Connections: 32, IdleSeconds: 60, MinUID: 1000, MaxUID: 59999,
		RefuseGroups: []string{"sudo", "wheel", "admin", "root", "adm", "docker", "lxd", "libvirt", "disk", "shadow"}}
	there := here
	there.SSH = CallerSSH{"login.example", 22, []string{"/kh"}, []Endpoint{{"gate.example", 2222, "me", []string{"/kh"}, "/k", "", ""},
		{"inner", 22, "svc", []string{"/kh"}, "/k", "", ""}}}
	there.SourceAddresses = []string{"10.1.2.3"}
	own := here
	own.SSH, own.SourceAddresses = CallerSSH{"users.example", 22, []string{"/kh"}, nil}, []string{"10.1.2.0/24"}
	own.RefuseGroups, own.RefuseUsers, own.Signer, own.CertificateMinutes = nil, []string{"eve"}, "/run/s.sock", 1
	own.Connections, own.IdleSeconds, own.MinUID, own.MaxUID = 2, 5, 500, 70000
	const ssh = "  transport: ssh\n"
	for name, x := range map[string]struct {
		slurm, storage string
		want           Caller
		login          string
	}{
		"this machine": {"", "", here, "/shared/alice/slurmgate"},
		"the login node": {ssh + login + "  caller: {source_addresses: [10.1.2.3]}\n",
			"  transport: sftp\n  login: {runs_dir: \"/gpfs/{user}/sg\"}\n", there, "/gpfs/alice/sg"},
		"all of its own": {ssh + login + "  caller: {ssh: {host: users.example}, signer: /run/s.sock, certificate_minutes: 1, " +
			"source_addresses: [10.1.2.0/24], connections: 2, idle_seconds: 5, min_uid: 500, max_uid: 70000, refuse_users: [eve], " +
			"refuse_groups: []}\n", "", own, "/shared/alice/slurmgate"},
	} {
		s := parse(t, caller(x.slurm, x.storage))
		if diff := cmp.Diff(&x.want, s.Slurm.Caller, ignorePrivate); diff != "" || !s.AsCaller() {
			t.Errorf("%s: %s", name, diff)
		}
		if jobs, at, err := s.UserFolders("alice"); jobs != "/shared/alice/slurmgate" || at != x.login || err != nil {
			t.Errorf("%s: %s %s %v", name, jobs, at, err)
		}
		wantReadBack(t, name, s)
		local := s.LocalSite()
		if local.AsCaller() || local.Slurm.Caller != nil || local.Storage.RunsDir != "/var/lib/sg/local-runs" {
			t.Errorf("%s: processes of this host are the gateway's: %+v", name, local.Storage)
		}
		if weak := len(s.Notes()) > 0; weak != (name == "all of its own") {
			t.Errorf("%s: %v", name, s.Notes())
		}
	}
}

// The refused settings of run_as, each with its line.
func TestCallerRefused(t *testing.T) {
	self := strings.Replace(least, "slurm:\n", "slurm:\n  run_as: self\n", 1)
	in := func(text string) string { return caller("  caller: {"+text+"}\n", "") }
	for name, x := range map[string]struct{ text, want string }{
		"unknown": {strings.Replace(self, "self", "alice", 1), "7 SITE-VALUE slurm.run_as"},
		"caller with self": {strings.Replace(self, "run_as: self\n", "caller: {connections: 3}\n", 1),
			"7 SITE-RUN-AS slurm.caller"},
		"{user} with self": {strings.Replace(self, "/shared/runs", "/shared/{user}", 1), "11 SITE-RUN-AS storage.runs_dir"},
		"no {user}":        {strings.Replace(caller("", ""), "{user}", "all", 1), "11 SITE-RUN-AS storage.runs_dir"},
		"{user} twice":     {strings.Replace(caller("", ""), "{user}", "{user}/{user}", 1), "11 SITE-RUN-AS storage.runs_dir"},
		"part of a name":   {strings.Replace(caller("", ""), "{user}", "u-{user}", 1), "11 SITE-RUN-AS storage.runs_dir"},
		"an odd path":      {strings.Replace(caller("", ""), "{user}/", "{user}/a:b/", 1), "11 SITE-PATH storage.runs_dir"},
		"login without {user}": {caller("  transport: ssh\n"+login+"  caller: {source_addresses: [10.0.0.1]}\n",
			"  login: {runs_dir: /gpfs/sg}\n"), "14 SITE-RUN-AS storage.login.runs_dir"},
		"sftp.runs_dir": {caller("  transport: ssh\n"+login+"  caller: {source_addresses: [10.0.0.1]}\n",
			"  transport: sftp\n  sftp: {runs_dir: /data/runs}\n"), "15 SITE-RUN-AS storage.sftp.runs_dir"},
		"rest": {caller("  transport: rest\n  rest: {url: \"unix:/run/r.sock\"}\n", ""), "7 SITE-RUN-AS slurm.run_as"},
		"a key": {in("ssh: {host: h, key: /k}, source_addresses: [10.0.0.1]"),
			"8 SITE-UNKNOWN-FIELD slurm.caller.ssh.key"},
		"a user":              {in("ssh: {host: me@h}, source_addresses: [10.0.0.1]"), "8 SITE-HOST slurm.caller.ssh.host"},
		"no source addresses": {in("ssh: {host: h}"), "8 SITE-MISSING slurm.caller.source_addresses"},
		"an empty list":       {in("source_addresses: []"), "8 SITE-MISSING slurm.caller.source_addresses"},
		"everywhere": {in("source_addresses: [0.0.0.0/0, x, 10.0.0.1]"), "8 SITE-ADDRESS slurm.caller.source_addresses[0], " +
			"8 SITE-ADDRESS slurm.caller.source_addresses[1], 8 SITE-ADDRESS slurm.caller.source_addresses[2]"},
		"bounds": {in("certificate_minutes: 61, connections: 0, idle_seconds: 4, min_uid: 0, max_uid: 4294967295, signer: s"),
			"8 SITE-RANGE slurm.caller.certificate_minutes, 8 SITE-RANGE slurm.caller.connections, " +
				"8 SITE-RANGE slurm.caller.idle_seconds, 8 SITE-RANGE slurm.caller.min_uid, 8 SITE-RANGE slurm.caller.max_uid, " +
				"8 SITE-PATH slurm.caller.signer"},
		"max below min": {in("min_uid: 2000, max_uid: 1999"), "8 SITE-RANGE slurm.caller.max_uid"},
		"names": {in("refuse_users: [-x], refuse_groups: [\"\"]"),
			"8 SITE-USER slurm.caller.refuse_users[0], 8 SITE-MISSING slurm.caller.refuse_groups[0]"},
		"a jump without a key": {in("ssh: {host: h, jump: [{host: j, user: svc}]}, source_addresses: [10.0.0.1]"),
			"8 SITE-MISSING slurm.caller.ssh.jump[0].key"},
	} {
		wantProblems(t, name, x.text, x.want)
	}
}

// A user's name becomes a folder only if it can be one, and no user's folder is inside another of the site.
func TestUserFolders(t *testing.T) {
	s := parse(t, caller("", ""))
	for user, ok := range map[string]bool{"alice": true, "alice@lab.example": true, "alice1": true, "a.b_c-d": true,
		"": false, ".": false, "..": false, "../x": false, "a/b": false, "a b": false, "a\nb": false, `DOM\a`: false, "a:b": false} {
		if _, _, err := s.UserFolders(user); (err == nil) != ok || err != nil && fault.CodeOf(err) != "user_refused" {
			t.Errorf("%q: %v", user, err)
		}
	}
	s.Storage.ImageStore = "/shared/images"
	if _, _, err := s.UserFolders("images"); fault.CodeOf(err) != "user_refused" {
		t.Error("a user whose folder is in the image store", err)
	}
}

// Two clusters whose users have one folder would mix their runs.
func TestCallerClusters(t *testing.T) {
	cluster := func(name, runs, host string) string {
		return fmt.Sprintf(clusterPart, name)[:len("version: 1\nsite: ")+len(name)+1] +
			"slurm: {default_partition: main, default_account: lab, run_as: caller, caller: {ssh: {host: " + host + "}, " +
			"source_addresses: [10.0.0.1]}}\nstorage: {runs_dir: \"" + runs + "\", image_store: /shared/images}\n"
	}
	for name, x := range map[string]struct {
		runs, host string
		ok         bool
	}{"apart": {"/scratch/{user}/b", "a.example", true}, "one": {"/scratch/{user}/a", "a.example", false},
		"some user's": {"/scratch/bob/{user}", "a.example", false}, "another host": {"/scratch/{user}/a", "b.example", true}} {
		_, err := several(t, mainPart, cluster("alpha", "/scratch/{user}/a", "a.example"), cluster("beta", x.runs, x.host))
		if p := fault.ProblemsOf(err); (err == nil) != x.ok || !x.ok && (len(p) != 1 || p[0].Code != "SITE-PATH-OVERLAP") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
