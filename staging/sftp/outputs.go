package sftp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/staging"
)

// OpenOutput opens a declared output and returns its size in bytes. What it is, is examined on the far side: a regular file below out/,
// reached without a symlink, with a single name, owned by the job's user. Anything else is a Tool fault with a code of package run. The
// reader gives as many bytes as it was then, or an error; whether they are the right ones, their checksum says.
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

// fetch opens a file that was found to be a regular one of this size. A data host that does not show it so has not noticed it yet.
func (w *Workspace) fetch(ctx context.Context, what, name string, size int64) (io.ReadCloser, error) {
	r := &reader{ctx: ctx, w: w, what: what, name: name, left: size}
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
	if w.cfg.Pool != nil {
		return w.pooled(ctx, what, name, size), nil
	}
	return r, nil
}

// pooled reads a file over the connections of the pool, and within its bandwidth.
func (w *Workspace) pooled(ctx context.Context, what, name string, size int64) io.ReadCloser {
	ctx, stop := context.WithCancel(ctx)
	out, in := io.Pipe()
	go func() {
		_, err := w.cfg.Pool.Get(ctx, transfer.File{Path: name, Size: size}, 0, nil, in)
		if fault.Is(err, fault.Tool) { // the login node saw the file as it should be, so the data host will
			err = fault.Wrap(fault.Transport, "data_host_stale", "the SFTP server shows "+what+" in another state than the login node does", err)
		}
		in.CloseWithError(err)
	}()
	return pooled{out, stop}
}

// pooled is a file that is on its way. Closing it ends the transfer.
type pooled struct {
	*io.PipeReader
	stop context.CancelFunc
}

func (p pooled) Close() error {
	p.stop()
	return p.PipeReader.Close()
}

// readAhead is how much of an output is requested at a time; the requests for it are under way together.
const readAhead = 4 << 20

// reader reads a file over SFTP. It asks for a channel when it needs bytes, so that an open output holds none.
type reader struct {
	ctx  context.Context
	w    *Workspace
	what string
	name string
	at   int64
	left int64
	buf  []byte // read and not given away yet
	room []byte
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.buf) == 0 && r.left > 0 {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	if len(r.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *reader) more() error {
	if r.room == nil {
		r.room = make([]byte, min(r.left, readAhead))
	}
	want := r.room[:min(r.left, int64(len(r.room)))]
	err := r.w.channels.do(r.ctx, r.what+" cannot be read", func(c *sftp.Client) error {
		f, err := c.OpenFile(r.name, os.O_RDONLY)
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := f.ReadAt(want, r.at)
		if n < len(want) && (err == nil || err == io.EOF) {
			return fault.New(fault.Transport, "output_short",
				fmt.Sprintf("%s ends after %d bytes on the SFTP server, %d fewer than it should have", r.what, r.at+int64(n), r.left-int64(n)))
		}
		if n == len(want) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	r.at += int64(len(want))
	r.left -= int64(len(want))
	r.buf = want
	return nil
}

func (r *reader) Close() error { return nil }

func (s *shelled) output(ctx context.Context, runID string, n int, rel string) (entry, error) {
	out, err := s.run(ctx, call{script: outputScript, name: "output", args: []string{runID, strconv.Itoa(n), rel}})
	if r, is := err.(*refusal); is {
		switch r.exit {
		case exitNoOutput:
			return entry{}, staging.OutputFault(run.OutputMissing, rel, "does not exist")
		case exitOutputSymlink:
			return entry{}, staging.OutputFault(run.OutputSymlink, rel, "is a symlink or lies behind one; only regular files are collected")
		case exitUnreadable:
			return entry{}, staging.OutputFault(run.OutputUnreadable, rel, "cannot be read by the gateway (permissions)")
		}
	}
	if err != nil {
		return entry{}, s.fault("declared output "+rel+" cannot be examined", runID, n, "", err)
	}
	var e entry
	if _, err := fmt.Sscanf(string(out), "%x %d %d %d %d\n", &e.mode, &e.nlink, &e.uid, &e.size, &e.self); err != nil {
		return entry{}, fault.Wrap(fault.Transport, "far_shell", "the script on the login node gave half an answer", err)
	}
	return e, nil
}

// Bounds of the walk through out/.
const (
	walkDepth   = 32
	walkEntries = 100_000
	walkSeconds = 10
)

// listing is what a walk found: paths that begin with out.
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
	l, err := w.far.list(ctx, runID, n)
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
		} else if l.folders[rel] || slices.Contains(declared, rel) {
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

// deeper is the folder on the way to an entry below which nothing is listed.
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

func (s *shelled) list(ctx context.Context, runID string, n int) (listing, error) {
	const msg = "what is in out/ cannot be listed"
	out, err := s.run(ctx, call{script: outputScript, name: "list", args: []string{runID, strconv.Itoa(n), strconv.Itoa(walkSeconds)},
		limit: maxAnswer})
	if err != nil {
		return listing{}, s.fault(msg, runID, n, "", err)
	}
	l, ok := parseListing(out)
	if !ok {
		return listing{}, fault.New(fault.Transport, "far_shell", msg+": the script on the login node gave half an answer")
	}
	return l, nil
}

// parseListing reads the answer of the script: see op_list in outputs.sh.
func parseListing(out []byte) (l listing, ok bool) {
	words := strings.Split(string(bytes.TrimSuffix(out, []byte{0})), "\x00")
	part := func() (list []string) {
		i := slices.Index(words, "")
		if ok = i >= 0; ok {
			list, words = words[:i], words[i+1:]
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
	l.complete = status == 0 || status == 1 // du has said 1 where it could not read a folder
	words = words[:len(words)-1]
	if !l.complete && len(words) > 0 {
		words = words[:len(words)-1] // cut in the middle of a name
	}
	for _, w := range words {
		if _, name, sized := strings.Cut(w, "\t"); sized {
			l.all = append(l.all, name)
		}
	}
	return l, err == nil
}
