package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profiled writes CPU, heap and lock profiles of f to <profiles>/<name>.{cpu,mem,block} when profiles names a folder. They show why a
// figure misses its target.
func profiled(ctx context.Context, profiles, name string, f func(context.Context) error) error {
	if profiles == "" {
		return f(ctx)
	}
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		return err
	}
	cpu, err := os.Create(filepath.Join(profiles, name+".cpu"))
	if err != nil {
		return err
	}
	defer cpu.Close()
	runtime.SetBlockProfileRate(10_000) // ns
	defer runtime.SetBlockProfileRate(0)
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	failed := f(ctx)
	pprof.StopCPUProfile()
	for _, kind := range []string{"allocs", "block"} {
		out, err := os.Create(filepath.Join(profiles, name+"."+kind))
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.Lookup(kind).WriteTo(out, 0); err != nil {
			return fmt.Errorf("profile %s: %w", kind, err)
		}
	}
	return failed
}
