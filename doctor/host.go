package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/site"
)

// listeners share half of the files that the gateway may open: the socket and the port. The other half is for the ledger, for what calls
// have open, and for Slurm's commands.
const listeners = 4

// Connections returns how many of the connections that the site file allows on a listener this process can have, and
// how many files it may open. Go raises that limit to the hard one when a program starts.
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

// hostChecks returns the checks of this host's limits.
func hostChecks() []Check {
	return []Check{{
		Code: "open_files", Proves: "The gateway may open enough files for the connections that the site file allows.", Where: Gateway,
		Early:  true,
		Remedy: "set LimitNOFILE of the service to the number named",
		Look:   func(_ context.Context, x *Exam) []Result { return openFiles(x.Site) },
	}, {
		Code: "processes", Proves: "The gateway may start enough processes for Slurm's commands.", Where: Gateway, Early: true,
		Remedy: "set LimitNPROC of the service to 512 or more, or remove it",
		Look:   func(_ context.Context, x *Exam) []Result { return processes(serving(x.Site.Gateway.Socket)) },
	}, {
		Code: "memory", Proves: "The gateway may use enough memory.", Where: Gateway, Early: true,
		Remedy: "set MemoryMax of the service to 512M or more",
		Look: func(_ context.Context, x *Exam) []Result {
			return memory(x.MemoryLimit(serving(x.Site.Gateway.Socket)))
		},
	}}
}

// leastProcesses is enough for the threads of the gateway itself, sbatch and the queries of a few clusters.
const leastProcesses = 256

func processes(pid int) []Result {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &l); err != nil {
		return unknown("run doctor as the service's user or as root", "the limit of processes cannot be read: %v", err)
	}
	if l.Cur < leastProcesses {
		return warning("", "this user may have %d processes and threads; the gateway needs up to %d", l.Cur, leastProcesses)
	}
	return ok("this user may have %d processes and threads", l.Cur)
}

// leastMemory is less than what the gateway uses with many callers; below it, it collects garbage all the time.
const leastMemory = 512 << 20

func memory(limit int64) []Result {
	if limit < leastMemory {
		return warning("", "the gateway may use %d MiB of memory; with many callers it needs %d MiB", limit>>20, leastMemory>>20)
	}
	available, err := availableMemory()
	switch {
	case err != nil:
		return unknown("look at /proc/meminfo", "the memory of this host cannot be read: %v", err)
	case available < leastMemory:
		return warning("stop what uses the memory, or move the gateway to a host with more", "this host has %d MiB of memory left", available>>20)
	}
	return ok("this host has %d MiB of memory left", available>>20)
}

// availableMemory returns MemAvailable of /proc/meminfo, in bytes.
func availableMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nMemAvailable:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	return n << 10, err
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

// serving returns the process that serves the socket; 0: none.
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
