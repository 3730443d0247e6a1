package artifact

import (
	"context"

	"slurmgate/files"
)

// Progress is how many bytes of how many an import, or the verification of an artifact, has copied and hashed.
type Progress = files.Progress

// Watched is a context in which imports and verifications count their bytes.
func Watched(ctx context.Context, p *Progress) context.Context { return files.Watched(ctx, p) }

// Expect says how many bytes those who watch may expect in all.
func Expect(ctx context.Context, bytes int64) { files.Watcher(ctx).Expect(bytes) }
