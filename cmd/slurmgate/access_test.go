package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The check of the file reports what the daemon would refuse at its start, with the line, together with all other
// mistakes.
//
// proves CARD-01
func TestAccessIsChecked(t *testing.T) {
	text := value(os.ReadFile("../../site-configs/template.yaml"))(t)
	good := strings.Replace(string(text), "\n  peers: []\n", `
  peers:
    - user: root
      capabilities: [gateway, read]
      projects: [demo]
      accounts: [{project: demo, account: research}]
    - user: daemon
      capabilities: ["*"]
      projects: ["*"]
    - {user: root, capabilities: [gateway, slurm], projects: [extra]}
    - group: daemon
      capabilities: [gateway, read]
      projects: [demo]
    - {group: tty, capabilities: [gateway], projects: [demo]}
    - {user: bin, capabilities: [gateway], projects: [demo]}
`, 1)
	good = strings.Replace(good, "\n  oidc: []\n", "\n  oidc: [{issuer: https://login.example.org, audience: x, types: [at+jwt, JWT]}]\n", 1)
	broken := good
	for old, with := range map[string]string{"[gateway, read]\n      projects: [demo]": "[gateway, raed]\n      projects: [' a']",
		"user: daemon":       "user: no-such-user",
		"group: daemon":      "group: no-such-group",
		"account: research}": "account: --uid=0}", "types: [at+jwt, JWT]": "types: [id_token]", "\nsite: mycluster": "\nsite: My cluster"} {
		broken = strings.Replace(broken, old, with, 1)
	}
	file := filepath.Join(t.TempDir(), "site.yaml")
	for content, want := range map[string][]string{good: nil,
		broken: {": site: ", ": access.peers[0].capabilities: there is no capability \"raed\"",
			": access.peers[0].projects: ", ": access.peers[0].accounts",
			": access.peers[1].user: this host has no user no-such-user", ": access.peers[3].group: this host has no group no-such-group",
			": access.oidc[0].types: \"id_token\" is not supported"}} {
		must(t, os.WriteFile(file, []byte(content), 0o600))
		code, out, said := verb(t, "config", "check", "--site", file)
		if (code != 0) != (want != nil) || strings.Contains(said, "yaml: ") || strings.Count(said, "--uid") > 1 {
			t.Errorf("config check exits with %d:\n%s%s", code, out, said)
		}
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("config check does not report %s:\n%s", w, said)
			}
		}
	}
}

// checkedAs requires that config check reports this of a site file with a part replaced, or nothing.
func checkedAs(t *testing.T, part, with, want string) {
	t.Helper()
	text := value(os.ReadFile("../../site-configs/template.yaml"))(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	must(t, os.WriteFile(file, []byte(strings.Replace(string(text), part, with, 1)), 0o600))
	code, _, said := verb(t, "config", "check", "--site", file)
	if (code == 0) != (want == "") || !strings.Contains(said, want) {
		t.Errorf("%s: %d %s", with, code, said)
	}
}

// An entry names a user or a group, in a form that can be looked up.
func TestPeerEntries(t *testing.T) {
	for entry, want := range map[string]string{"": "access.peers[0]: neither is set",
		"user: root, group: daemon,": "access.peers[0]: both are set",
		"group: '0',":                "access.peers[0].group: it does not begin with a letter",
		"group: '-n',":               "access.peers[0].group: it does not begin",
		`user: "a\nb",`:              "access.peers[0].user: it has a colon, a comma or a control character", "groups: daemon,": "groups",
		"group: [daemon],": "group", "group: daemon,": ""} {
		peers := "\n  peers: [{" + entry + " capabilities: [gateway], projects: [demo]}]\n"
		checkedAs(t, "\n  peers: []\n", peers, want)
	}
}

// A table of Unix users is checked with the site file: each value once, names that jobs can run as, and a users file that only its owner
// writes. The same table in a users file gives the same users.
//
// proves SITE-08
func TestUnixUserTables(t *testing.T) {
	dir := t.TempDir()
	users := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		must(t, os.Chmod(path, mode))
		return path
	}
	good := users("good", "a.smith: alice\n'17': bob@lab.example\n", 0o644)
	for table, want := range map[string]string{
		"{claim: sub, users: {a.smith: alice, b.jones: alice, '17': bob@lab.example}}":          "",
		"{claim: sub, users_file: " + good + "}":                                                "",
		"{claim: sub}":                                                                          "neither is set",
		"{users: {a: alice}}":                                                                   "access.oidc[0].unix_user.claim",
		"{claim: sub, users: {a: alice}, users_file: " + good + "}":                             "both are set",
		"{claim: sub, users: {a: alice, a: bob}}":                                               `the key "a" is already in line`,
		"{claim: sub, users: {a: '1001'}}":                                                      "users.a: it does not begin with a letter",
		"{claim: sub, users: {a: ../b}}":                                                        "users.a: it does not begin with a letter",
		"{claim: sub, users: {a: 'x:y'}}":                                                       "a colon",
		"{claim: sub, users: {'': alice}}":                                                      "the value of the claim is empty",
		"{claim: sub, users: [alice]}":                                                          "users",
		"{claim: sub, users_file: users.yaml}":                                                  "absolute",
		"{claim: sub, users_file: " + dir + "/none}":                                            "no such file",
		"{claim: sub, users_file: " + dir + "}":                                                 "regular file",
		"{claim: sub, users_file: " + users("open", "a: alice\n", 0o666) + "}":                  "chmod go-w",
		"{claim: sub, users_file: " + users("twice", "a: alice\nb: bob\na: bob\n", 0o600) + "}": "the key \"a\" is already in line 1",
	} {
		oidc := "\n  oidc: [{issuer: https://login.example.org, audience: x, unix_user: " + table + "}]\n"
		checkedAs(t, "\n  oidc: []\n", oidc, want)
	}
}

// A token in the environment of the caller reaches none of the processes that the program starts.
func TestNoTokenForChildren(t *testing.T) {
	t.Setenv("SLURM_JWT", "of the caller")
	if status := realMain(t.Context(), []string{"version"}, io.Discard, io.Discard); status != 0 {
		t.Errorf("status %d", status)
	}
	if token, there := os.LookupEnv("SLURM_JWT"); there {
		t.Errorf("SLURM_JWT is still %q", token)
	}
}
