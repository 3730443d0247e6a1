package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/ssh"
)

// open opens a session channel on the kept connection. The caller must call free, which returns the slot, when the
// requests end, and leave of the connection when it is done with the channel. Every error proves that nothing was
// started.
func (h *Host) open(ctx context.Context) (on *link, ch ssh.Channel, requests <-chan *ssh.Request, free func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, h.timing.session)
	defer cancel()
	began := time.Now()
	for lost := 0; ; {
		l, err := h.connect(ctx)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		free, err := l.slots.take(ctx)
		if err != nil {
			l.leave()
			return nil, nil, nil, nil, h.fault(Busy, "no session became free within the time allowed", err).
				WithNext("look for hanging processes of the user there, or ask for a higher MaxSessions in sshd_config")
		}
		ch, requests, err := openOn(ctx, l.client, free)
		if err == nil {
			return l, ch, requests, free, nil
		}
		l.leave()
		full, isRefusal := errors.AsType[*ssh.OpenChannelError](err)
		switch {
		case ctx.Err() != nil: // the slot is returned when the host answers
			return nil, nil, nil, nil, h.fault(Unreachable, "no session within the time allowed", ctx.Err())
		case !isRefusal:
			free()
			l.close()
			if lost++; lost > 1 {
				return nil, nil, nil, nil, h.fault(Unreachable, "the connection was lost before a session was open", err)
			}
			<-l.gone
		case !l.slots.refused(free): // the next attempt waits until another channel of ours ends
		case time.Since(began) > h.timing.busy:
			l.close() // all its sessions belong to processes that have not ended; a new connection has new ones
			return nil, nil, nil, nil, h.fault(Busy, fmt.Sprintf("the host allows no further session (%s)", full.Message), err).
				WithNext("ask for a higher MaxSessions in sshd_config, or look for hanging processes of the user there")
		case !sleep(ctx, h.timing.busy/50):
			return nil, nil, nil, nil, h.fault(Busy, "the host allows no further session", ctx.Err())
		}
	}
}

// openOn is OpenChannel with a time limit. A channel that comes too late is closed, and its slot returned.
func openOn(ctx context.Context, client *ssh.Client, free func()) (ssh.Channel, <-chan *ssh.Request, error) {
	type opened struct {
		ch       ssh.Channel
		requests <-chan *ssh.Request
		err      error
	}
	got := make(chan opened, 1)
	go func() {
		ch, requests, err := client.OpenChannel("session", nil)
		got <- opened{ch, requests, err}
	}()
	select {
	case o := <-got:
		return o.ch, o.requests, o.err
	case <-ctx.Done():
		go func() {
			defer free()
			if o := <-got; o.err == nil {
				o.ch.Close()
				ssh.DiscardRequests(o.requests)
			}
		}()
		return nil, nil, ctx.Err()
	}
}

// Sessions opens the wanted number of concurrent sessions on the kept connection, and returns how many of them the host
// allowed (MaxSessions).
func (h *Host) Sessions(ctx context.Context, wanted int) (allowed int, err error) {
	l, err := h.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer l.leave()
	for ; allowed < wanted; allowed++ {
		ch, requests, err := openOn(ctx, l.client, func() {})
		if _, full := errors.AsType[*ssh.OpenChannelError](err); full {
			return allowed, nil
		}
		if err != nil {
			return allowed, h.fault(Unreachable, "the connection was lost while sessions were opened", err)
		}
		go ssh.DiscardRequests(requests)
		defer ch.Close()
	}
	return allowed, nil
}

// closer is a writer whose Close calls a function.
type closer struct {
	io.Writer
	close func() error
}

func (c closer) Close() error { return c.close() }
