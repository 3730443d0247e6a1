package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/staging"
)

// runsFolder is storage.runs_dir of a cluster, on this host or elsewhere.
type runsFolder interface {
	name() string                       // for findings
	owner(ctx context.Context) []Result // its owner and mode
	write(ctx context.Context) []Result // whether it can be written
	links(ctx context.Context) []Result // whether the first link wins
	clock(ctx context.Context) []Result // the clock of its filesystem
	shared(dir string) shared           // a folder in it, for probe jobs
	// marked returns the gateway that owns the folder, and some of the names in it.
	marked(ctx context.Context) (mark string, names []string, err error)
	// lacks reports whether a run's folder is not in it, of which names are a part.
	lacks(names []string, runID string) bool
}

func (x *Exam) runsFolder() runsFolder {
	if x.Data != nil {
		return farRuns{x}
	}
	return ownRuns{x, x.Cluster.Storage.RunsDir}
}

// ownRuns is a runs_dir that this host sees.
type ownRuns struct {
	*Exam
	dir string
}

func (r ownRuns) name() string { return r.dir }

func (r ownRuns) owner(context.Context) []Result {
	return r.folder("storage.runs_dir", r.dir, unix.S_ISVTX)
}

func (r ownRuns) shared(dir string) shared { return localShared{r.dir, dir} }

func (r ownRuns) links(context.Context) []Result {
	if err := r.linkProbe(); err != nil {
		return failed("", err)
	}
	return ok("the first link wins in %s", r.dir)
}

func (r ownRuns) marked(context.Context) (mark string, names []string, err error) {
	if mark, err = staging.Mark(r.dir); err != nil {
		return "", nil, err
	}
	f, err := os.Open(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return mark, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	if names, err = f.Readdirnames(mostRuns); errors.Is(err, io.EOF) {
		err = nil
	}
	return mark, names, err
}

func (r ownRuns) lacks(names []string, runID string) bool {
	if slices.Contains(names, runID) {
		return false
	}
	_, err := os.Stat(filepath.Join(r.dir, runID))
	return errors.Is(err, fs.ErrNotExist)
}

// write makes the folder as a start does, writes to it, and checks its filesystem.
func (r ownRuns) write(context.Context) []Result {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return failed("", err)
	}
	f, err := os.CreateTemp(r.dir, ".doctor-write-")
	if err != nil {
		return failed("", err)
	}
	_, err = f.WriteString("x")
	if err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name())); err != nil {
		return failed("", err)
	}
	name, _, err := staging.Filesystem(r.dir)
	switch {
	case err != nil:
		return failed("", err)
	case name == "tmpfs" || name == "ramfs":
		return bad("set storage.runs_dir to a folder of the shared filesystem",
			"%s is in the memory of this host (%s): compute nodes do not see it", r.dir, name)
	}
	return ok("%s is on %s", r.dir, name)
}

// clock compares the time of a new file with this host's.
func (r ownRuns) clock(context.Context) []Result {
	before := time.Now()
	f, err := os.CreateTemp(r.dir, ".doctor-clock-")
	if err != nil {
		return failed("", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString("x")
	st, statErr := f.Stat()
	if err = errors.Join(err, f.Sync(), f.Close(), statErr); err != nil {
		return failed("", err)
	}
	return skew("the filesystem of "+r.dir, st.ModTime(), before, time.Now())
}

// linkProbe checks that a second link to a name fails and the first one stays.
func (r ownRuns) linkProbe() error {
	temp, err := os.MkdirTemp(r.dir, ".doctor-link-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	at := func(name string) string { return filepath.Join(temp, name) }
	err = errors.Join(os.WriteFile(at("a"), []byte("a"), 0o600), os.WriteFile(at("b"), []byte("b"), 0o600), os.Link(at("a"), at("claim")))
	if err != nil {
		return err
	}
	if os.Link(at("b"), at("claim")) == nil {
		return fault.New(fault.Internal, "", "a second link replaced the first")
	}
	got, err := os.ReadFile(at("claim"))
	if err == nil && string(got) != "a" {
		err = fault.New(fault.Internal, "", "the claim does not contain the winner's content")
	}
	return err
}
