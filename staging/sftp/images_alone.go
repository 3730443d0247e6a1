package sftp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote/transfer"
)

// A folder of images with SFTP alone: hashing means reading all bytes, and a state is size and time of the last change,
// which the file's owner can set back. The job hashes its image before the program starts, so it detects a change that
// this misses.

// readAll hashes a file by reading it, unless it has the known state.
func (f *Folder) readAll(ctx context.Context, name, known string) (sum, state string, err error) {
	file := transfer.File{Path: path.Join(f.data, name)}
	err = f.channels.do(ctx, name+" cannot be read", func(c *sftp.Client) error {
		st, err := c.Lstat(file.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.NotFound, "file_missing", "the SFTP server has no "+file.Path)
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			return fault.New(fault.Validation, "file_irregular", file.Path+" is not a regular file")
		}
		file.Size, state = st.Size(), fmt.Sprintf("%d:%d", st.Size(), st.ModTime().Unix())
		return nil
	})
	if err != nil || state == known {
		return "", state, err
	}
	h := sha256.New()
	_, err = f.pool.Get(ctx, file, 0, h, io.Discard)
	return hex.EncodeToString(h.Sum(nil)), state, err
}

// placeAlone gives a sent file its name.
func (f *Folder) placeAlone(ctx context.Context, temp, name string) error {
	return f.channels.do(ctx, name+" cannot be put in its place", func(c *sftp.Client) error {
		from, to := path.Join(f.data, temp), path.Join(f.data, name)
		if err := c.Chmod(from, 0o444); err != nil {
			if _, there := c.Lstat(to); there == nil && errors.Is(err, fs.ErrNotExist) {
				return nil // the answer to an earlier try was lost
			}
			return err
		}
		return c.PosixRename(from, to)
	})
}

func (f *Folder) namesAlone(ctx context.Context) (map[string]int64, error) {
	names := map[string]int64{}
	err := f.channels.do(ctx, "the folder cannot be listed", func(c *sftp.Client) error {
		clear(names)
		list, err := c.ReadDirContext(ctx, f.data)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range list {
			if e.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".sif") {
				names[e.Name()] = e.Size()
			}
		}
		return err
	})
	return names, err
}
