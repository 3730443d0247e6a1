package sftp

import (
	"context"
	"errors"
	"io"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/staging"
)

// source reads an input at any offset. An input that can only be read in order is opened again to go back. A source is
// for one goroutine.
type source struct {
	ctx  context.Context
	in   plan.Input
	open run.Opener
	src  io.ReadCloser
	at   int64
}

func openSource(ctx context.Context, in plan.Input, open run.Opener) (*source, error) {
	src, _, err := open(ctx, in.ChecksumSHA256)
	if err != nil {
		return nil, staging.Opened(in, err)
	}
	return &source{ctx: ctx, in: in, open: open, src: src}, nil
}

func (s *source) ReadAt(p []byte, off int64) (n int, err error) {
	if file, is := s.src.(io.ReaderAt); is {
		n, err = file.ReadAt(p, off)
	} else if err = s.seek(off); err == nil {
		n, err = io.ReadFull(s.src, p)
		s.at += int64(n)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	if err != nil && err != io.EOF {
		err = fault.Wrap(fault.Transport, "filesystem", "input "+s.in.DestRelpath+" cannot be read", err)
	}
	return n, err
}

func (s *source) seek(off int64) error {
	if off < s.at {
		again, _, err := s.open(s.ctx, s.in.ChecksumSHA256)
		if err != nil {
			return err
		}
		s.src.Close()
		s.src, s.at = again, 0
	}
	n, err := io.CopyN(io.Discard, s.src, off-s.at)
	s.at += n
	return err
}

func (s *source) Close() error { return s.src.Close() }
