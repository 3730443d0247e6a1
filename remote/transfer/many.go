package transfer

import (
	"context"
	"io"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"
)

const (
	manyFiles = 512      // greatest number of concurrent files of PutMany
	manyBytes = 32 << 20 // of memory for them
)

// PutMany puts each file as [Pool.Put] does, many at a time. It ends with the first error; files that were put before
// remain. The source of a file is opened when its turn comes, and closed if it is an [io.Closer].
func (p *Pool) PutMany(ctx context.Context, files iter.Seq2[File, func() (io.ReaderAt, error)]) error {
	transfers, ctx := errgroup.WithContext(ctx)
	budget := newBudget(manyFiles, manyBytes)
	for f, open := range files {
		need := min(f.Size, int64(p.tune.window*len(p.slots)))
		if budget.take(ctx, need) != nil {
			transfers.Go(func() error { return context.Cause(ctx) })
			break
		}
		transfers.Go(func() error {
			defer budget.give(need)
			return p.putOpened(ctx, f, open)
		})
	}
	return transfers.Wait()
}

func (p *Pool) putOpened(ctx context.Context, f File, open func() (io.ReaderAt, error)) error {
	src, err := open()
	if err != nil {
		return err
	}
	if c, ok := src.(io.Closer); ok {
		defer c.Close()
	}
	_, err = p.Put(ctx, f, src)
	return err
}

// budget bounds the number of concurrent transfers and their memory.
type budget struct {
	mu           sync.Mutex
	freed        chan struct{} // holds a token after something was returned
	files, bytes int64
}

func newBudget(files, bytes int64) *budget {
	return &budget{files: files, bytes: bytes, freed: make(chan struct{}, 1)}
}

// take waits until there is room for a transfer of so many bytes. A transfer larger than the whole budget waits until
// it is alone.
func (b *budget) take(ctx context.Context, bytes int64) error {
	for {
		b.mu.Lock()
		ok := b.files > 0 && (b.bytes >= bytes || b.bytes >= manyBytes)
		if ok {
			b.files--
			b.bytes -= bytes
		}
		b.mu.Unlock()
		if ok {
			return ctx.Err()
		}
		select {
		case <-b.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *budget) give(bytes int64) {
	b.mu.Lock()
	b.files++
	b.bytes += bytes
	b.mu.Unlock()
	select {
	case b.freed <- struct{}{}:
	default:
	}
}
