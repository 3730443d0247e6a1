package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"slurmgate/artifact"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/staging"
)

// placedBytes measures what one file that three tools use takes on the disk where jobs do not get copies: where the
// store's object is mounted (one copy in all), and where the file stays in its place (none).
func (m *measurement) placedBytes(ctx context.Context) error {
	for _, how := range []struct {
		strength run.Strength
		target   string
	}{{run.Bound, "<=1"}, {run.InPlace, "<=0"}} {
		if err := m.placed(ctx, how.strength, how.target); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) placed(ctx context.Context, strength run.Strength, target string) error {
	mb := m.sizes.LargeMB
	src, err := m.random(ctx, "placed-input", int64(mb)<<20)
	if err != nil {
		return err
	}
	defer os.Remove(src)
	store, im, err := importer(m.dir)
	if err != nil {
		return err
	}
	defer store.Close()
	var size int64
	if strength == run.InPlace {
		got, rerr := im.Register(ctx, src, artifact.Scope{Every: true})
		size, err = got.SizeBytes, rerr
	} else {
		got, ierr := im.ImportFile(ctx, src, artifact.Scope{Every: true})
		size, err = got.SizeBytes, ierr
	}
	if err != nil {
		return err
	}
	runs := filepath.Join(m.dir, "runs")
	if err := os.Mkdir(runs, 0o700); err != nil {
		return err
	}
	s, err := staging.NewShared(staging.Config{RunsDir: runs, GatewayID: "gw-bench"})
	if err != nil {
		return err
	}
	// What the engine stages for an input that is mounted: an empty file to mount it on.
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	open := func(context.Context, string) (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader("")), 0, nil
	}
	for n := range tools {
		in := plan.Input{Role: "reads", ChecksumSHA256: empty, DestRelpath: "in/reads"}
		if err := s.StageInputs(ctx, "run_"+fmt.Sprintf("%026d", n), []plan.Input{in}, open); err != nil {
			return err
		}
	}
	workspaces, err := filepath.Glob(filepath.Join(runs, "run_*"))
	if err == nil && len(workspaces) != tools {
		err = fmt.Errorf("there are %d workspaces instead of %d", len(workspaces), tools)
	}
	if err != nil {
		return err
	}
	written, err := onDisk(append(workspaces, filepath.Join(m.dir, "store", "objects"))...)
	if err != nil {
		return err
	}
	m.print("bytes_written_"+string(strength), float64(written)/float64(size), "ratio", target, fmt.Sprint("mb=", mb),
		fmt.Sprint("tools=", tools))
	return errors.Join(os.RemoveAll(runs), os.RemoveAll(filepath.Join(m.dir, "store")))
}
