package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

// far returns a site file with the given slurm.ssh and storage.sftp.
func far(ssh, sftp string) string {
	text := strings.Replace(least, "slurm:\n", "slurm:\n  transport: ssh\n"+ssh, 1)
	return strings.Replace(text, "storage:\n", "storage:\n  transport: sftp\n"+sftp, 1)
}

const login = "  ssh: {host: login.example, user: svc, key: /k, known_hosts: [/kh], " +
	"jump: [{host: gate.example, port: 2222, user: me}, {host: inner}]}\n"

// The SFTP server is the login node unless a host is given, and omitted settings are those of slurm.ssh.
//
// proves SITE-01
func TestFarDefaults(t *testing.T) {
	jump := []Endpoint{{"gate.example", 2222, "me", []string{"/kh"}, "/k", "", ""}, {"inner", 22, "svc", []string{"/kh"}, "/k", "", ""}}
	node := SSH{Endpoint{"login.example", 22, "svc", []string{"/kh"}, "/k", "", ""}, jump}
	yes, no := true, false
	dtn := node
	dtn.Host, dtn.Port = "dtn.example", 22
	byAgent := dtn
	byAgent.User, byAgent.Key, byAgent.Agent, byAgent.Jump = "data", "", "/run/agent", nil
	for name, x := range map[string]struct {
		sftp  string
		want  SFTP
		login Folders
	}{
		"nothing": {"", SFTP{node, "/shared/runs", "/shared/images", 4, 0, &yes, false}, Folders{"/shared/runs", "/shared/images"}},
		"the login node's names": {"  login: {runs_dir: /gpfs/runs}\n", SFTP{node, "/gpfs/runs", "/shared/images", 4, 0, &yes, false},
			Folders{"/gpfs/runs", "/shared/images"}},
		"a data host": {"  login: {runs_dir: /gpfs/runs}\n  sftp: {host: dtn.example, image_store: /data/images}\n",
			SFTP{dtn, "/shared/runs", "/data/images", 4, 0, &yes, false}, Folders{"/gpfs/runs", "/shared/images"}},
		"all of its own": {"  sftp: {host: dtn.example, user: data, agent: /run/agent, jump: [], shell: false, syncs_folders: true, " +
			"connections: 8, bandwidth_mb: 100}\n",
			SFTP{byAgent, "/shared/runs", "/shared/images", 8, 100, &no, true}, Folders{"/shared/runs", "/shared/images"}},
	} {
		s := parse(t, far(login, x.sftp))
		if diff := cmp.Diff(&x.want, s.Storage.SFTP, ignorePrivate); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(&node, s.Slurm.SSH); diff != "" || !s.FarSlurm() || !s.FarFiles() || s.LoginFolders() != x.login {
			t.Errorf("%s: %s %v", name, diff, s.LoginFolders())
		}
		wantReadBack(t, name, s)
	}
	both := parse(t, strings.Replace(least, "slurm:\n", "slurm:\n  transport: ssh\n"+login, 1))
	if !both.FarSlurm() || both.FarFiles() || both.Storage.SFTP != nil || both.LocalSite().Storage.RunsDir != "/shared/runs" {
		t.Errorf("with ssh and shared files: FarSlurm %t, FarFiles %t, sftp %v; want true, false, nil", both.FarSlurm(), both.FarFiles(),
			both.Storage.SFTP)
	}
	if a := (Endpoint{Host: "2001:db8::1", Port: 22}).Address(); a != "[2001:db8::1]:22" {
		t.Error(a)
	}
}

