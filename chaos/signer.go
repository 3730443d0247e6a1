package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// authority is the signer of one site: the program's own, as a separate user. The gateway reaches it through a relay,
// which can make its certificates end within seconds.
type authority struct {
	s      *site
	folder string // of its sockets and its configuration, in the cluster
	config string

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed: cmd has ended
	ends time.Duration // that soon, when positive
	bad  bool          // it is killed, paused or refuses
	bit  int           // requests that met what was done to it
}

// signerYAML is the signer's configuration: whom it refuses, the authority's key, sockets, the gateway's address as sshd sees it.
const signerYAML = `ca: {key: /etc/slurmgate-signer/ca}
socket: %[1]s/signer.sock
log: %[1]s/certificates.log
gateway_users: [%[2]s]
source_addresses: [%[3]s]
per_minute: 100000
per_user_minute: 100000
refuse_users: [%[4]s]
`

// relay returns the path of the socket that the gateway connects to.
func (a *authority) relay() string { return a.folder + "/relay.sock" }

// serveSigner starts the site's signer and the relay before it.
func (s *site) serveSigner(ctx context.Context) error {
	a := &authority{s: s, folder: "/run/chaos-signer-" + s.name()}
	a.config = a.folder + "/signer.yaml" // where the gateway's user cannot change it
	s.signer = a
	if _, err := s.output(ctx, "root", nil, "bash", "-c", `rm -rf "$1"; install -d -m 0755 -o sgsigner "$1"`, "bash", a.folder); err != nil {
		return err
	}
	if err := a.start(ctx); err != nil {
		return err
	}
	l, err := net.Listen("unix", s.path(a.relay()))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go a.pass(c)
		}
	}()
	return os.Chmod(s.path(a.relay()), 0o666)
}

// start starts the signer, if it does not run, and waits until it listens. It refuses some users.
func (a *authority) start(ctx context.Context, refused ...string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cmd != nil && !closed(a.gone) {
		return nil
	}
	text := fmt.Sprintf(signerYAML, a.folder, user, a.s.hosts.ThisMachine, strings.Join(refused, ", "))
	if err := os.WriteFile(a.s.path(a.config), []byte(text), 0o644); err != nil {
		return err
	}
	cmd := a.s.command(context.WithoutCancel(ctx), "root", nil, "setpriv", "--init-groups", "--reuid", "sgsigner", "--regid", "sgsigner",
		binary, "signer", "--config", a.config)
	var said bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, io.Discard
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() { cmd.Wait(); close(gone) }()
	a.cmd, a.gone = cmd, gone
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !closed(gone); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", a.s.path(a.folder+"/signer.sock")); err == nil {
			return c.Close()
		}
	}
	a.kill(syscall.SIGKILL)
	<-gone
	return fmt.Errorf("the signer of %s does not listen: %s", a.s.name(), said.String())
}

// kill sends the signer a signal; the caller has the lock.
func (a *authority) kill(sig syscall.Signal) {
	if pid := child(a.cmd.Process.Pid); pid != 0 {
		syscall.Kill(pid, sig)
	}
	if sig != syscall.SIGSTOP {
		a.cmd.Process.Signal(syscall.SIGCONT) // nsenter(1) stops itself when its child is stopped
	}
}

// end kills the signer.
func (a *authority) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cmd != nil && !closed(a.gone) {
		a.kill(syscall.SIGKILL)
		<-a.gone
	}
	return nil
}

// pause stops the signer where it is, or resumes it.
func (a *authority) pause(stop bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kill(map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[stop])
	return nil
}

// again restarts the signer, which then refuses these users.
func (a *authority) again(ctx context.Context, refused ...string) error {
	if err := a.end(); err != nil {
		return err
	}
	return a.start(ctx, refused...)
}

// shorten makes certificates end after ends, or with 0 at the signer's time.
func (a *authority) shorten(ends time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ends = ends
}

// met returns how many requests have come during a fault of the signer.
func (a *authority) met() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bit
}

// disturb records whether a fault of the signer is in effect.
func (a *authority) disturb(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bad = on
}

// count counts a request that comes while something is done to the signer.
func (a *authority) count() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bad {
		a.bit++
	}
}

// pass carries one request of the gateway's and the answer.
func (a *authority) pass(gateway net.Conn) {
	defer gateway.Close()
	a.count()
	signer, err := dialAs(a.s.uid, a.s.path(a.folder), "signer.sock")
	if err != nil {
		return
	}
	defer signer.Close()
	go io.Copy(signer, gateway)
	answer, err := bufio.NewReader(signer).ReadBytes('\n')
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ends > 0 {
		if short, err := shortened(answer, a.s.hosts.Callers.Key, a.ends); err == nil {
			answer = short
			a.bit++
		}
	}
	gateway.Write(answer)
}

// shortened returns a signer's answer with a certificate that ends after ends, signed again with the authority's key.
func shortened(answer []byte, keyFile string, ends time.Duration) ([]byte, error) {
	var a map[string]any
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, err
	}
	text, _ := a["certificate"].(string)
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return nil, err
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok {
		return nil, fmt.Errorf("%s is no certificate", key.Type())
	}
	data, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	authority, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(ends)
	cert.ValidBefore = uint64(end.Unix())
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		return nil, err
	}
	a["certificate"], a["not_after"] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(cert))), end.UTC().Format(time.RFC3339)
	out, err := json.Marshal(a)
	return append(out, '\n'), err
}

// dialAs connects to a socket with the credentials of a user: SO_PEERCRED shows those of the thread that connected.
func dialAs(uid int, folder, name string) (net.Conn, error) {
	at, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // as root: the user cannot pass the way there
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	type dialed struct {
		c   net.Conn
		err error
	}
	done := make(chan dialed)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, whose user id changes, ends with the goroutine
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			done <- dialed{nil, errno}
			return
		}
		c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", at, name))
		done <- dialed{c, err}
	}()
	d := <-done
	return d.c, d.err
}
