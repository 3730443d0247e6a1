package signer

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// Listen makes the socket. One that a dead signer of this user left is replaced; anything else at its path is refused.
func (c Config) Listen(ctx context.Context, users Directory) (*net.UnixListener, error) {
	gid, mode := -1, os.FileMode(0o666)
	if c.SocketGroup != "" {
		var err error
		if gid, err = users.GroupID(ctx, c.SocketGroup); err != nil {
			return nil, fault.Wrap("", "socket_group", "socket_group of the signer's configuration cannot be used", err)
		}
		mode = 0o660
	}
	if err := unalterable(filepath.Dir(c.Socket)); err != nil {
		return nil, err
	}
	// Made under another name and then renamed: at its own name it always has its mode.
	temp := filepath.Join(filepath.Dir(c.Socket), ".s") // short: a socket path has at most 107 bytes (unix(7))
	for _, name := range []string{c.Socket, temp} {
		if err := removeStale(name); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "socket", "the socket "+c.Socket+" cannot be made", err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Lchown(temp, -1, gid), os.Chmod(temp, mode), os.Rename(temp, c.Socket)); err != nil {
		l.Close()
		return nil, fault.Wrap(fault.Validation, "socket", "the socket "+c.Socket+" cannot be made", err).
			WithNext("the signer's user must be able to write its folder, and be a member of socket_group")
	}
	return l, nil
}

func removeStale(path string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fault.Wrap(fault.Internal, "socket", "the socket "+path+" cannot be examined", err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid():
		return fault.New(fault.Validation, "socket_path", "the signer cannot make its socket: there is something else at "+path).
			WithNext("move it away, or set socket to another path")
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return fault.New(fault.Conflict, "socket_in_use", "another signer serves the socket "+path).WithNext("stop it first")
	}
	return os.Remove(path)
}