// What the transports do not allow, each with its line.
func TestFarRefused(t *testing.T) {
	const pem = "-----BEGIN OPENSSH PRIVATE KEY-----\\nc2VjcmV0"
	for name, x := range map[string]struct{ text, want string }{
		"no login node": {far("", ""), "6 SITE-MISSING slurm.ssh"},
		"a login node of cli": {strings.Replace(far(login, ""), "transport: ssh", "transport: cli", 1),
			"8 SITE-TRANSPORT slurm.ssh, 12 SITE-TRANSPORT storage.transport"},
		"sftp of shared": {strings.Replace(far(login, "  sftp: {connections: 2}\n"), "transport: sftp", "transport: shared", 1),
			"13 SITE-TRANSPORT storage.sftp"},
		"login of cli":      {strings.Replace(least, "storage:\n", "storage:\n  login: {runs_dir: /x}\n", 1), "10 SITE-TRANSPORT storage.login"},
		"no host":           {far("  ssh: {key: /k}\n", ""), "8 SITE-MISSING slurm.ssh.host"},
		"no key":            {far("  ssh: {host: h}\n", ""), "8 SITE-MISSING slurm.ssh.key"},
		"key and agent":     {far("  ssh: {host: h, key: /k, agent: /a}\n", ""), "8 SITE-TRANSPORT slurm.ssh.agent"},
		"certificate alone": {far("  ssh: {host: h, agent: /a, certificate: /c}\n", ""), "8 SITE-TRANSPORT slurm.ssh.certificate"},
		"user in host":      {far("  ssh: {host: me@h, key: /k}\n", ""), "8 SITE-HOST slurm.ssh.host"},
		"port in host":      {far("  ssh: {host: 'h:22', key: /k}\n", ""), "8 SITE-HOST slurm.ssh.host"},
		"an option as host": {far("  ssh: {host: -oProxyCommand=x, key: /k}\n", ""), "8 SITE-HOST slurm.ssh.host"},
		"port":              {far("  ssh: {host: h, key: /k, port: 0}\n", ""), "8 SITE-RANGE slurm.ssh.port"},
		"user":              {far("  ssh: {host: h, key: /k, user: a b}\n", ""), "8 SITE-USER slurm.ssh.user"},
		"relative key":      {far("  ssh: {host: h, key: id}\n", ""), "8 SITE-PATH slurm.ssh.key"},
		"a key in the file": {far("  ssh: {host: h, key: \""+pem+"\"}\n", ""), "8 SITE-KEY slurm.ssh.key"},
		"jump of jump": {far("  ssh: {host: h, key: /k, jump: [{host: a, jump: [{host: b}]}]}\n", ""),
			"8 SITE-UNKNOWN-FIELD slurm.ssh.jump[0].jump"},
		"jump without host": {far("  ssh: {host: h, key: /k, jump: [{port: 1}]}\n", ""), "8 SITE-MISSING slurm.ssh.jump[0].host"},
		"five jumps": {far("  ssh: {host: h, key: /k, jump: [{host: a}, {host: a}, {host: a}, {host: a}, {host: a}]}\n", ""),
			"8 SITE-RANGE slurm.ssh.jump"},
		"password":           {far("  ssh: {host: h, key: /k, password: hunter2}\n", ""), "8 SITE-UNKNOWN-FIELD slurm.ssh.password"},
		"connections":        {far(login, "  sftp: {connections: 9}\n"), "13 SITE-RANGE storage.sftp.connections"},
		"bandwidth":          {far(login, "  sftp: {bandwidth_mb: -1}\n"), "13 SITE-RANGE storage.sftp.bandwidth_mb"},
		"syncs with a shell": {far(login, "  sftp: {syncs_folders: true}\n"), "13 SITE-TRANSPORT storage.sftp.syncs_folders"},
		"overlap":            {far(login, "  sftp: {runs_dir: /a, image_store: /a/b}\n"), "13 SITE-PATH-OVERLAP storage.sftp.image_store"},
		"login overlap":      {far(login, "  login: {runs_dir: /a, image_store: /a}\n"), "13 SITE-PATH-OVERLAP storage.login.image_store"},
		"relative":           {far(login, "  sftp: {runs_dir: runs}\n"), "13 SITE-PATH storage.sftp.runs_dir"},
		"data host": {far(login, "  sftp: {host: 'a b', port: 70000}\n"),
			"13 SITE-HOST storage.sftp.host, 13 SITE-RANGE storage.sftp.port"},
		"the state folder's name": {strings.Replace(far(login, ""), "/var/lib/sg", "'/var/lib/s g'", 1), "4 SITE-PATH gateway.state_dir"},
		"images among the runs of this machine": {strings.Replace(far(login, ""), "/var/lib/sg\n",
			"/var/lib/sg\n  image_store: /var/lib/sg/local-runs\n", 1),
			"5 SITE-PATH-OVERLAP gateway.image_store"},
	} {
		wantProblems(t, name, x.text, x.want)
	}
}

// Paths of another machine do not collide with those of this one, and jobs of this machine have folders of the
// gateway itself.
func TestFarFolders(t *testing.T) {
	text := strings.Replace(far(login, ""), "/shared/runs", "/var/lib/sg/runs", 1)
	local := parse(t, text).LocalSite()
	if local.Storage.RunsDir != "/var/lib/sg/local-runs" || local.Storage.ImageStore != "/var/lib/sg/images" || local.FarFiles() {
		t.Errorf("LocalSite: runs_dir %s, image_store %s, FarFiles %t; want folders of /var/lib/sg", local.Storage.RunsDir,
			local.Storage.ImageStore, local.FarFiles())
	}
	cluster := func(name, host string) string {
		return fmt.Sprintf(clusterPart, name)[:len("version: 1\nsite: ")+len(name)+1] +
			"slurm: {default_partition: main, default_account: lab, transport: ssh, ssh: {host: " + host + ", key: /k}}\n" +
			"storage: {transport: sftp, runs_dir: /shared/runs, image_store: /shared/images}\n"
	}
	if _, err := several(t, mainPart, cluster("alpha", "a.example"), cluster("beta", "b.example")); err != nil {
		t.Error("two clusters may name their folders alike", err)
	}
	_, err := several(t, mainPart, cluster("alpha", "a.example"), cluster("beta", "a.example"))
	if p := fault.ProblemsOf(err); len(p) != 1 || p[0].Code != "SITE-PATH-OVERLAP" {
		t.Error("one folder of one host", err)
	}
}

// A site with SFTP alone is allowed, and config check names what it lacks.
func TestSFTPAloneIsNamedWeaker(t *testing.T) {
	for sftp, weak := range map[string]bool{"": false, "  sftp: {shell: false}\n": true,
		"  sftp: {shell: false, syncs_folders: true}\n": false} {
		notes := parse(t, far(login, sftp)).Notes()
		if weak != slices.ContainsFunc(notes, func(p fault.Problem) bool { return p.Code == "SITE-SFTP-ALONE" }) {
			t.Errorf("%q: %v", sftp, notes)
		}
	}
}
