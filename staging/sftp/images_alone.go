package sftp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/fault"
)

// A folder of images with SFTP alone: hashing means reading all bytes, and a state is size and time of the last change, which the file's
// owner can set back. The job hashes its image before anything runs, so a change that this misses is found there.

// readAll hashes a file by reading it, unless it has the known state.
func (f *Folder) readAll(ctx context.Context, name, known string) (sum, state string, err error) {
	err = f.channels.long(ctx, name+" cannot be read", func(c *sftp.Client) error {
		file := path.Join(f.data, name)
		st, err := c.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.NotFound, "file_missing", "the SFTP server has no "+file)
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			return fault.New(fault.Validation, "file_irregular", file+" is not a regular file")
		}
		state = fmt.Sprintf("%d:%d", st.Size(), st.ModTime().Unix())
		if state == known {
			sum = ""
			return nil
		}
		src, err := c.OpenFile(file, os.O_RDONLY)
		if err != nil {
			return err
		}
		defer src.Close()
		h := sha256.New()
		if _, err := src.WriteTo(h); err != nil {
			return err
		}
		sum = hex.EncodeToString(h.Sum(nil))
		return nil
	})
	return sum, state, err
}

// placeAlone gives a file that was sent its name.
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
