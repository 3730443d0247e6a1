package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// asks sends a request to the signer as a user of the login node, and returns its one line.
func (g *signerProcess) asks(as string, request tree) (a struct {
	Certificate string
	Error       struct{ Code, Message string }
}) {
	g.t.Helper()
	text, err := json.Marshal(request)
	must(g.t, err)
	const ask = `perl -MIO::Socket::UNIX -e '$SIG{PIPE} = "IGNORE"; $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!\n"; print $s "$ARGV[1]\n"; print <$s>' "$1" "$2"`
	got := shell(g.t, as, ask, g.socket, string(text))
	must(g.t, json.Unmarshal([]byte(got), &a))
	return a
}

// An attacker with the gateway's key and user may send the signer any request, and can log in only as users that the
// signer allows: not as root or another name of it, a system user, a member of sudo, the service or the signer; not
// from another address, not for longer than the signer's minutes, and with no terminal and no forwarding. A user who
// reaches the signer's socket gets nothing at all. The signer's log has a line for each certificate and each refusal.
//
// proves SITE-08
func TestServiceKeyAgainstRoot(t *testing.T) {
	t.Parallel()
	h, s := sshOf(t), newSite(t, "probing")
	info := callersOf(t)
	g := newSigner(t, s, func(doc tree) { doc["minutes"] = 2 })
	dir := "/tmp/attack-" + filepath.Base(g.dir)
	key := shell(t, "lab", `umask 077; mkdir "$1"; ssh-keygen -q -t ed25519 -N "" -f "$1/id"; cat "$1/id.pub"`, dir)
	t.Cleanup(func() { shell(t, "root", `rm -rf "$1"`, dir) })
	twin, nologin := "toor"+filepath.Base(dir)[len("attack-"):], newUser(t)
	shell(t, "root", `
flock /run/users.lock useradd --badname -o -u 0 -g 0 -M -s /bin/bash "$1" 2>/dev/null; devd user "$2" nologin`, twin, nologin)
	t.Cleanup(func() { shell(t, "root", `sed -i "/^$1:/d" /etc/passwd /etc/shadow`, twin) })
	request := func(edit ...func(r tree)) tree {
		r := tree{"user": "alice", "public_key": key, "run_id": "run_x", "caller": "alice", "gateway": "e2e",
			"source_addresses": []any{"127.0.0.1"}, "minutes": 5}
		for _, f := range edit {
			f(r)
		}
		return r
	}
	set := func(field string, value any) func(r tree) { return func(r tree) { r[field] = value } }

	for _, user := range []string{"root", twin, "sysuser", "carol", "lab", "sgsigner", nologin, "nobody", "no-such-user"} {
		if a := g.asks("lab", request(set("user", user))); a.Certificate != "" || a.Error.Code != "user_refused" {
			t.Errorf("the signer answers a request for %s with the certificate %q and %+v, want user_refused", user,
				a.Certificate, a.Error)
		}
	}
	for name, edit := range map[string]func(r tree){
		"another address":    set("source_addresses", []any{h.Login.Address}),
		"every address":      set("source_addresses", []any{"0.0.0.0/0", "::/0"}),
		"no address":         set("source_addresses", []any{}),
		"a year":             set("minutes", 525600),
		"principals":         set("principals", []any{"alice", "root"}),
		"extensions":         set("extensions", tree{"permit-pty": ""}),
		"two users":          set("user", "alice,root"),
		"a name with a line": set("user", "alice\nroot"),
	} {
		if a := g.asks("lab", request(edit)); a.Certificate != "" || a.Error.Code == "" {
			t.Errorf("the signer answers a request with %s with the certificate %q and %+v, want an error", name,
				a.Certificate, a.Error)
		}
	}
	for _, user := range []string{"alice", "bob", "root"} {
		if a := g.asks(user, request(set("user", user))); a.Certificate != "" || a.Error.Code == "" {
			t.Errorf("the signer answers %s, who asks directly, with the certificate %q, want an error", user,
				a.Certificate)
		}
	}

	// What it does sign for is one user, from one address, for two minutes, without anything else.
	a := g.asks("lab", request(set("minutes", 60), set("caller", "a\" run=run_y")))
	shell(t, "lab", `cat >"$1/id-cert.pub" <<<"$2"`, dir, a.Certificate)
	shown := shell(t, "lab", `ssh-keygen -L -f "$1/id-cert.pub"`, dir)
	for _, want := range []string{"source-address 127.0.0.1/32", "Extensions: (none)", `run=run_x caller=a%22%20run%3Drun_y"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("the certificate lacks %q:\n%s", want, shown)
		}
	}
	left, err := strconv.Atoi(shell(t, "lab", `to=$(sed -n "s/.* to //p" <<<"$1"); echo $(($(date -d "$to" +%s) - $(date +%s)))`, shown))
	if err != nil || left > 120 {
		t.Errorf("it is valid for %d s: %v", left, err)
	}
	login := func(user, options, command string) string {
		return shell(t, "lab", `
ssh -F none -p 2022 -i "$1/id" -o IdentitiesOnly=yes -o BatchMode=yes -o "UserKnownHostsFile=$2" $3 -l "$4" 127.0.0.1 "$5" \
			2>&1 </dev/null || true`, dir, info.KnownHosts, options, user, command)
	}
	if got := login("alice", "", "id -un"); got != "alice" {
		t.Fatalf("the certificate does not let in alice: %s", got)
	}
	for _, user := range []string{"root", "bob", "carol", "lab", "sysuser", twin} {
		if got := login(user, "", "id -un"); !strings.Contains(got, "Permission denied") {
			t.Errorf("alice's certificate lets in %s: %s", user, got)
		}
	}
	if got := login("alice", "-tt", "tty || echo none"); !strings.Contains(got, "none") && !strings.Contains(got, "PTY allocation request") {
		t.Errorf("a terminal: %s", got)
	}
	if got := login("alice", "-A", "echo agent=$SSH_AUTH_SOCK"); !strings.HasSuffix(got, "agent=") {
		t.Errorf("the agent is forwarded: %s", got)
	}
	got := login("alice", "-o ExitOnForwardFailure=yes -R 127.0.0.1:0:127.0.0.1:22", "echo in")
	if strings.HasPrefix(got, "in") || !strings.Contains(got, "forward") {
		t.Errorf("a port is forwarded: %s", got)
	}
	if got := login("alice", "-W 127.0.0.1:6817", ""); !strings.Contains(got, "prohibited") {
		t.Errorf("a connection is forwarded: %s", got)
	}
	// From another address the key is worth nothing. This machine is one.
	here := t.TempDir()
	for _, name := range []string{"id", "id-cert.pub"} {
		data := shell(t, "root", `cat "$1"`, dir+"/"+name)
		must(t, os.WriteFile(filepath.Join(here, name), []byte(data+"\n"), 0o600))
	}
	out, err := exec.Command("ssh", "-F", "none", "-p", "2022", "-i", filepath.Join(here, "id"), "-o", "IdentitiesOnly=yes",
		"-o", "BatchMode=yes", "-o", "UserKnownHostsFile="+h.KnownHosts, "-l", "alice", h.Login.Address, "id -un").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Permission denied") {
		t.Errorf("from another address: %v %s", err, out)
	}

	events := map[string]int{}
	for _, line := range g.certificates() {
		events[fmt.Sprint(line["event"], " ", line["principal"])]++
	}
	for _, want := range []string{"signed alice", "refused root", "refused " + twin, "refused sysuser", "refused carol", "refused lab",
		"refused sgsigner", "refused " + nologin, "refused nobody", "refused no-such-user"} {
		if events[want] != 1 {
			t.Errorf("the signer's log has %d times %q: %v", events[want], want, events)
		}
	}
}
