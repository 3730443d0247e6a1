package artifact

import (
	"context"
	"io"
	"path/filepath"

	"slurmgate/fault"
	"slurmgate/files"
)

// OpenAs opens a regular file of at most limit bytes, by its real name, with the rights of one user of a cluster, over that user's login.
// The caller closes the reading.
type OpenAs func(ctx context.Context, path string, limit int64) (Reading, error)

// Reading is a file that is read with the rights of a user.
type Reading interface {
	io.ReadCloser
	Bytes() int64                        // its size
	Unchanged(ctx context.Context) error // after the last byte: whether it is the file that was opened, as it was then
}

// ImportAs stores the bytes of a file that open opens. The gateway's own rights do not count: not even to find out whether the file exists.
// With roots, the path must be below one that scope may read.
func (im *Importer) ImportAs(ctx context.Context, path string, scope Scope, open OpenAs) (Imported, error) {
	err := plainName(path)
	if err == nil && len(im.roots) > 0 {
		_, _, err = im.locate(path, scope)
	}
	if err != nil {
		return Imported{}, err
	}
	if im.isOwn(path) {
		return Imported{}, ownFault(path)
	}
	r, err := open(ctx, path, im.maxBytes)
	if err != nil {
		return Imported{}, err
	}
	defer r.Close()
	files.Watcher(ctx).Expect(r.Bytes())
	name := filepath.Base(path)
	got, err := im.take(ctx, source{r, im.inspect(name, "path", r.Bytes()), r.Bytes(), im.maxBytes, labelOf(name), func(size int64) error {
		if size != r.Bytes() {
			return changed(path)
		}
		return r.Unchanged(ctx)
	}, "", nil})
	if fault.CodeOf(err) == "artifact_too_large" { // it had an allowed size before
		err = changed(path)
	}
	return got, err
}
