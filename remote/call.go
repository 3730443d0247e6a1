package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// Call is one run of a script.
type Call struct {
	Script string    // for /bin/sh -c; constant text, never built from untrusted text
	Args   []string  // $1 …; any bytes but NUL
	Stdin  io.Reader // nil: /dev/null. It is sent after the script has started; reading it must not block for long
	Limit  int64     // bytes of standard output; standard error is cut to 512 KiB
	Sink   io.Writer // receives standard output while it arrives; nil: it is stored in Output

	// Once makes the script start only after the far shell has answered, at the cost of one round trip. Every error
	// before that proves that the script will never be started. Without Once a script may start after its caller has
	// given up, for instance when a login shell hangs for a while.
	Once bool
}

// Output is what a script printed and how it ended.
type Output struct {
	Stdout []byte
	Stderr string
	Exit   int
	Noise  string // the end of the output of the login shell's start-up files, before the script started
}

const (
	maxStderr     = 512 << 10
	maxComplaints = 64 << 20 // more is taken for endless output
)

// command is all that is ever requested of a login shell.
const command = "/bin/sh -s"

// exchange is one call on its channel.
type exchange struct {
	h    *Host
	call Call
	wait bool // the script starts only after the answer

	ch       ssh.Channel
	out, err *answer
	begun    chan struct{}
	told     atomic.Bool // the start line was sent, or may have been
	left     chan struct{}
	status   atomic.Bool // the host reported how the login shell ended

	sink, stdin gate
	kept        bytes.Buffer
	complaints  bytes.Buffer
	complained  int64 // bytes of standard error
	taken       int64
}

// gate lets nothing through once it is shut.
type gate struct {
	mu   sync.Mutex
	shut bool
}

var errShut = errors.New("the caller no longer waits")

func (g *gate) do(f func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return errShut
	}
	return f()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

var (
	errTooLong = errors.New("the script printed more than its limit")
	errLoud    = errors.New("the script printed more than 64 MiB on standard error")
)

// Run runs a script and waits for it. A script that ran to its end is no error, for any exit status. Every other end is
// a Transport fault, and [NotStarted] says what it proves; the script may continue then. When ctx ends, Run returns
// immediately. Without a deadline in ctx, the wait for a session and for the far shell's first answer is still bounded;
// the script itself may run for any time.
func (h *Host) Run(ctx context.Context, c Call) (Output, error) {
	random := make([]byte, 16)
	rand.Read(random) // never fails
	mark := hex.EncodeToString(random)
	x := &exchange{h: h, call: c, wait: c.Once || c.Stdin != nil, begun: make(chan struct{}), left: make(chan struct{})}
	text, err := frame(mark, c.Script, c.Args, x.wait, c.Stdin != nil)
	if err != nil {
		return Output{}, fault.Wrap(fault.Internal, "ssh_call", "this call cannot be sent", err)
	}
	x.out = newAnswer(mark, x.take, func() { close(x.begun) })
	x.err = newAnswer(mark, func(p []byte) error {
		x.complaints.Write(p[:min(len(p), maxStderr-x.complaints.Len())])
		if x.complained += int64(len(p)); x.complained > maxComplaints {
			return errLoud
		}
		return nil
	}, func() {})
	on, ch, requests, free, err := h.open(ctx)
	if err != nil {
		return Output{}, err
	}
	defer on.leave()
	x.ch = ch
	go func() { // runs until both sides have closed the channel
		for r := range requests {
			if r.Type == "exit-status" || r.Type == "exit-signal" {
				x.status.Store(true)
			}
			if r.WantReply {
				r.Reply(false, nil)
			}
		}
		close(x.left)
		free()
	}()
	out, err := x.run(ctx, text)
	if err == nil {
		on.used.Store(true)
	}
	return out, err
}

func (x *exchange) run(ctx context.Context, text []byte) (Output, error) {
	defer func() {
		x.sink.close()
		x.stdin.close()
		go x.ch.Close() // may wait for a connection that is stuck
	}()
	over := make(chan error, 1)
	go func() { over <- x.talk(text) }()
	hello := time.NewTimer(x.h.timing.hello)
	defer hello.Stop()
	begun := x.begun
	for {
		select {
		case err := <-over:
			if err != nil {
				return Output{}, err
			}
			return Output{Stdout: x.kept.Bytes(), Stderr: x.complaints.String(), Exit: x.out.exit,
				Noise: strings.TrimSpace(strings.ToValidUTF8(string(x.out.noise), "?"))}, nil
		case <-begun:
			begun = nil
		case <-hello.C:
			if begun != nil {
				return Output{}, x.h.profile(x.code(NoShell), fmt.Sprintf("the login shell did not start /bin/sh within %s", x.h.timing.hello),
					x.heard())
			}
		case <-ctx.Done():
			return Output{}, x.h.fault(x.code(Unreachable), "no answer within the time allowed", ctx.Err())
		}
	}
}

