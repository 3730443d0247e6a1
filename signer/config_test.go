package signer_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/fault"
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
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	try := func() error {
		_, err := signer.New(t.Context(), s.Config("ca: {key: "+key+"}\nlog: "+dir+"/log\n"), s.Users, nil, slog.New(slog.DiscardHandler))
		return err
	}
	write(key, signertest.NewKey(t), 0o400)
	if err := try(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o644} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
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
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		_, err := signer.Load(config)
		if name == dir+"/log" {
			err = try()
		}
		if fault.CodeOf(err) != "signer_file" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Chmod(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := signer.Load(dir + "/nosuch.yaml"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// The template that the packages install has the defaults, and says so of every field.
func TestTemplate(t *testing.T) {
	data, err := os.ReadFile("../packaging/signer.yaml.template")
	if err != nil {
		t.Fatal(err)
	}
	got, err := signer.Parse("signer.yaml.template", data)
	if err != nil {
		t.Fatal(err)
	}
	want, err := signer.Parse("signer.yaml", []byte(strings.Replace(least, "[127.0.0.1]", `[127.0.0.1, "::1"]`, 1)))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(signer.Config{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Error(err, diff)
	}
}
