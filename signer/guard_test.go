package signer_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/signer"
	"slurmgate/signer/signertest"
)

// Whoever holds the gateway gets no certificate for root, under whatever name, for a system user, for somebody who may become root, or for
// a name that is none; and each refusal that was about a user is in the log.
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
	if err != nil {
		t.Fatal(err)
	}
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

// With users and groups in the configuration nobody else gets a certificate, and what is refused stays so.
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

// While users cannot be looked up nothing is signed, and that is no refusal: it ends by itself.
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
