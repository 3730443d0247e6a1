package sftp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/staging"
)

// OpenOutput opens a declared output and returns its size in bytes. The far side checks it: a regular file below out/,
// reached without a symlink, with a single name, owned by the job's user. Anything else is a Tool fault with a code of
// package run. The reader returns exactly that many bytes, or an error; only their checksum shows whether they are the
// right ones.
func (w *Workspace) OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error) {
	if err := staging.CheckSource(srcRelpath); err != nil {
		return nil, 0, err
	}
	if err := check(ctx, runID, n); err != nil {
		return nil, 0, err
	}
	e, err := w.far.output(ctx, runID, n, srcRelpath)
	if err != nil {
		return nil, 0, err
	}
	owner := e.self
	if w.cfg.JobUID != nil {
		owner = *w.cfg.JobUID
	}
	if err := staging.Acceptable(srcRelpath, e.mode, e.nlink, e.uid, owner); err != nil {
		return nil, 0, err
	}
	r, err := w.fetch(ctx, "declared output "+srcRelpath, w.onData(runID, staging.AttemptName(n), srcRelpath), e.size)
	if err != nil {
		return nil, 0, err
	}
	return r, e.size, nil
}

// fetch opens a file that was examined as a regular one of this size. If the data host shows another size or kind, its
// view is stale.
func (w *Workspace) fetch(ctx context.Context, what, name string, size int64) (io.ReadCloser, error) {
	err := w.channels.do(ctx, what+" cannot be opened", func(c *sftp.Client) error {
		st, err := c.Lstat(name)
		if err == nil && (!st.Mode().IsRegular() || st.Size() != size) {
			err = fault.New(fault.Transport, "data_host_stale",
				fmt.Sprintf("the SFTP server shows %s as %s of %d bytes, but it has %d", what, st.Mode(), st.Size(), size))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	out, in := io.Pipe()
	go func() {
		_, err := w.cfg.Pool.Get(ctx, transfer.File{Path: name, Size: size, Name: what, Grows: true}, 0, nil, in)
		if fault.Is(err, fault.Tool) { // it was correct when it was examined
			err = fault.Wrap(fault.Transport, "output_short", "the SFTP server no longer shows all of "+what, err)
		}
		in.CloseWithError(err)
	}()
	return output{out, stop}, nil
}

// output is a file in transfer. Close ends the transfer.
type output struct {
	*io.PipeReader
	stop context.CancelFunc
}

func (o output) Close() error {
	o.stop()
	return o.PipeReader.Close()
}

// examining holds the outputs of one attempt that one call examines.
type examining struct {
	rels    []string
	entries []entry // nil: each must be examined separately
	done    chan struct{}
}

// examinations batches the calls about outputs: the running and the waiting one of each attempt. Requests that arrive
// while a script runs go into the next call together: an output may be a folder of 200,000 files, and each call costs a
// round trip.
type examinations struct {
	mu      sync.Mutex
	running map[string]*examining
	waiting map[string]*examining
}

// examine examines an output in one call with others. It reports whether there is an answer.
func (x *examinations) examine(ctx context.Context, attempt, rel string, ask func(rels []string) []entry) (entry, bool) {
	x.mu.Lock()
	e, before, first := x.waiting[attempt], x.running[attempt], false
	if e == nil {
		e, first = &examining{done: make(chan struct{})}, true
		x.waiting[attempt] = e
	}
	at := len(e.rels)
	e.rels = append(e.rels, rel)
	x.mu.Unlock()
	if first {
		if before != nil {
			<-before.done // it ends: its script has a limit of time, and the connection
		}
		x.mu.Lock()
		delete(x.waiting, attempt)
		x.running[attempt] = e
		x.mu.Unlock()
		e.entries = ask(e.rels)
		x.mu.Lock()
		if x.running[attempt] == e {
			delete(x.running, attempt)
		}
		x.mu.Unlock()
		close(e.done)
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		return entry{}, false
	}
	if e.entries == nil {
		return entry{}, false
	}
	return e.entries[at], true
}

// outputs examines several declared outputs. It returns nil if one of them is not a regular file or cannot be examined.
func (s *shelled) outputs(ctx context.Context, runID string, n int, rels []string) []entry {
	out, err := s.run(ctx, call{script: outputScript, name: "outputs", args: append([]string{runID, strconv.Itoa(n)}, rels...),
		limit: int64(64 * (len(rels) + 1))})
	lines := strings.SplitAfter(string(out), "\n")
	if err != nil || len(lines) != len(rels)+1 || lines[len(rels)] != "" {
		return nil
	}
	list := make([]entry, len(rels))
	for i := range list {
		e, err := parseEntry(lines[i])
		if err != nil || e.mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		list[i] = e
	}
	return list
}

func parseEntry(line string) (e entry, err error) {
	_, err = fmt.Sscanf(line, "%x %d %d %d %d\n", &e.mode, &e.nlink, &e.uid, &e.size, &e.self)
	if err == nil && e.size < 0 {
		err = errors.New("a size is not negative")
	}
	return e, err
}

func (s *shelled) output(ctx context.Context, runID string, n int, rel string) (entry, error) {
	e, ok := s.asked.examine(ctx, runID+staging.AttemptName(n), rel, func(rels []string) []entry { return s.outputs(ctx, runID, n, rels) })
	if ok {
		return e, nil
	}
	return s.outputAlone(ctx, runID, n, rel)
}

func (s *shelled) outputAlone(ctx context.Context, runID string, n int, rel string) (entry, error) {
	out, err := s.run(ctx, call{script: outputScript, name: "output", args: []string{runID, strconv.Itoa(n), rel}})
	if r, is := err.(*refusal); is {
		switch r.exit {
		case exitNoOutput:
			return entry{}, staging.OutputFault(run.OutputMissing, rel, "does not exist")
		case exitOutputSymlink:
			return entry{}, staging.OutputFault(run.OutputSymlink, rel, "is a symlink or is reached through one; only regular files are collected")
		case exitUnreadable:
			return entry{}, staging.OutputFault(run.OutputUnreadable, rel, "cannot be read by the gateway (permissions)")
		}
	}
	if err != nil {
		return entry{}, s.fault("declared output "+rel+" cannot be examined", runID, n, "", err)
	}
	e, err := parseEntry(string(out))
	if err != nil {
		return entry{}, fault.Wrap(fault.Transport, "far_shell", "the script on the login node gave half an answer", err)
	}
	return e, nil
}

// Bounds of the walk through out/.
const (
	walkDepth   = 32
	walkEntries = 100_000
	walkSeconds = 10
	walkNames   = 2_000_000 // in an answer of the script, which stops far below that
)

// listing holds what a walk found: paths that begin with out.
type listing struct {
	folders  map[string]bool
	closed   []string // folders that cannot be read
	all      []string // all entries, folders too
	complete bool
}

// Undeclared lists at most limit files below out/ that are not among declared, as src_relpaths, sorted. See [staging.Shared.Undeclared].
func (w *Workspace) Undeclared(ctx context.Context, runID string, n int, declared []string, limit int) ([]string, error) {
	if err := check(ctx, runID, n); err != nil {
		return nil, err
	}
	l, err := w.far.list(ctx, runID, n, declared)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, dir := range l.closed {
		found[dir+"/"] = true
	}
	if !l.complete || len(l.all) > walkEntries {
		found["out/"] = true
	}
	for _, rel := range l.all[:min(len(l.all), walkEntries)] {
		if deep := deeper(rel); deep != "" {
			rel = deep + "/"
		} else if l.folders[rel] || isDeclared(rel, declared) {
			continue
		}
		if len(found) >= limit {
			break
		}
		found[rel] = true
	}
	list := make([]string, 0, len(found))
	for rel := range found {
		list = append(list, staging.Printable(rel))
	}
	slices.Sort(list)
	return list[:min(limit, len(list))], nil
}

// isDeclared reports whether an entry is declared, or in a folder that is.
func isDeclared(rel string, declared []string) bool {
	return slices.ContainsFunc(declared, func(d string) bool { return rel == d || strings.HasPrefix(rel, d+"/") })
}

// deeper returns the ancestor of an entry below which nothing is listed, or "" if the entry is not too deep.
func deeper(rel string) string {
	for i, depth := 0, 0; i < len(rel); i++ {
		if rel[i] != '/' {
			continue
		}
		if depth++; depth > walkDepth {
			return rel[:i]
		}
	}
	return ""
}

func (s *shelled) list(ctx context.Context, runID string, n int, declared []string) (listing, error) {
	const msg = "what is in out/ cannot be listed"
	out, err := s.run(ctx, call{script: outputScript, name: "list", limit: maxAnswer,
		args: append([]string{runID, strconv.Itoa(n), strconv.Itoa(walkSeconds)}, declared...)})
	if err != nil {
		return listing{}, s.fault(msg, runID, n, "", err)
	}
	l, ok := parseListing(out)
	if !ok {
		return listing{}, fault.New(fault.Transport, "far_shell", msg+": the script on the login node gave half an answer")
	}
	return l, nil
}

// parseListing parses the answer of the script: see op_list in outputs.sh.
func parseListing(out []byte) (l listing, ok bool) {
	if bytes.Count(out, []byte{0}) > walkNames {
		return l, false
	}
	words := strings.Split(string(bytes.TrimSuffix(out, []byte{0})), "\x00")
	part := func() (list []string) {
		i := slices.Index(words, "")
		if ok = i >= 0; ok {
			list, words = words[:i], words[i+1:]
			for i, name := range list {
				list[i] = strings.TrimPrefix(name, "./")
			}
		}
		return list
	}
	l.folders = map[string]bool{}
	for _, f := range part() {
		l.folders[f] = true
	}
	if !ok {
		return l, false
	}
	if l.closed = part(); !ok || len(words) == 0 || !bytes.HasSuffix(out, []byte{0}) {
		return l, false
	}
	status, err := strconv.Atoi(words[len(words)-1])
	l.complete = status == 0 || status == 1 // du exits with 1 if it could not read a folder
	words = words[:len(words)-1]
	if !l.complete && len(words) > 0 {
		words = words[:len(words)-1] // cut in the middle of a name
	}
	for _, w := range words {
		if _, name, sized := strings.Cut(w, "\t"); sized {
			l.all = append(l.all, strings.TrimPrefix(name, "./"))
		}
	}
	return l, err == nil
}
