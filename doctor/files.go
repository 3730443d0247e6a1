package doctor

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"slurmgate/site"
)

// listeners share half of the files that the gateway may open: the socket and the port. The other half is for the ledger, for what calls
// have open, and for Slurm's commands.
const listeners = 4

// Connections is how many of the connections that the site file allows on a listener this process can have, and how many files it may open.
// Go raises that limit to the hard one when a program starts.
func Connections(most int) (n int, files uint64) {
	return connections(most, 0)
}

func connections(most, pid int) (n int, files uint64) {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
		return most, 0 // a limit that cannot be read cannot be kept
	}
	return int(min(uint64(most), max(1, l.Cur/listeners))), l.Cur
}

// hostChecks are the checks of what this host gives the gateway.
func hostChecks() []Check {
	return []Check{{
		Code: "open_files", Proves: "The gateway may open enough files for the connections that the site file allows.", Where: Gateway,
		Remedy: "set LimitNOFILE of the service to the number named",
		Look:   func(_ context.Context, x *Exam) []Result { return openFiles(x.Site) },
	}}
}

func openFiles(s *site.Site) []Result {
	whose, pid := "this process", 0
	if running := serving(s.Gateway.Socket); running > 0 {
		whose, pid = fmt.Sprintf("the gateway (pid %d)", running), running
	}
	most := s.Limits.SocketConnections
	if s.HTTP.Listen != "" {
		most = max(most, s.HTTP.MaxConnections)
	}
	n, files := connections(most, pid)
	if n < most {
		return warning(fmt.Sprintf("set LimitNOFILE of the service to %d or more", listeners*most),
			"%s may open %d, which allows %d connections on a listener; the site file allows %d", whose, files, n, most)
	}
	return ok("%s may open %d; %d connections on a listener leave enough for the ledger and for Slurm", whose, files, n)
}

// serving is the process that serves the socket; 0: none.
func serving(socket string) int {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
