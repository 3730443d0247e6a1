package artifact

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// fsFault turns an error of the filesystem or of a reader into a fault that can be retried; faults pass unchanged.
func fsFault(msg string, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, "canceled", msg, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "timeout", msg, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return fault.Wrap(fault.Transport, "disk_full", msg, err).
			WithNext("free space, or raise the quota, of the artifact store's filesystem")
	}
	return fault.Wrap(fault.Transport, "filesystem", msg, err)
}
