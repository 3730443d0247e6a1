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
	maxChannels = 3                // of one connection, of whose sessions (MaxSessions, usually 10) scripts need some too
	idleTime    = 15 * time.Second // then a channel that nobody uses is closed: the session may be needed
	patience    = 2 * time.Minute  // for the requests of one operation; a pipe that somebody put in a file's place blocks its channel for ever
)

// channels are SFTP channels. Each is used by one operation at a time, so that one that blocks stops no other, and ends with its channel.
type channels struct {
	data Data
	free chan struct{} // holds a token for each channel that may still be used

	mu   sync.Mutex
	idle []resting // of the last operations: many small files at a time would else open one for most of them
	shut bool
}

// resting is a channel that nobody uses.
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

// take returns a channel for one operation, which gives it back with give.
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

// give takes a channel back, or closes it after an error that was no answer of the server.
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

// end closes a channel that nobody uses any more.
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

// atOnce calls f for each element and returns the first error in the list's order. The requests of different calls are under way together,
// so many elements cost the round trips of one; there are at most [requestsAtOnce] of them.
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

// do carries an operation out on a channel. A channel that was lost while it was idle is tried once more: f must be safe to repeat.
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

// answered reports whether an error is the server's answer, or nothing that a new channel would mend.
func answered(err error) bool {
	if _, ok := errors.AsType[*sftp.StatusError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return true
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist)
}

// explain turns an error of SFTP into a fault.
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

// finish closes a file that was written, durable where the server can make it so. err is that of the writing.
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
