package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// identity is a cluster set up by docs/run/callers.md: its commands and its lines for sshd are taken from there, word for
// word. Only the folders of the signer and the ports are the test's.
type identity struct {
	t      *testing.T
	dir    string
	signer *signerProcess
	blocks []string
}

var fenced = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$")

const (
	plainPort  = "2521" // an ordinary sshd with the drop-in
	ownPort    = "2522" // the sshd for the gateway alone
	factorPort = "2523" // an ordinary sshd that asks for a second factor
)

func newIdentity(t *testing.T) *identity {
	t.Helper()
	text := value(os.ReadFile(filepath.Join(world.repo, "docs/run/callers.md")))(t)
	d := &identity{t: t, dir: "/run/signers/document"}
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		d.blocks = append(d.blocks, m[1])
	}
	template := value(os.ReadFile(filepath.Join(world.repo, "packaging/signer.yaml.template")))(t)
	d.signer = &signerProcess{t: t, dir: d.dir, config: d.dir + "/signer.yaml", socket: d.dir + "/signer.sock",
		log: d.dir + "/certificates.log"}
	config := strings.NewReplacer("[slurmgate]", "[lab]", "/run/slurmgate-signer/signer.sock", d.signer.socket,
		"/var/log/slurmgate-signer/certificates.log", d.signer.log, "/etc/slurmgate-signer/", d.dir+"/keys/").Replace(string(template))
	shell(t, "root", `install -d -m 0755 /run/signers; install -d -m 0755 -o sgsigner "$1"; install -d -m 0700 -o sgsigner "$1/keys"
		install -d -m 0700 -o lab "$1/lab"; printf %s "$2" >"$1/signer.yaml"; ln -sf "$3" /usr/local/bin/slurmgate`,
		d.dir, config, world.dir+"/slurmgate")
	t.Cleanup(func() {
		d.signer.stop("TERM")
		shell(t, "root", `for pid in "$1"/pid-*; do kill "$(cat "$pid")" || true; done
			rm -rf "$1" /etc/ssh/slurmgate_* /etc/ssh/sshd_slurmgate /etc/ssh/sshd_config.d/slurmgate.conf`, d.dir)
	})
	return d
}

// block returns the only code block of the document that contains a text.
func (d *identity) block(part string) string {
	d.t.Helper()
	found := ""
	for _, b := range d.blocks {
		if !strings.Contains(b, part) {
			continue
		}
		if found != "" {
			d.t.Fatalf("several blocks have %q", part)
		}
		found = b
	}
	if found == "" {
		d.t.Fatalf("docs/run/callers.md has no block with %q", part)
	}
	return found
}

// does runs a block of commands as root.
func (d *identity) does(part, variables string) {
	d.t.Helper()
	commands := strings.NewReplacer("runuser -u slurmgate-signer", "runuser -u sgsigner", "/etc/slurmgate-signer/", d.dir+"/keys/",
		"/etc/slurmgate/", d.dir+"/").Replace(d.block(part))
	commands = strings.ReplaceAll(commands, "slurmgate signer --", "slurmgate signer --config "+d.dir+"/signer.yaml --")
	shell(d.t, "root", variables+"\n"+commands)
}

// installs writes the file that a block begins with the name of.
func (d *identity) installs(name string) {
	d.t.Helper()
	shell(d.t, "root", `install -d -m 0755 "$(dirname "$1")" && printf %s "$2" >"$1"`, name, d.block("# "+name+"\n"))
}

// sshd starts one at a port.
func (d *identity) sshd(port, file string) {
	d.t.Helper()
	shell(d.t, "root", `/usr/sbin/sshd -t -f "$2"
		/usr/sbin/sshd -f "$2" -p "$3" -o PidFile="$1/pid-$3" -o PerSourcePenalties=no -E "$1/sshd-$3.log"`, d.dir, file, port)
}

// certificate asks the signer as the gateway's user, and returns the name of a key with a certificate, or the code of an error.
func (d *identity) certificate(name, user, address string) string {
	d.t.Helper()
	out := shell(d.t, "lab", `cd "$1/lab"; rm -f "$2" "$2".pub; ssh-keygen -q -t ed25519 -N "" -C "" -f "$2"
		perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!;
			$ARGV[1] =~ tr/\n\t//d; print $s "$ARGV[1]\n"; $s->flush; print <$s>' "$3" \
		"{\"user\":\"$4\",\"public_key\":\"$(cat "$2".pub)\",\"source_addresses\":[\"$5\"],\"minutes\":5,
			\"run_id\":\"r1\",\"caller\":\"peer:$4\",\"gateway\":\"lab\"}"`,
		d.dir, name, d.signer.socket, user, address)
	var a struct {
		Certificate string
		Error       struct{ Code string }
	}
	must(d.t, json.Unmarshal([]byte(out), &a))
	if a.Error.Code != "" {
		return a.Error.Code
	}
	shell(d.t, "lab", `printf '%s\n' "$2" >"$1"`, d.dir+"/lab/"+name+"-cert.pub", a.Certificate)
	return name
}

