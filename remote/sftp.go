package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// MaxConnections bounds the additional connections of a host.
const MaxConnections = 8

// SFTP opens an SFTP channel on the kept connection. It takes one of the connection's few sessions until the client is closed.
func (h *Host) SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	on, ch, requests, free, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer on.leave()
	client, err := h.subsystem(ctx, on, ch, requests, free, ch.Close, opts)
	if err == nil {
		on.used.Store(true)
	}
	return client, err
}

// More opens an SFTP channel on an additional connection, which ends with the client. There are at most
// [MaxConnections] of them.
func (h *Host) More(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timing.session)
	defer cancel()
	kept, err := h.connect(ctx) // an unreachable host gets only one attempt to connect
	if err != nil {
		return nil, err
	}
	kept.leave()
	h.mu.Lock()
	dropped := h.dropped
	full := h.extra >= MaxConnections
	if fault.CodeOf(h.failure) == Refused && time.Now().Before(h.until) {
		defer h.mu.Unlock()
		return nil, h.failure
	}
	if !full {
		h.extra++
	}
	h.mu.Unlock()
	if full {
		return nil, h.fault(Busy, fmt.Sprintf("all %d further connections are in use", MaxConnections), nil)
	}
	free := sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.extra--
	})
	d, err := h.cfg.dial(ctx)
	if err != nil {
		free()
		if fault.CodeOf(err) == Refused { // no new attempt for each transfer
			h.mu.Lock()
			h.fails(err)
			h.mu.Unlock()
		}
		return nil, err
	}
	h.mu.Lock()
	l := h.adopt(d)
	l.hold()
	defer l.leave()
	if h.dropped != dropped {
		l.end(h.reason)
	}
	h.mu.Unlock()
	go func() {
		<-l.gone
		l.close()
		free()
	}()
	ch, requests, err := openOn(ctx, d.Client, func() {})
	if err != nil {
		l.close()
		return nil, h.fault(Unreachable, "no SFTP channel on a further connection", err)
	}
	return h.subsystem(ctx, l, ch, requests, func() {}, func() error { l.close(); return nil }, opts)
}

// subsystem starts the SFTP server on a channel. A profile's output before the server's first packet is skipped.
func (h *Host) subsystem(ctx context.Context, on *link, ch ssh.Channel, requests <-chan *ssh.Request, free func(), end func() error,
	opts []sftp.ClientOption) (*sftp.Client, error) {
	go func() {
		ssh.DiscardRequests(requests)
		free()
	}()
	type started struct {
		client *sftp.Client
		err    error
	}
	got := make(chan started, 1)
	noise := &quiet{from: ch}
	asked := &requestCount{on: on}
	go func() {
		client, err := h.startSFTP(ch, noise, asked, end, opts)
		got <- started{client, err}
	}()
	ctx, cancel := context.WithTimeout(ctx, h.timing.hello)
	defer cancel()
	select {
	case s := <-got:
		if s.err != nil {
			end()
		}
		return s.client, s.err
	case <-ctx.Done():
		go end()
		return nil, h.profile(NoShell, "the SFTP server did not start within the time allowed", noise.heard())
	}
}

func (h *Host) startSFTP(ch ssh.Channel, noise *quiet, asked *requestCount, end func() error, opts []sftp.ClientOption) (*sftp.Client,
	error) {
	ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"}))
	if err != nil {
		return nil, h.fault(Unreachable, "the connection was lost", err)
	}
	if !ok {
		return nil, h.fault(NoShell, "the host does not offer SFTP", nil).WithNext("ask for the subsystem sftp in sshd_config")
	}
	go io.Copy(io.Discard, ch.Stderr())
	seen := &packets{}
	if h.cfg.Credentials != nil {
		seen.judge = strict()
	}
	client, err := sftp.NewClientPipe(answers{noise, asked, seen}, closer{requestWriter{ch, asked, &packets{}}, end}, opts...)
	switch {
	case errors.Is(err, errNoise) || len(noise.heard()) > 0 && err != nil:
		return nil, h.profile(NoShell, "the login shell prints text where the SFTP server should answer", noise.heard())
	case err != nil:
		return nil, h.fault(NoShell, "the SFTP server did not start", err)
	}
	return client, nil
}

// quiet skips the text before the first packet of an SFTP server: a packet begins with a zero byte, and text has none.
type quiet struct {
	from  io.Reader
	begun bool

	mu    sync.Mutex
	count int
	text  []byte // the beginning of the skipped text
}

// heard returns the text before the first packet.
func (q *quiet) heard() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	return bytes.Clone(q.text)
}

func (q *quiet) Read(p []byte) (int, error) {
	for {
		n, err := q.from.Read(p)
		if q.begun {
			return n, err
		}
		i := bytes.IndexByte(p[:n], 0)
		q.begun = i >= 0
		if !q.begun {
			i = n
		}
		q.mu.Lock()
		q.count += i
		q.text = append(q.text, p[:min(i, 512-len(q.text))]...)
		q.mu.Unlock()
		switch {
		case q.begun:
			return copy(p, p[i:n]), err
		case q.count > maxNoise:
			return 0, errNoise
		case err != nil:
			return 0, err
		}
	}
}
