package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// Lock is the right to be the only gateway of a ledger: an flock that the kernel releases when the process ends in
// any way.
type Lock struct{ f *os.File }

// TakeLock takes the lock at path, or names its holder in a Conflict fault with code gateway_running.
func TakeLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "lock_unwritable", "cannot open the gateway lock", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.Wrap(fault.Internal, "lock_unwritable", "cannot lock "+path, err)
		}
		holder, _ := io.ReadAll(io.LimitReader(f, 256)) // only for the message
		return nil, fault.New(fault.Conflict, "gateway_running",
			"another slurmgate uses this ledger: "+strings.TrimSpace(string(holder)))
	}
	host, _ := os.Hostname()
	text := fmt.Sprintf("pid %d on %s since %s\n", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	_, err = f.WriteAt([]byte(text), 0)
	if err := errors.Join(f.Truncate(int64(len(text))), err); err != nil && !errors.Is(err, unix.ENOSPC) { // it is only for messages
		f.Close()
		return nil, fault.Wrap(fault.Internal, "lock_unwritable", "cannot write the gateway lock", err)
	}
	return &Lock{f}, nil
}

// Release releases the lock.
func (l *Lock) Release() error { return l.f.Close() }
