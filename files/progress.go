package files

import (
	"context"
	"sync/atomic"
)

// Progress counts the bytes that were copied or hashed, and their total. It is safe for concurrent use. Methods that
// change it accept a nil receiver.
type Progress struct {
	done, of, skipped atomic.Int64

	instead atomic.Pointer[Progress]
}

// Bytes returns the bytes done, and the total; of is 0 if that is unknown.
func (p *Progress) Bytes() (done, of int64) {
	if other := p.instead.Load(); other != nil {
		return other.Bytes()
	}
	return p.done.Load(), p.of.Load()
}

// Skipped returns how many of the bytes done were done before, by an interrupted copy.
func (p *Progress) Skipped() int64 {
	if other := p.instead.Load(); other != nil {
		return other.Skipped()
	}
	return p.skipped.Load()
}

// Skip counts bytes that were done before.
func (p *Progress) Skip(n int64) {
	if p != nil {
		p.skipped.Add(n)
		p.done.Add(n)
	}
}

// Count counts bytes that another host has copied or hashed.
func (p *Progress) Count(n int64) {
	if p != nil {
		p.done.Add(n)
	}
}

// Expect sets the total number of bytes.
func (p *Progress) Expect(of int64) {
	if p != nil {
		p.of.Store(of)
	}
}

// Follow makes p show the progress of other, the copy that this one waits for.
func (p *Progress) Follow(other *Progress) {
	if p != nil && p != other {
		p.instead.Store(other)
	}
}

type progressKey struct{}

// Watched returns a context in which p counts every byte that is copied or hashed.
func Watched(ctx context.Context, p *Progress) context.Context {
	return context.WithValue(ctx, progressKey{}, p)
}

// Watcher returns the progress of a context, or nil if it has none.
func Watcher(ctx context.Context) *Progress {
	p, _ := ctx.Value(progressKey{}).(*Progress)
	return p
}

// Count counts bytes if the context has a progress.
func Count(ctx context.Context, n int) {
	if p := Watcher(ctx); p != nil && n != 0 {
		p.done.Add(int64(n))
	}
}
