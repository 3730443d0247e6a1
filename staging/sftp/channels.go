package sftp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/sync/errgroup"

	"slurmgate/fault"
	"slurmgate/staging"
)

const (
	maxChannels = 3                // of one connection; scripts need some of its sessions too (MaxSessions, usually 10)
	idleTime    = 15 * time.Second // after which an idle channel is closed: its session may be needed
	patience    = 2 * time.Minute  // for the requests of one operation; a pipe in place of a file blocks its channel for ever
)

// channels is a pool of SFTP channels. Each is used by one operation at a time, so that an operation that blocks delays
// no other, and ends when its channel is closed.
type channels struct {
	data Data
	free chan struct{} // holds a token for each channel that may still be used

	mu   sync.Mutex
	idle []resting // reused: many small files at a time would otherwise open a channel each
	shut bool
}

// resting is an idle channel.
type resting struct {
	client *sftp.Client
	ends   *time.Timer // closes it
}

func newChannels(d Data) *channels {
	c := &channels{data: d, free: make(chan struct{}, maxChannels)}
	for range maxChannels {
		c.free <- struct{}{}
	}
	return c
}

// take returns a channel for one operation, which must return it with give.
func (c *channels) take(ctx context.Context) (*sftp.Client, error) {
	select {
	case <-c.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		r := c.idle[last]
		c.idle = c.idle[:last]
		c.mu.Unlock()
		r.ends.Stop()
		return r.client, nil
	}
	c.mu.Unlock()
	client, err := c.data.SFTP(ctx)
	if err != nil {
		c.free <- struct{}{}
		return nil, err
	}
	return client, nil
}

// give returns a channel to the pool, or closes it after an error that was not an answer of the server.
func (c *channels) give(client *sftp.Client, err error) {
	c.mu.Lock()
	keep := !c.shut && (err == nil || answered(err))
	if keep {
		c.idle = append(c.idle, resting{client, time.AfterFunc(idleTime, func() { c.end(client) })})
	}
	c.mu.Unlock()
	if !keep {
		go client.Close() // a server that reads nothing can block it
	}
	c.free <- struct{}{}
}

// end closes a channel if it is idle.
func (c *channels) end(client *sftp.Client) {
	c.mu.Lock()
	i := slices.IndexFunc(c.idle, func(r resting) bool { return r.client == client })
	if i >= 0 {
		c.idle = slices.Delete(c.idle, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		go client.Close()
	}
}

// atOnce calls f for each element and returns the first error in the list's order. The calls run concurrently, at most
// [requestsAtOnce] at a time, so many elements cost the round trips of one.
func atOnce[T any](list []T, f func(T) error) error {
	errs := make([]error, len(list))
	var requests errgroup.Group
	requests.SetLimit(requestsAtOnce)
	for i, e := range list {
		requests.Go(func() error {
			errs[i] = f(e)
			return nil
		})
	}
	_ = requests.Wait() // its error is the first in time
	return cmp.Or(errs...)
}

const requestsAtOnce = 256

// do calls f with a channel. If the channel was lost while it was idle it tries again: f must be safe to repeat.
func (c *channels) do(ctx context.Context, msg string, f func(*sftp.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	for range 1 + maxChannels {
		var client *sftp.Client
		if client, err = c.take(ctx); err != nil {
			break
		}
		stop := context.AfterFunc(ctx, func() { client.Close() })
		err = f(client)
		if !stop() {
			err = ctx.Err()
		}
		c.give(client, err)
		if err == nil || answered(err) || ctx.Err() != nil {
			break
		}
	}
	return explain(msg, err)
}

func (c *channels) close() {
	c.mu.Lock()
	c.shut = true
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, r := range idle {
		r.ends.Stop()
		go r.client.Close()
	}
}

// answered reports whether an error is the server's answer, or one that a new channel would not solve.
func answered(err error) bool {
	if _, ok := errors.AsType[*sftp.StatusError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return true
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist)
}

// explain converts an error of SFTP to a fault.
func explain(msg string, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok || err == nil || errors.Is(err, context.Canceled) {
		return staging.Failed(msg, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(fault.Timeout, "timeout", msg+": the SFTP server did not answer in time", err)
	}
	if !answered(err) {
		return fault.Wrap(fault.Transport, "sftp_lost", msg+": the SFTP channel was lost", err)
	}
	return fault.Wrap(fault.Transport, "filesystem", msg, err)
}

// readFile reads a small file that the gateway wrote.
func readFile(c *sftp.Client, name string, limit int64) ([]byte, error) {
	f, err := c.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// finish closes a written file, after a sync where the server supports it. err is the error of the write.
func finish(c *sftp.Client, f *sftp.File, err error) error {
	if _, syncs := c.HasExtension("fsync@openssh.com"); syncs && err == nil {
		err = f.Sync()
	}
	return cmp.Or(err, f.Close())
}

// Free asks the SFTP server how much can still be written to the filesystem of a folder; see [Workspace.Free].
func Free(ctx context.Context, d Data, dir string) (bytes, inodes int64, limited bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := d.SFTP(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	st, err := client.StatVFS(dir)
	if err != nil {
		return 0, 0, false, explain("the filesystem of "+dir+" cannot be examined", err)
	}
	block := max(st.Frsize, 1)
	return int64(min(st.Bavail, math.MaxInt64/block) * block), int64(min(st.Favail, math.MaxInt64)), st.Files > 0, nil
}