// code returns the code of a failure: certain if the script certainly never starts, else Cut.
func (x *exchange) code(certain string) string {
	if x.wait && !x.told.Load() {
		// After this the start line is never sent.
		x.stdin.close()
		if !x.told.Load() {
			return certain
		}
	}
	return Cut
}

// heard returns what the login shell printed before /bin/sh started, on both streams.
func (x *exchange) heard() []byte {
	return bytes.Join([][]byte{x.err.heard(), x.out.heard()}, []byte("\n"))
}

// talk carries out the call on its channel.
func (x *exchange) talk(text []byte) error {
	ok, err := x.ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{command}))
	if err == nil && !ok {
		return x.h.fault(NoShell, "the host does not allow commands", nil)
	}
	if err != nil {
		return x.h.fault(x.code(Unreachable), "the connection was lost", err)
	}
	complaints := make(chan error, 1)
	go func() {
		_, err := io.Copy(x.err, x.ch.Stderr())
		complaints <- err // sent first, before Close ends the other stream
		if errors.Is(err, errLoud) || errors.Is(err, errNoise) {
			x.ch.Close()
		}
	}()
	printed := make(chan error, 1)
	go func() {
		_, err := io.Copy(x.out, x.ch)
		printed <- err
	}()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		x.feed(text)
	}()
	err = <-printed
	if errors.Is(err, errEnded) {
		err = <-complaints
	} else if err == nil {
		select {
		case c := <-complaints: // possibly the reason why the channel was closed
			if !errors.Is(c, errEnded) {
				err = c
			}
		default:
		}
	}
	if !errors.Is(err, errEnded) {
		return x.broken(err)
	}
	x.stdin.close()
	x.ch.Close()
	<-fed
	return nil
}

// feed sends the text, the start line and the standard input. A failure here shows in the answer.
func (x *exchange) feed(text []byte) {
	defer x.ch.CloseWrite()
	if _, err := x.ch.Write(text); err != nil || !x.wait {
		return
	}
	select {
	case <-x.begun:
	case <-x.left:
		return
	}
	err := x.stdin.do(func() error {
		x.told.Store(true)
		return nil
	})
	if err != nil {
		return
	}
	if _, err = io.WriteString(x.ch, "go\n"); err != nil || x.call.Stdin == nil {
		return
	}
	io.Copy(x.ch, readerFunc(func(p []byte) (n int, err error) {
		shut := x.stdin.do(func() error {
			n, err = x.call.Stdin.Read(p)
			return nil
		})
		if shut != nil {
			return 0, shut
		}
		return n, err
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// take passes on the script's output, up to the limit.
func (x *exchange) take(p []byte) error {
	return x.sink.do(func() error {
		room := x.call.Limit - x.taken
		over := int64(len(p)) > room
		if over {
			p = p[:room]
		}
		x.taken += int64(len(p))
		err := error(nil)
		if x.call.Sink != nil {
			_, err = x.call.Sink.Write(p)
		} else {
			x.kept.Write(p)
		}
		if err == nil && over {
			err = errTooLong
		}
		return err
	})
}

// broken returns the fault of an answer without an end. err is nil if a stream just ended.
func (x *exchange) broken(err error) error {
	if err == nil {
		select { // the exit status follows the streams
		case <-x.left:
		case <-time.After(5 * time.Second):
		}
	}
	begun := x.out.state != before
	switch {
	case errors.Is(err, errNoise):
		return x.h.profile(x.code(NoShell), err.Error(), x.heard())
	case errors.Is(err, errTooLong):
		return fault.Wrap(fault.Transport, "ssh_answer", fmt.Sprintf("%s: the script printed more than %d bytes", x.h.cfg.name(),
			x.call.Limit), err)
	case err != nil && begun:
		return x.h.fault(Cut, "the answer cannot be used", err)
	case !begun && x.status.Load():
		return x.h.profile(NoShell, "the login shell ended before it started /bin/sh, or read what was meant for it", x.heard())
	case !begun:
		return x.h.fault(x.code(Unreachable), "the connection was lost before the far shell answered", err)
	}
	return x.h.fault(Cut, "the answer broke off; it is unknown whether the script ran to its end", err)
}
