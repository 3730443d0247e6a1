package artifact

import (
	"context"
	"sync"

	"slurmgate/files"
)

// flights are the imports of large files in progress. Identical ones – the same state of the same file, under the same name and type – read
// and hash it once.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

type flight struct {
	done     chan struct{} // closed at its end
	got      Imported
	err      error
	progress *files.Progress // nil: no caller watches
}

// once carries out f, or waits for one with the same key that is under way. One whose caller gave up is carried out again by one who has
// not. own reports whether it was this call that carried it out.
func (fl *flights) once(ctx context.Context, key string, f func(ctx context.Context) (Imported, error)) (got Imported, own bool,
	err error) {
	for {
		fl.mu.Lock()
		one, under := fl.all[key]
		if !under {
			one = &flight{done: make(chan struct{}), progress: files.Watcher(ctx)}
			if fl.all == nil {
				fl.all = map[string]*flight{}
			}
			if one.progress == nil { // others may want to know
				one.progress = &files.Progress{}
				ctx = files.Watched(ctx, one.progress)
			}
			one.progress.Follow(nil)
			fl.all[key] = one
		}
		fl.mu.Unlock()
		if !under {
			one.got, one.err = f(ctx)
			fl.mu.Lock()
			delete(fl.all, key)
			fl.mu.Unlock()
			close(one.done)
			return one.got, true, one.err
		}
		files.Watcher(ctx).Follow(one.progress)
		select {
		case <-one.done:
		case <-ctx.Done():
			return got, false, fsFault("the bytes cannot be stored", ctx.Err())
		}
		if one.err == nil {
			return one.got, false, nil
		}
	}
}
