package doctor

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/sftp"
)

// shared is the folder in runs_dir that doctor and its probe jobs have in common, on this host or elsewhere.
type shared interface {
	// tidy removes what an earlier doctor left that was killed.
	tidy(ctx context.Context)
	make(ctx context.Context, files map[string]string) error
	names(ctx context.Context) ([]string, error)
	read(ctx context.Context, name string) ([]byte, error)
	remove(ctx context.Context) error
}

// mostAnswer bounds what is read of a probe's answer.
const mostAnswer = 1 << 20

type localShared struct{ runs, dir string }

func (l localShared) at(name string) string { return filepath.Join(l.runs, l.dir, name) }

func (l localShared) tidy(context.Context) {
	old, _ := filepath.Glob(filepath.Join(l.runs, ".doctor-*")) // the pattern is right
	for _, dir := range old {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && time.Since(st.ModTime()) > leftover {
			_ = os.RemoveAll(dir) // what cannot be removed harms nothing
		}
	}
}

func (l localShared) make(_ context.Context, files map[string]string) error {
	err := os.Mkdir(l.at(""), 0o700)
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(l.at(name), []byte(text), 0o600)
		}
	}
	return err
}

func (l localShared) names(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(l.at(""))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (l localShared) read(_ context.Context, name string) ([]byte, error) {
	return os.ReadFile(l.at(name))
}

func (l localShared) remove(context.Context) error { return os.RemoveAll(l.at("")) }

// farShared is a folder that is reached by SFTP. Each call has a separate channel, so that a lost connection costs one
// call.
type farShared struct {
	x   *Exam
	dir string
}

func (f farShared) at(name string) string {
	return path.Join(f.x.Cluster.Storage.SFTP.RunsDir, f.dir, name)
}

func (f farShared) tidy(ctx context.Context) {
	runs := f.x.Cluster.Storage.SFTP.RunsDir
	_ = f.x.sftp(ctx, func(c *sftp.Client) error { // what cannot be removed harms nothing
		entries, err := c.ReadDir(runs)
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), ".doctor-") && time.Since(e.ModTime()) > leftover {
				err = errors.Join(err, c.RemoveAll(path.Join(runs, e.Name())))
			}
		}
		return err
	})
}

func (f farShared) make(ctx context.Context, files map[string]string) error {
	return f.x.sftp(ctx, func(c *sftp.Client) error {
		err := c.Mkdir(f.at(""))
		if err == nil {
			err = c.Chmod(f.at(""), 0o700)
		}
		for name, text := range files {
			if err == nil {
				err = writeFar(c, f.at(name), []byte(text))
			}
		}
		return err
	})
}

func (f farShared) names(ctx context.Context) (names []string, err error) {
	err = f.x.sftp(ctx, func(c *sftp.Client) error {
		entries, err := c.ReadDir(f.at(""))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return err
	})
	return names, err
}

func (f farShared) read(ctx context.Context, name string) (text []byte, err error) {
	err = f.x.sftp(ctx, func(c *sftp.Client) (err error) {
		text, err = readFar(c, f.at(name), mostAnswer)
		return err
	})
	return text, err
}

func (f farShared) remove(ctx context.Context) error {
	return f.x.sftp(ctx, func(c *sftp.Client) error { return c.RemoveAll(f.at("")) })
}
