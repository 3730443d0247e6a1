package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// limitMemory makes the runtime collect garbage in time to stay below the memory that the service may have (MemoryMax of its unit, ulimit),
// unless GOMEMLIMIT is set. It returns the limit in bytes; 0 if absent. A tenth is left for what the runtime does not count.
func limitMemory() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0 // the runtime obeys it
	}
	most := memoryLimit(0)
	if most == math.MaxInt64 {
		return 0
	}
	most -= most / 10
	debug.SetMemoryLimit(most)
	return most
}

// heapGrowth is how far the heap may grow before garbage is collected, in bytes, even if little is alive. A gateway
// with a few thousand runs has some 10 MB alive; with Go's default, which lets that double, the collector took a fifth
// of the time that calls took.
const heapGrowth = 32 << 20

// collectSeldom sets the share of garbage to live bytes after each collection, unless GOGC is set. A heap of more than heapGrowth may
// double, as is Go's default. The limit of limitMemory holds.
func collectSeldom() {
	if os.Getenv("GOGC") != "" {
		return // the runtime obeys it
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(garbagePercent(live[0].Value.Uint64()))
	runtime.SetFinalizer(new([16]byte), func(*[16]byte) { collectSeldom() }) // after the next collection
}

func garbagePercent(live uint64) int { return int(max(100, heapGrowth*100/max(live, 1<<20))) }

// memoryLimit returns how many bytes of memory a process may have, 0 is this one; the largest integer when there is no
// limit.
func memoryLimit(pid int) int64 {
	self := "self"
	if pid > 0 {
		self = strconv.Itoa(pid)
	}
	most := cgroupMemory(os.DirFS("/"), self)
	var r unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &r) == nil && r.Cur < uint64(most) {
		most = int64(r.Cur)
	}
	return most
}

// cgroupMemory returns the least memory limit of a process's control group and of those around it, in bytes; the
// largest integer if absent. See cgroups(7): /proc/self/cgroup has lines number:controllers:path; version 2
// has one, 0::path.
func cgroupMemory(root fs.FS, process string) int64 {
	most := int64(math.MaxInt64)
	groups, _ := fs.ReadFile(root, path.Join("proc", process, "cgroup")) // without it there is no limit to read
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		mount, files := "sys/fs/cgroup", []string{"memory.max", "memory.high"}
		if parts[1] != "" {
			if parts[1] != "memory" {
				continue
			}
			mount, files = "sys/fs/cgroup/memory", []string{"memory.limit_in_bytes"}
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			for _, file := range files {
				data, err := fs.ReadFile(root, path.Join(mount, at, file))
				n, parseErr := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
				if err == nil && parseErr == nil && n > 0 && n < noLimit { // version 2 writes "max"
					most = min(most, n)
				}
			}
			if at == "/" {
				break
			}
		}
	}
	return most
}

// noLimit is the value of version 1 of control groups for no limit, or a little less: the largest multiple of the page
// size.
const noLimit = math.MaxInt64 &^ (1<<20 - 1)