// stolen signs with a stolen key of the CA whatever its thief likes.
func (d *identity) stolen(name, ca, user string, options ...string) string {
	d.t.Helper()
	shell(d.t, "root", `cd "$1/lab"; rm -f "$2" "$2".pub; ssh-keygen -q -t ed25519 -N "" -f "$2"; name=$2 key=$3 user=$4; shift 4
		ssh-keygen -q -s "../keys/$key" -I stolen -n "$user" "$@" "$name.pub"; chown lab "$name"*`,
		append([]string{d.dir, name, ca, user}, options...)...)
	return name
}

// login runs a command over SSH as the gateway's user does, and returns all its output.
func (d *identity) login(port, key, user string, args ...string) string {
	d.t.Helper()
	return shell(d.t, "lab", `cd "$1/lab"; port=$2 key=$3 user=$4; shift 4
		export DISPLAY=:0; eval "$(ssh-agent)" >/dev/null; trap 'kill "$SSH_AGENT_PID"' EXIT
		ssh -F none -p "$port" -i "$key" -o CertificateFile="$key-cert.pub" -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no \
			-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ExitOnForwardFailure=yes -l "$user" "$@" 2>&1 </dev/null || true`,
		append([]string{d.dir, port, key, user}, args...)...)
}

// in fails the test unless the user can log in; out fails it unless the login is denied.
func (d *identity) in(what, port, key, user string) {
	d.t.Helper()
	if got := d.login(port, key, user, "127.0.0.1", "id -un"); got != user {
		d.t.Errorf("%s: the login as %s printed %s, want that user's name", what, user, got)
	}
}

func (d *identity) out(what, port, key, user string) {
	d.t.Helper()
	if got := d.login(port, key, user, "127.0.0.1", "id -un"); got == user || !strings.Contains(got, "denied") {
		d.t.Errorf("%s: the login as %s printed %s, want that it is denied", what, user, got)
	}
}

// On the real sshd the commands of docs/run/callers.md do what the document claims: who gets in and who does not, with the
// signer's certificates and with a stolen key of the CA, with a second factor, after a revocation, and while the CA is
// changed.
//
// proves SITE-08
func TestIdentityDocument(t *testing.T) {
	t.Parallel()
	d := newIdentity(t)
	d.does("-f /etc/slurmgate-signer/ca\n", "")
	d.does("--check", "")
	d.does("/etc/ssh/slurmgate_principals/$user", "")
	d.installs("/etc/ssh/sshd_config.d/slurmgate.conf")
	d.installs("/etc/ssh/sshd_slurmgate")
	d.signer.start()
	ordinary := `Include /etc/ssh/sshd_config.d/slurmgate.conf
ListenAddress 127.0.0.1
ListenAddress 10.53.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
UsePAM yes
X11Forwarding yes
`
	shell(t, "root", `printf %s "$2" >"$1/plain"; printf '%sAuthenticationMethods publickey,keyboard-interactive\n' "$2" >"$1/factor"`,
		d.dir, ordinary)
	d.sshd(plainPort, d.dir+"/plain")
	d.sshd(factorPort, d.dir+"/factor")
	d.sshd(ownPort, "/etc/ssh/sshd_slurmgate")

	alice := d.certificate("alice", "alice", "127.0.0.1")
	d.in("alice", plainPort, alice, "alice")
	d.in("alice at the sshd for the gateway", ownPort, alice, "alice")
	d.in("a name with @", plainPort, d.certificate("at", "alice@lab.example", "127.0.0.1"), "alice@lab.example")
	if got := d.login(factorPort, alice, "alice", "127.0.0.1", "id -un"); !strings.Contains(got, "denied (keyboard-interactive)") {
		t.Errorf("without a second factor: %s", got)
	}
	d.out("bob with alice's certificate", plainPort, alice, "bob")
	d.out("from another address than the certificate's", plainPort, d.certificate("v6", "alice", "::1"), "alice")
	if got := d.login(plainPort, alice, "alice", "10.53.0.1", "id -un"); !strings.Contains(got, "denied") {
		t.Errorf("from an address that Match does not name: %s", got)
	}
	for _, user := range []string{"root", "lab", "sysuser", "carol", "sgsigner", "nosuch"} {
		if code := d.certificate("refused", user, "127.0.0.1"); code != "user_refused" {
			t.Errorf("the signer about %s: %s", user, code)
		}
	}
	d.nothingButCommands(alice)
	d.stolenKey()
	d.revoke(alice)
}

