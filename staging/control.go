package staging

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

// control opens an attempt's ctl folder.
func (s *Shared) control(ctx context.Context, runID string, n int, name string) (dir, error) {
	if err := CheckControl(name); err != nil {
		return dir{}, err
	}
	return s.attempt(ctx, runID, n, "ctl")
}

// writeControl writes a control file of mode 0600, replacing an earlier one: temp, fsync, rename, fsync of the folder, read back.
func writeControl(ctl dir, f run.ControlFile) error {
	prefix := ".tmp." + f.Name + "."
	left, err := ctl.names()
	if err != nil {
		return err
	}
	for _, l := range left {
		if strings.HasPrefix(l, prefix) && len(l) == len(prefix)+len(randomName()) { // of a crashed call
			if err := ctl.unlink(l); err != nil {
				return err
			}
		}
	}
	temp := prefix + randomName()
	if err := ctl.write(temp, f.Data); err != nil {
		return err
	}
	if err := ctl.rename(temp, ctl, f.Name); err != nil {
		return errors.Join(err, ctl.unlink(temp))
	}
	if err := ctl.sync(); err != nil {
		return err
	}
	return holds(ctl, f)
}

// holds reads a control file back, and returns an error unless it has f.Data.
func holds(ctl dir, f run.ControlFile) error {
	got, err := ctl.read(f.Name, int64(len(f.Data))+1, false)
	if err == nil && !bytes.Equal(got, f.Data) {
		err = errors.New(f.Name + " reads back differently")
	}
	return err
}

// ReadControlFrom reads at most limit bytes of a control file, starting at byte from; a negative from counts from the
// end. A missing file is a NotFound fault with code control_missing, a missing attempt folder one with code
// attempt_missing; anything but a regular file is a Conflict.
func (s *Shared) ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (p run.Part, err error) {
	if limit < 0 {
		return p, fault.New(fault.Internal, "limit", "a negative limit")
	}
	ctl, err := s.control(ctx, runID, n, name)
	if err != nil {
		return p, err
	}
	defer ctl.close()
	if _, err := ctl.names(); err != nil {
		return p, fsFault("the control folder cannot be listed", err)
	}
	p, err = ctl.readFrom(name, from, limit)
	if errors.Is(err, unix.ENOENT) {
		return p, ControlMissing(runID, n, name, err)
	}
	return p, fsFault("control file "+name+" cannot be read", err)
}

// TakeClaim hard-links content into place as the claim unless there is one, and returns what the claim holds afterwards. The link decides:
// among any number of calls and jobs exactly one content wins, for ever. After an error the outcome is unknown; calling again with the
// same content is safe.
func (s *Shared) TakeClaim(ctx context.Context, runID string, n int, content []byte) ([]byte, error) {
	if err := CheckClaim(content); err != nil {
		return nil, err
	}
	ctl, err := s.control(ctx, runID, n, run.ClaimFile)
	if err != nil {
		return nil, err
	}
	defer ctl.close()
	got, err := ctl.linked(".claim.gateway."+randomName(), run.ClaimFile, content, MaxClaim)
	return got, fsFault("the claim cannot be taken or read", err)
}
