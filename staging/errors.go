package staging

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

var (
	errForeign   = errors.New("it belongs to another user")
	errIrregular = errors.New("it is not a regular file")
)

// fsFault turns an error of the filesystem into a fault that can be retried; faults pass unchanged.
func fsFault(op, msg string, err error) error {
	switch {
	case err == nil:
		return nil
	case isFault(err):
		return err
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, op, "canceled", msg, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, op, "timeout", msg, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return fault.Wrap(fault.Transport, op, "disk_full", msg, err).WithNext("free space, or raise the quota, of the filesystem of runs_dir")
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, errForeign), errors.Is(err, errIrregular):
		return fault.Wrap(fault.Conflict, op, "workspace_foreign_entry",
			msg+" : the run's folder contains something that the gateway did not create", err).
			WithNext("look into the run's folder below runs_dir and remove what does not belong there")
	}
	return fault.Wrap(fault.Transport, op, "filesystem", msg, err)
}

func isFault(err error) bool {
	_, ok := errors.AsType[*fault.Error](err)
	return ok
}

func done(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return fsFault(op, "the caller gave up", err)
	}
	return nil
}
