package artifact

import (
	"context"
	"io"
	"runtime"
)

// during returns f, readable until ctx ends: work on its bytes ends with its caller. Between two reads other
// goroutines run, so that reading a run does not wait for a whole preview.
func during(ctx context.Context, f io.ReaderAt) io.ReaderAt { return readerDuring{ctx, f} }

type readerDuring struct {
	ctx context.Context
	f   io.ReaderAt
}

func (r readerDuring) ReadAt(p []byte, at int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	runtime.Gosched()
	return r.f.ReadAt(p, at)
}
