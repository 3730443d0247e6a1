package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// The heap may grow by 32 MB, or double, whichever is more.
func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 3200, 1 << 20: 3200, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 1 << 40: 100} {
		if got := garbagePercent(live); got != want {
			t.Errorf("%d bytes alive: %d, want %d", live, got, want)
		}
	}
}

// The share follows what is alive: it is set anew after each collection.
func TestCollectSeldom(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	collectSeldom()
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for range 2 {
		if metrics.Read(now); now[0].Value.Uint64() < 100 {
			t.Errorf("the share is %d", now[0].Value.Uint64())
		}
		debug.SetGCPercent(77)
		for metrics.Read(now); now[0].Value.Uint64() == 77; metrics.Read(now) {
			runtime.GC() // the finalizer runs after it, in a goroutine of its own
		}
	}
}
