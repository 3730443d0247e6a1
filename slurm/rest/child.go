package rest

import (
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// environ returns the whole environment of a child of this package. No variable of the gateway is passed on, in
// particular not SLURM_JWT, which makes Slurm's own commands fail.
func environ() []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", "LC_ALL=C"}
	if home, err := os.UserHomeDir(); err == nil {
		env = append(env, "HOME="+home)
	}
	return env
}

// child is a slurmrestd in inetd mode: it reads requests from its standard input, writes answers to its standard output, and ends when its
// input does.
type child struct {
	in, out *os.File // our ends
	said    tail
	cmd     *exec.Cmd
	ended   chan struct{}
	once    sync.Once
}

const childPatience = 5 * time.Second // time for a child to end by itself

func startChild(argv []string) (*conn, error) {
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, unreached(argv[0], err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		in.Close()
		return nil, unreached(argv[0], err)
	}
	c.in, c.out = in, out
	c.cmd.Env, c.cmd.Dir = environ(), "/"
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdin, stdout, &c.said
	c.cmd.WaitDelay = childPatience // for pipes that its own children hold
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.cmd.Start()
	stdin.Close()
	stdout.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, unreached(argv[0], err)
	}
	go func() {
		c.cmd.Wait()
		close(c.ended)
	}()
	k := newConn(c, out)
	k.says = func() string {
		select { // a child that is about to end prints the reason
		case <-c.ended:
		case <-time.After(time.Second):
		}
		return c.said.String()
	}
	return k, nil
}

func (c *child) Read(p []byte) (int, error)  { return c.out.Read(p) }
func (c *child) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close closes the child's pipes, and kills it if it does not end by itself.
func (c *child) Close() error {
	c.once.Do(func() {
		c.in.Close()
		c.out.Close()
		go func() {
			select {
			case <-c.ended:
			case <-time.After(childPatience):
				c.cmd.Process.Kill()
			}
		}()
	})
	return nil
}

func (c *child) SetDeadline(t time.Time) error {
	return errors.Join(c.in.SetDeadline(t), c.out.SetDeadline(t))
}

func (c *child) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *child) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }

func (c *child) LocalAddr() net.Addr  { return &net.UnixAddr{Name: c.cmd.Path} }
func (c *child) RemoteAddr() net.Addr { return c.LocalAddr() }

// tail keeps the end of what is written to it.
type tail struct {
	limit int // in bytes; 0: maxTail
	mu    sync.Mutex
	end   []byte
}

const maxTail = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if over := len(t.end) - cmp.Or(t.limit, maxTail); over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}
