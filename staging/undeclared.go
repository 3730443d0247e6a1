package staging

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/plan"
	"slurmgate/secrets"
	"slurmgate/visible"
)

// Bounds of the walk through out/.
const (
	walkDepth   = 32
	walkEntries = 100_000
	walkTime    = 10 * time.Second
	nameBytes   = 256
)

// Undeclared lists at most limit files below out/ that are not among declared, as src_relpaths, sorted. Links, pipes and similar entries
// count as files and are not followed. A folder that was not searched (too deep, too many entries, too slow, not readable) is listed
// with a trailing slash: whether its content is declared is unknown. Names that a plan could not use are quoted; long ones are cut.
func (s *Shared) Undeclared(ctx context.Context, runID string, n int, declared []string, limit int) ([]string, error) {
	a, err := s.attempt(ctx, runID, n, "")
	if err != nil {
		return nil, err
	}
	defer a.close()
	w := walk{ctx: ctx, limit: limit, left: walkEntries, until: time.Now().Add(walkTime), declared: map[string]bool{}}
	for _, d := range declared {
		w.declared[d] = true
	}
	w.folder(a, "out", "out", walkDepth)
	if err := done(ctx); err != nil {
		return nil, err
	}
	slices.Sort(w.found)
	return w.found, nil
}

type walk struct {
	ctx      context.Context
	limit    int // of found
	left     int // entries that may still be examined
	until    time.Time
	declared map[string]bool
	found    []string
}

func (w *walk) full() bool { return len(w.found) >= w.limit || w.ctx.Err() != nil }

func (w *walk) add(rel string) {
	if len(w.found) < w.limit {
		w.found = append(w.found, Printable(rel))
	}
}

// folder searches one folder; name is its name in parent, rel its path for people.
func (w *walk) folder(parent dir, name, rel string, depth int) {
	sub, err := parent.sub(name)
	if err != nil || depth == 0 {
		if err == nil {
			sub.close()
		}
		if !errors.Is(err, unix.ENOENT) {
			w.add(rel + "/")
		}
		return
	}
	defer sub.close()
	f, err := sub.listing()
	if err != nil {
		w.add(rel + "/")
		return
	}
	defer f.Close()
	for !w.full() {
		if w.left <= 0 || time.Now().After(w.until) {
			w.add(rel + "/")
			return
		}
		names, err := f.Readdirnames(min(w.left, 256))
		for _, n := range names {
			w.left--
			if w.full() {
				return
			}
			w.entry(sub, n, rel+"/"+n, depth)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			w.add(rel + "/")
			return
		}
	}
}

func (w *walk) entry(parent dir, name, rel string, depth int) {
	st, err := parent.stat(name)
	if errors.Is(err, unix.ENOENT) {
		return
	}
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if w.declared[rel] { // with all its content
			return
		}
		w.folder(parent, name, rel, depth-1)
		return
	}
	if !w.declared[rel] {
		w.add(rel)
	}
}

// Printable formats a path for a warning: unchanged if it is short and a plan could use it, otherwise quoted, escaped and cut. A folder's
// trailing slash does not count.
func Printable(rel string) string {
	plain := strings.TrimSuffix(rel, "/")
	if len(rel) <= nameBytes && (plain == "out" || plan.CheckRelPath(plain, "out") == "") {
		return visible.Line(rel)
	}
	q := strconv.QuoteToASCII(rel)
	if head, more := secrets.Default().Head(q, nameBytes); more {
		q = head + "…"
	}
	return q
}
