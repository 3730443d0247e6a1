package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// endpoint is a site's own slurmrestd. The gateway's connections to it pass a proxy, and in cases whose commands
// misbehave a program that answers wrongly (restliar.go).
type endpoint struct {
	s      *site
	url    string // for the gateway
	token  string // the file with its token
	long   string // a token that does not end during the campaign
	socket string // of slurmrestd, in the cluster
	wire   *proxy
	liar   *restLiar

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed: cmd has ended
}

// serveREST starts the site's slurmrestd and the proxies before it.
func (s *site) serveREST(ctx context.Context) (err error) {
	e := &endpoint{s: s, token: s.local + "/token", socket: "/run/slurmrestd/chaos-" + s.name() + ".sock"}
	s.rest = e
	if err := e.start(ctx); err != nil {
		return err
	}
	if e.liar, err = newRESTLiar(s); err != nil {
		return err
	}
	if s.far() {
		e.wire, err = newProxy(s.path(e.socket))
		if err != nil {
			return err
		}
		e.url = fmt.Sprintf("http://127.0.0.1:%d", e.wire.port())
	} else {
		inside := "/run/slurmrestd/gateway-" + s.name() + ".sock"
		if err := os.RemoveAll(s.path(inside)); err != nil {
			return err
		}
		l, err := net.Listen("unix", s.path(inside))
		if err != nil {
			return err
		}
		if err := os.Chmod(s.path(inside), 0o666); err != nil {
			return err
		}
		e.wire, e.url = newProxyOn(l, s.path(e.socket)), "unix:"+inside
	}
	s.wires = append(s.wires, e.wire)
	if e.long, err = e.mint(ctx, 24*time.Hour); err != nil {
		return err
	}
	return e.renew()
}

// mint makes a token of the user of the jobs.
func (e *endpoint) mint(ctx context.Context, lifetime time.Duration) (string, error) {
	return e.s.output(ctx, "root", nil, "devd", "token", user, fmt.Sprint(max(1, int(lifetime.Seconds()))))
}

// renew gives the gateway the token that does not end.
func (e *endpoint) renew() error { return e.give(e.long) }

// give puts a token where the gateway reads it, as an admin's timer does.
func (e *endpoint) give(token string) error {
	name := e.s.path(e.token)
	uid := e.s.uid
	if e.s.far() {
		uid = nobody
	}
	if err := os.WriteFile(name+".new", []byte(token), 0o600); err != nil {
		return err
	}
	if err := os.Chown(name+".new", uid, uid); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// start starts slurmrestd and waits until it listens.
func (e *endpoint) start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd != nil && !closed(e.gone) {
		return nil
	}
	const script = `rm -f "$1"; SLURM_JWT=daemon exec setpriv --init-groups --reuid nobody --regid nogroup slurmrestd -a rest_auth/jwt "unix:$1"`
	cmd := e.s.command(context.WithoutCancel(ctx), "root", nil, "bash", "-c", script, "bash", e.socket)
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() { cmd.Wait(); close(gone) }()
	e.cmd, e.gone = cmd, gone
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", e.s.path(e.socket)); err == nil {
			return c.Close()
		}
		if closed(gone) {
			break
		}
	}
	return fmt.Errorf("slurmrestd at %s does not listen", e.socket)
}

// kill sends slurmrestd a signal, and waits for its end if it ends by it.
func (e *endpoint) kill(sig syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pid := child(e.cmd.Process.Pid); pid != 0 {
		syscall.Kill(pid, sig)
	}
	if sig != syscall.SIGSTOP {
		e.cmd.Process.Signal(syscall.SIGCONT) // nsenter(1) stops itself when its child is stopped
	}
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		<-e.gone
	}
}

// enter prepares it for a case.
func (e *endpoint) enter(ctx context.Context, t *trial) error {
	if err := e.start(ctx); err != nil {
		return err
	}
	e.wire.lead(e.s.path(e.socket))
	e.liar.forget()
	if len(t.scenario.flags)+len(t.flags) > 0 {
		e.wire.lead(e.liar.address())
	}
	if t.far.token == 0 {
		return e.renew()
	}
	token, err := e.mint(ctx, t.far.token)
	if err != nil {
		return err
	}
	return e.give(token)
}

// ended counts how often the case met an expired token: slurmrestd refused a call with it, or the gateway reported it
// before a call.
func (e *endpoint) ended(t *trial) int {
	n := t.observed().refused
	if data, err := os.ReadFile(t.log.Name()); err == nil {
		n += strings.Count(string(data), "rest_token")
	}
	return n
}

// disturb carries out the case's fault of slurmrestd, once it was asked to submit.
func (t *trial) disturb(ctx context.Context) {
	defer t.end()
	if !t.sends(ctx) {
		return
	}
	time.Sleep(t.far.after)
	e := t.s.rest
	switch t.far.daemon {
	case "killed":
		e.kill(syscall.SIGKILL)
	case "restarted":
		e.kill(syscall.SIGTERM)
	case "paused":
		e.kill(syscall.SIGSTOP)
		defer e.kill(syscall.SIGCONT)
	}
	t.disturbed++
	time.Sleep(t.far.hold)
	if t.far.daemon != "paused" {
		if err := e.start(ctx); err != nil {
			t.find("broken", "%v", err)
		}
	}
}
