package main

import (
	"math"
	"testing"
	"testing/fstest"
)

// The runtime's memory limit is the least of the control groups that the service is in.
func TestCgroupMemory(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"none":      {fstest.MapFS{}, math.MaxInt64},
		"unlimited": {fstest.MapFS{"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n")}, math.MaxInt64},
		"own": {fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/slurmgate.service\n"),
			"sys/fs/cgroup/system.slice/slurmgate.service/memory.max": file("2147483648\n")}, 2 << 30},
		"around": {fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/slurmgate.service\n"),
			"sys/fs/cgroup/system.slice/slurmgate.service/memory.max": file("2147483648\n"),
			"sys/fs/cgroup/system.slice/memory.max":                   file("1073741824\n")}, 1 << 30},
		"high": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.high": file("1000000\n")}, 1000000},
		"version 1": {fstest.MapFS{"proc/self/cgroup": file("9:name=systemd:/\n4:memory:/a/b\n0::/\n"),
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": file("5000000\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     file("9223372036854771712\n")}, 5000000},
		"broken": {fstest.MapFS{"proc/self/cgroup": file("x\n0::/../..\n::\n"), "sys/fs/cgroup/memory.max": file("-1")}, math.MaxInt64},
	} {
		if got := cgroupMemory(c.files, "self"); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
