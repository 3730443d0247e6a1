package artifact

import (
	"context"

	"slurmgate/files"
)

// Progress counts the bytes that an import, or the verification of an artifact, has copied and hashed, and has their
// expected number.
type Progress = files.Progress

// Watched returns a context in which imports and verifications count their bytes.
func Watched(ctx context.Context, p *Progress) context.Context { return files.Watched(ctx, p) }

// Expect sets the number of bytes that a watcher may expect in all.
func Expect(ctx context.Context, bytes int64) { files.Watcher(ctx).Expect(bytes) }
