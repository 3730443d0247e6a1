package signer_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/signer"
	"slurmgate/signer/signertest"
)

const least = "ca: {key: /etc/slurmgate-signer/ca}\ngateway_users: [slurmgate]\nsource_addresses: [127.0.0.1]\n"

// What the file leaves out has the documented default.
func TestDefaults(t *testing.T) {
	got, err := signer.Parse("signer.yaml", []byte(least))
	want := signer.Config{CA: signer.CA{Key: "/etc/slurmgate-signer/ca"}, Socket: "/run/slurmgate-signer/signer.sock",
		GatewayUsers: []string{"slurmgate"}, Minutes: 5, MinUID: 1000, MaxUID: 59999,
		RefuseGroups: []string{"sudo", "wheel", "admin", "root", "adm", "docker", "lxd", "libvirt", "disk", "shadow"},
		RefuseShells: []string{"nologin", "false"}, PerMinute: 120, PerUserMinute: 12, SourceAddresses: []string{"127.0.0.1"},
		Log: "/var/log/slurmgate-signer/certificates.log"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(signer.Config{})); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// Every mistake is reported at once, with its line.
func TestMistakes(t *testing.T) {
	_, err := signer.Parse("signer.yaml", []byte(`ca: {key: ca, agent: /run/agent}
gateway_users: [0, "a:b"]
source_addresses: [127.0.0.1, 10.0.0.1/8, "fe80::1%eth0", "::ffff:10.0.0.0/104", host]
minutes: 61
min_uid: 5000
max_uid: 100
per_minute: 5
per_user_minute: 6
refuse_shells: [bin/false]
refuse_user: [bob]
socket: /run/../signer.sock
socket_group: "7"
log: certificates.log
`))
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, strings.TrimPrefix(p.Code, "SIGNER-")+" "+p.Field)
	}
	want := []string{"CA ca", "PATH ca.key", "TYPE gateway_users[0]", "NAME gateway_users[1]", "ADDRESS source_addresses[1]",
		"ADDRESS source_addresses[2]", "ADDRESS source_addresses[3]", "ADDRESS source_addresses[4]", "RANGE minutes", "RANGE min_uid",
		"RANGE per_user_minute", "SHELL refuse_shells[0]", "UNKNOWN-FIELD refuse_user", "PATH socket", "NAME socket_group", "PATH log"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff, err)
	}
	for text, want := range map[string]string{
		"":   "SIGNER-YAML",
		"{}": "SIGNER-REQUIRED",
		least + "socket: /run/" + strings.Repeat("s", 110) + "\n":                                       "SIGNER-PATH",
		strings.Replace(least, "[127.0.0.1]", "[]", 1):                                                  "SIGNER-ADDRESS",
		strings.Replace(least, "[slurmgate]", "[]", 1):                                                  "SIGNER-NAME",
		strings.Replace(least, "{key: /etc/slurmgate-signer/ca}", "{agent: /run/a}", 1):                 "SIGNER-REQUIRED",
		strings.Replace(least, "{key: /etc/slurmgate-signer/ca}", "{key: /ca, public_key: /ca.pub}", 1): "SIGNER-CA",
		strings.Replace(least, "{key: /etc/slurmgate-signer/ca}", "{}", 1):                              "SIGNER-CA",
	} {
		if _, err := signer.Parse("signer.yaml", []byte(text)); fault.CodeOf(err) != want || fault.KindOf(err) != fault.Validation {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A key that others can read, or put another in the place of, is not used; nor is a configuration or a log that others can change.
//
// proves SITE-08
func TestFilesOfOthers(t *testing.T) {
	s := signertest.Start(t, "", alice)
	dir := t.TempDir()
	key, config := filepath.Join(dir, "ca"), filepath.Join(dir, "signer.yaml")
	write := func(name string, data []byte, mode os.FileMode) {
		t.Helper()
		must(t, os.WriteFile(name, data, 0o600))
		must(t, os.Chmod(name, mode))
	}
	try := func() error {
		_, err := signer.New(t.Context(), s.Config("ca: {key: "+key+"}\nlog: "+dir+"/log\n"), s.Users, nil, slog.New(slog.DiscardHandler))
		return err
	}
	write(key, signertest.NewKey(t), 0o400)
	must(t, try())
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o644} {
		must(t, os.Chmod(key, mode))
		if err := try(); fault.KindOf(err) != fault.Validation || !strings.Contains(err.Error(), key) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	write(key, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n"), 0o600)
	if err := try(); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Error(err)
	}
	write(key, signertest.NewKey(t), 0o600)
	write(config, []byte(least), 0o644)
	if _, err := signer.Load(config); err != nil {
		t.Error(err)
	}
	for name, mode := range map[string]os.FileMode{config: 0o664, dir + "/log": 0o602, dir: 0o777} {
		must(t, os.Chmod(name, mode))
		_, err := signer.Load(config)
		if name == dir+"/log" {
			err = try()
		}
		if fault.CodeOf(err) != "signer_file" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.Chmod(name, 0o700))
	}
	if _, err := signer.Load(dir + "/nosuch.yaml"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// The template that the packages install has the defaults, and documents every field.
func TestTemplate(t *testing.T) {
	data, err := os.ReadFile("../packaging/signer.yaml.template")
	must(t, err)
	got, err := signer.Parse("signer.yaml.template", data)
	must(t, err)
	want, err := signer.Parse("signer.yaml", []byte(strings.Replace(least, "[127.0.0.1]", `[127.0.0.1, "::1"]`, 1)))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(signer.Config{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// An attacker with the gateway's rights gets no certificate for root, under any name, for a system user, for a user
// who may become root, or for an invalid name; and each refusal that was about a user is in the log.
//
// proves SITE-08
func TestRefusedUsers(t *testing.T) {
	user := func(name string, uid int) nss.User {
		return nss.User{Name: name, UID: uid, GID: uid, Shell: "/bin/bash"}
	}
	gone := user("gone", 2009)
	ftp, off := user("ftp1", 2007), user("off", 2008)
	ftp.Shell, off.Shell = "/usr/sbin/nologin", "/bin/false"
	primary := user("primary", 2010)
	primary.GID = 27
	s := signertest.Start(t, "refuse_users: [carol]\nper_user_minute: 100\n", alice, user("alice@lab.example", 2020), user("bob1", 2021),
		user("root", 0), user("toor", 0), user("munge", 101), user("nobody", 65534), user("low", 999), user("high", 60000),
		user("carol", 2003), user("carol2", 2003), user("dave", 2004), user("erin", 2004), ftp, off, gone, primary,
		user("boss", 2011), user("hidden", 2012), user("shelled", 2013), user("gateway", 2014))
	s.Users.Join("sudo", 27, "boss")
	s.Users.Join("superusers", 27) // a second name of the same group
	s.Users.Join("docker", 998, "hidden")
	s.Users.Join("lab", 3000, "alice", "boss")
	s.Users.Remove("gone")
	for _, name := range []string{"alice", "alice@lab.example", "bob1", "shelled", "dave"} {
		if _, err := s.Sign(t.Context(), request(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, why := range map[string]string{
		"root": "user id is 0", "toor": "user id is 0", "munge": "outside of 1000 to 59999", "nobody": "outside of", "low": "outside of",
		"high": "outside of", "carol": "refuse_users", "carol2": `also has the name "carol"`, "erin": `also has the name "dave"`,
		"ftp1": "/usr/sbin/nologin", "off": "/bin/false", "gone": "no such user", "nosuch": "no such user",
		"gateway": "the gateway itself runs as", "boss": `group "sudo"`, "primary": `group "sudo"`, "hidden": `group "docker"`,
		"0": "begin with a letter", "2001": "begin with a letter", "-oProxyCommand": "begin with a letter", "": "empty", "a/b": "slash",
		"a b": "space", "a:b": "colon", "alice,root": "comma", "alice\n": "space", "alice\x00": "control character", "+alice": "begin",
	} {
		_, err := s.Sign(t.Context(), request(t, name))
		if fault.CodeOf(err) != signer.Refused || fault.KindOf(err) != fault.Policy || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %s", name, err, why)
		}
	}
	data, err := os.ReadFile(s.Log)
	must(t, err)
	refused := map[string]string{}
	for line := range strings.Lines(string(data)) {
		var e struct{ Event, Principal, Reason, Serial string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if e.Event == "refused" {
			refused[e.Principal] = e.Reason + e.Serial
		}
	}
	if len(refused) != 17 || !strings.HasSuffix(refused["boss"], `it is a member of group "sudo" (refuse_groups)`) {
		t.Errorf("%d refusals in the log: %q", len(refused), refused)
	}
}

// With users and groups in the configuration no other user gets a certificate, and refused ones stay refused.
func TestOnlyThese(t *testing.T) {
	user := func(name string, uid int) nss.User { return nss.User{Name: name, UID: uid, GID: uid} }
	s := signertest.Start(t, "users: [alice, boss]\ngroups: [lab, nosuchgroup]\nrefuse_groups: [sudo]\n", alice, user("bob", 2002),
		user("carol", 2003), user("boss", 2004))
	s.Users.Join("lab", 3000, "bob")
	s.Users.Join("sudo", 27, "boss")
	for name, why := range map[string]string{"alice": "", "bob": "", "carol": "neither in users nor", "boss": `group "sudo"`} {
		_, err := s.Sign(t.Context(), request(t, name))
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: %v, want %q", name, err, why)
		}
	}
}

// While users cannot be looked up nothing is signed, and that is no refusal: it is temporary.
func TestDirectoryAway(t *testing.T) {
	s := signertest.Start(t, "", alice)
	s.Users.Fail(fault.New(fault.Transport, "directory_unreachable", "LDAP hangs").WithRetry(7))
	if _, err := s.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) != signer.Away || fault.KindOf(err) != fault.Transport ||
		fault.RetryOf(err) != 7 {
		t.Errorf("%v, try again in %d s", err, fault.RetryOf(err))
	}
	s.Users.Fail(nil)
	if _, err := s.Sign(t.Context(), request(t, "alice")); err != nil {
		t.Error(err)
	}
	s.Users.Join("sudo", 27, "alice") // from then on, without a restart
	if _, err := s.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) != signer.Refused {
		t.Error(err)
	}
}