// nothingButCommands checks that a certificate of the signer gives no terminal and forwards nothing. A certificate with
// all extensions does both, which shows that the checks can fail.
func (d *identity) nothingButCommands(alice string) {
	d.t.Helper()
	full := d.stolen("full", "ca", "alice", "-V", "-1m:+5m")
	for what, c := range map[string]struct {
		args          []string
		without, with string
	}{
		"a terminal":      {[]string{"-tt", "127.0.0.1", "test -t 0 && echo terminal || echo none"}, "failed", "terminal"},
		"an agent":        {[]string{"-A", "127.0.0.1", "echo agent=${SSH_AUTH_SOCK:+yes}"}, "agent=", "agent=yes"},
		"a port from far": {[]string{"-R", "0:127.0.0.1:22", "127.0.0.1", "echo forwarded"}, "failed", "forwarded"},
		"a port":          {[]string{"-W", "127.0.0.1:" + plainPort, "127.0.0.1"}, "failed", "SSH-2.0"},
		"X11":             {[]string{"-Y", "127.0.0.1", "echo display=${DISPLAY:+yes}"}, "display=", "display=yes"},
	} {
		lines := strings.Split(d.login(plainPort, alice, "alice", c.args...), "\n")
		got := strings.TrimSpace(lines[len(lines)-1])
		if !strings.Contains(got, c.without) || strings.Contains(got, c.with) {
			d.t.Errorf("%s with a certificate of the signer: %q, want %q", what, got, c.without)
		}
		if got := d.login(plainPort, full, "alice", c.args...); what != "X11" && !strings.Contains(got, c.with) { // X11 needs xauth there
			d.t.Errorf("%s with a certificate for everything: %q", what, got)
		}
	}
}

// stolenKey checks what sshd itself refuses a thief of the CA's key.
func (d *identity) stolenKey() {
	d.t.Helper()
	good := []string{"-V", "-1m:+5m", "-O", "source-address=127.0.0.1/32"}
	for _, port := range []string{plainPort, ownPort} {
		d.out("expired", port, d.stolen("old", "ca", "alice", "-V", "-10m:-5m"), "alice")
		for _, user := range []string{"root", "carol", "sysuser", "lab"} {
			d.out(user+" with the CA's key", port, d.stolen("thief", "ca", user, good...), user)
		}
	}
	dave := d.stolen("dave", "ca", "dave", good...)
	d.in("dave", plainPort, dave, "dave")
	shell(d.t, "root", "rm /etc/ssh/slurmgate_principals/dave")
	d.out("dave without a file of principals", plainPort, dave, "dave")
}

// revoke: one certificate, and then the CA, while another takes its place.
func (d *identity) revoke(alice string) {
	d.t.Helper()
	second := d.certificate("second", "alice", "127.0.0.1")
	lines := d.signer.certificates()
	serial := ""
	for _, l := range lines {
		if l["event"] == "signed" && l["principal"] == "alice" && serial == "" {
			serial = l["serial"].(string)
		}
	}
	d.does("serial: $SERIAL", "SERIAL="+serial)
	d.out("a revoked certificate", plainPort, alice, "alice")
	d.out("a revoked certificate", ownPort, alice, "alice")
	d.in("another one", plainPort, second, "alice")

	d.does("slurmgate-signer/ca2\n", "")
	d.signer.stop("TERM")
	d.signer.start()
	third := d.certificate("third", "alice", "127.0.0.1")
	d.in("a certificate of the old CA", plainPort, second, "alice")
	d.in("a certificate of the new CA", plainPort, third, "alice")
	if a, b := lines[0]["ca"], d.signer.certificates()[len(lines)]["ca"]; a == b {
		d.t.Errorf("%v signed before and after", a)
	}
	d.does("slurmgate_revoked /etc/slurmgate-signer/ca.pub", "")
	d.out("a certificate of the revoked CA", plainPort, second, "alice")
	d.out("a certificate of the revoked CA", ownPort, second, "alice")
	d.in("a certificate of the new CA", plainPort, third, "alice")
	d.in("a certificate of the new CA", ownPort, third, "alice")
}
