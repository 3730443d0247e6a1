package staging

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

var (
	errForeign   = errors.New("it belongs to another user")
	errIrregular = errors.New("it is not a regular file")
)

// fsFault converts an error of the filesystem to a fault that can be retried. It returns faults and nil unchanged.
func fsFault(msg string, err error) error {
	switch {
	case err == nil:
		return nil
	case isFault(err):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return DiskFull(msg, err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, errForeign), errors.Is(err, errIrregular):
		return ForeignEntry(msg, err)
	}
	return Failed(msg, err)
}

func done(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fsFault("the caller gave up", err)
	}
	return nil
}
