package files

import (
	"context"
	"sync/atomic"
)

// Progress is how many bytes of how many were copied or hashed. It is safe for concurrent use.
type Progress struct {
	done, of, skipped atomic.Int64

	instead atomic.Pointer[Progress]
}

// Bytes are those done, and those there are in all; of is 0 where that is not known.
func (p *Progress) Bytes() (done, of int64) {
	if other := p.instead.Load(); other != nil {
		return other.Bytes()
	}
	return p.done.Load(), p.of.Load()
}

// Skipped are those of the bytes done that had been done before, by a copy that was cut.
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

// Expect says how many bytes there are in all.
func (p *Progress) Expect(of int64) {
	if p != nil {
		p.of.Store(of)
	}
}

// Follow makes p show another's progress: of the copy that this one waits for.
func (p *Progress) Follow(other *Progress) {
	if p != nil && p != other {
		p.instead.Store(other)
	}
}

type progressKey struct{}

// Watched is a context in which every byte that is copied or hashed is counted.
func Watched(ctx context.Context, p *Progress) context.Context {
	return context.WithValue(ctx, progressKey{}, p)
}

// Watcher is the progress that a context counts for; nil: none.
func Watcher(ctx context.Context) *Progress {
	p, _ := ctx.Value(progressKey{}).(*Progress)
	return p
}

// Count counts bytes, where somebody watches.
func Count(ctx context.Context, n int) {
	if p := Watcher(ctx); p != nil && n != 0 {
		p.done.Add(int64(n))
	}
}
