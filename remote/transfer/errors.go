package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/pkg/sftp"

	"slurmgate/fault"
)

// Codes of this package's faults.
const (
	CodeLost     = "sftp_lost"          // Transport: the connection was lost too often
	CodeDiskFull = "disk_full"          // Transport
	CodeRefused  = "sftp_refused"       // Transport: the server refused a request and gave no reason
	CodeMissing  = "sftp_missing"       // NotFound: the file, or its folder
	CodeSize     = "transfer_size"      // Tool for a download, Transport for an upload: another size than expected
	CodeSum      = "transfer_checksum"  // Tool for a download, Validation for an upload: other bytes than expected
	CodeKind     = "transfer_irregular" // Tool: not a regular file
	CodeChanged  = "transfer_changed"   // Validation: the source changed during the upload
)

var (
	errStalled = errors.New("the server did not answer in time")
)

// dialError marks an error of connecting.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// mayReturn reports whether an error came from the connection, or from connecting, so that another connection may
// succeed. Any other error is the server's answer. A closed channel of x/crypto/ssh gives io.EOF for a write, so a
// file's end is recognized where it is read.
func mayReturn(err error) bool {
	if d, ok := errors.AsType[dialError](err); ok {
		f, isFault := errors.AsType[*fault.Error](d.error)
		return !isFault || f.Kind == fault.Transport
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return false
	}
	if _, ok := errors.AsType[*sftp.StatusError](err); ok {
		return false
	}
	for _, answer := range []error{context.Canceled, context.DeadlineExceeded, os.ErrNotExist, os.ErrPermission} {
		if errors.Is(err, answer) {
			return false
		}
	}
	return err != nil
}

// explain converts an error to a fault.
func explain(ctx context.Context, what, name string, err error) error {
	msg := fmt.Sprintf("%s cannot be %s over SFTP", fault.Clip(name), what)
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Wrap(f.Kind, fault.CodeOf(err), msg, err)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "timeout", msg, err)
	case ctx.Err() != nil:
		return fault.Wrap(fault.Canceled, "canceled", msg, err)
	case errors.Is(err, os.ErrNotExist):
		return fault.Wrap(fault.NotFound, CodeMissing, msg+": it, or a folder on the way to it, does not exist", err)
	case errors.Is(err, os.ErrPermission):
		return fault.Wrap(fault.Transport, CodeRefused, msg+": the server denies permission", err).
			WithNext("check that the service's user may read and write in " + fault.Clip(path.Dir(name)) + " on the SFTP server")
	}
	if _, ok := errors.AsType[*sftp.StatusError](err); ok {
		return fault.Wrap(fault.Transport, CodeRefused, msg+": the server refused it without a reason", err)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fault.Wrap(fault.Transport, CodeLost, msg+": the connection was lost again and again", err)
}

// fullDisk finds out whether a write was refused because the disk is full: OpenSSH reports only "failure". need is the
// number of bytes not yet written.
func fullDisk(ctx context.Context, s *slot, name string, need int64, err error) error {
	if _, refused := errors.AsType[*sftp.StatusError](err); !refused || ctx.Err() != nil {
		return err
	}
	c, derr := s.get(ctx)
	if derr != nil {
		return err
	}
	if _, offered := c.HasExtension("statvfs@openssh.com"); !offered {
		return err
	}
	var free, nodes uint64
	verr := s.call(ctx, c, func() error {
		st, err := c.StatVFS(path.Dir(name))
		if err == nil {
			free, nodes = st.Bavail*st.Frsize, st.Favail
			if st.Files == 0 { // the filesystem does not count inodes
				nodes = 1
			}
		}
		return err
	})
	if verr != nil || free > uint64(need) && nodes > 0 {
		return err
	}
	return fault.Wrap(fault.Transport, CodeDiskFull,
		fmt.Sprintf("the filesystem of %s is full: %d bytes are free and %d more were to be written", fault.Clip(path.Dir(name)), free, need),
		err).
		WithNext("free space, or raise the quota, there")
}
