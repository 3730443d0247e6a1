package apptainer

import (
	"context"
	"sync"
)

// verdicts records, by the digest of an image, the state of its file when it was last verified.
type verdicts[State any] struct {
	mu       sync.Mutex
	byDigest map[string]*verdict[State]
}

type verdict[State any] struct {
	lock chan struct{} // full while the image is checked
	good State         // zero: not verified
}

// lock returns the verdict on an image, which stays locked until the caller calls unlock: it is held while the image is hashed, so that a
// hundred runs of one image read it once.
func (l *verdicts[State]) lock(ctx context.Context, digest string) (v *verdict[State], unlock func(), err error) {
	l.mu.Lock()
	if l.byDigest == nil {
		l.byDigest = map[string]*verdict[State]{}
	}
	if v = l.byDigest[digest]; v == nil {
		v = &verdict[State]{lock: make(chan struct{}, 1)}
		l.byDigest[digest] = v
	}
	l.mu.Unlock()
	select {
	case v.lock <- struct{}{}:
		return v, func() { <-v.lock }, nil
	case <-ctx.Done():
		return nil, nil, copyFault(ctx.Err())
	}
}
