// Package transfer moves files over SFTP: pipelined, over several connections, verified by size and SHA-256 (SITE-05).
//
// A file is cut into chunks. Each connection transfers several chunks concurrently, so that neither the round-trip time
// nor one TCP stream, nor the cipher of one connection, limits the rate. A transfer needs memory only for these chunks,
// for any file size.
//
// A lost connection is opened again and the transfer continues: bytes that were received in order remain, and sent
// bytes count only when the server has confirmed and synced them. Everything else is sent again, so a hole from
// concurrent writes never counts as data.
//
// A file that is put appears under its name whole or not at all: it is written under a temporary name in the same
// folder, synced over every connection that wrote to it (each may have led to another host), and renamed. SFTP cannot
// sync the folder; the caller must.
package transfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/time/rate"
)

// Dialer opens SFTP channels to one server. remote.Host implements it.
type Dialer interface {
	// SFTP opens a channel on the kept connection.
	SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error)
	// More opens a channel on an additional connection. Closing the client closes that connection.
	More(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error)
}

const (
	// ChunkBytes is the size of one request: the most that OpenSSH accepts.
	ChunkBytes = 255 << 10
	// otherChunkBytes is the size that every server accepts (draft-ietf-secsh-filexfer-02, 3).
	otherChunkBytes = 32 << 10
	// MaxConnections bounds [Config.Connections]: sshd's MaxStartups drops connections at random from the eleventh on.
	MaxConnections = 8
)

// Config bounds the resources of a [Pool].
type Config struct {
	Connections    int   // 1 to [MaxConnections]; 0: 4
	BytesPerSecond int64 // in each direction; 0: unlimited
	// Stall is how long a connection may leave requests unanswered before it counts as lost; 0: a minute.
	Stall time.Duration
}

// Pool transfers files to and from one server. It opens connections when a transfer needs them, and closes additional
// ones after a minute without use. Its methods may be called concurrently.
type Pool struct {
	config   Config
	up, down *rate.Limiter
	slots    []*slot
	tune     tuning

	mu    sync.Mutex
	names map[string]chan struct{} // temporary names in use
}

// New returns a pool. It does not connect yet.
func New(d Dialer, c Config) (*Pool, error) {
	if c.Connections == 0 {
		c.Connections = 4
	}
	if c.Connections < 1 || c.Connections > MaxConnections {
		return nil, fmt.Errorf("%d connections; from 1 to %d are possible", c.Connections, MaxConnections)
	}
	return newPool(d, c, tuned), nil
}

// tuning holds sizes that measurements have shown to be good. Tests use smaller ones.
type tuning struct {
	chunk  int           // of a server that identifies itself as OpenSSH
	window int           // unanswered bytes on one connection
	lane   int64         // size of a part of a file that is worth an additional connection
	sync   int64         // bytes for each connection that a file advances between two syncs, and so about what a loss costs
	pause  time.Duration // after the first loss in a row; it doubles with each
	resume int64         // the smallest file whose upload leaves a record to be continued by
}

// The window is somewhat more than the 2 MiB that OpenSSH and x/crypto/ssh give a channel.
var tuned = tuning{chunk: ChunkBytes, window: 10 * ChunkBytes, lane: 4 << 20, sync: 32 << 20, resume: 64 << 20,
	pause: 100 * time.Millisecond}

func newPool(d Dialer, c Config, t tuning) *Pool {
	c.Stall = cmp.Or(c.Stall, time.Minute)
	p := &Pool{config: c, tune: t, names: map[string]chan struct{}{}}
	for i := range c.Connections {
		open := d.More
		if i == 0 {
			open = d.SFTP
		}
		p.slots = append(p.slots, &slot{open: open, stall: c.Stall, chunk: t.chunk, pause: t.pause, kept: i == 0, busy: make(chan struct{}, 1)})
	}
	if c.BytesPerSecond > 0 {
		burst := max(int(c.BytesPerSecond/10), ChunkBytes+1)
		p.up = rate.NewLimiter(rate.Limit(c.BytesPerSecond), burst)
		p.down = rate.NewLimiter(rate.Limit(c.BytesPerSecond), burst)
	}
	return p
}

// Close closes the pool's channels and additional connections. Running transfers fail.
func (p *Pool) Close() {
	for _, s := range p.slots {
		s.close()
	}
}

// crowd is the number of transfers that share a connection before another one is opened.
const crowd = 128

// choose returns the slots for a transfer of size bytes, the least used first. A small transfer uses an existing
// connection.
func (p *Pool) choose(size int64) []*slot {
	n := int(min(int64(len(p.slots)), max(1, size/p.tune.lane)))
	weight := func(s *slot) int64 {
		if s.current() == nil {
			return s.users.Load() + crowd
		}
		return s.users.Load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.slots)
	slices.SortStableFunc(out, func(a, b *slot) int { return cmp.Compare(weight(a), weight(b)) })
	for _, s := range out[:n] {
		s.users.Add(1)
	}
	return out[:n]
}

// pace waits until n more bytes may be transferred.
func pace(ctx context.Context, l *rate.Limiter, n int) error {
	if l == nil {
		return ctx.Err()
	}
	return l.WaitN(ctx, n)
}
