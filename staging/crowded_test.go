package staging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder with too many names is not listed whole, and a caller that measures its size can give up.
func TestCrowdedFolder(t *testing.T) {
	base := t.TempDir()
	first := filepath.Join(base, "0")
	must(t, os.WriteFile(first, nil, 0o600))
	for i := 1; i <= maxNames; i++ { // links: a hundred thousand inodes are expensive
		if i%30_000 == 0 {
			first = filepath.Join(base, fmt.Sprint("f", i))
			must(t, os.WriteFile(first, nil, 0o600))
		}
		must(t, os.Link(first, filepath.Join(base, fmt.Sprint(i))))
	}
	f, err := os.Open(base)
	must(t, err)
	defer f.Close()
	d := dir{int(f.Fd())}
	if names, err := d.names(); err == nil || !strings.Contains(err.Error(), "more than 100000 names") {
		t.Errorf("%d names, %v", len(names), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if n, err := d.size(ctx, ".", maxDepth); err != context.Canceled {
		t.Errorf("%d bytes, %v", n, err)
	}
}
