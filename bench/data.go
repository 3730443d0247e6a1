package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"slurmgate/artifact"
	"slurmgate/plan"
	"slurmgate/staging"
)

// data measures, on this host and without a cluster, what large inputs cost: the time of an import compared with cp and
// openssl, the bytes that a file which three tools use takes on the disk, and the memory for small and large files.
func (o options) data(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-data-") // TMPDIR chooses the disk
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := &measurement{figures: figures{w: os.Stdout}, dir: dir, began: time.Now(), sizes: o.sizes}
	for _, part := range append([]dataPart{(*measurement).importTimes, (*measurement).importMemory, (*measurement).copiedBytes}, moreData...) {
		if err := part(m, ctx); err != nil {
			return err
		}
	}
	return m.err()
}

// dataPart is one of the measurements of data.
type dataPart func(*measurement, context.Context) error

// moreData lists further ones, each of the file that has it: files that are not copied, and folders of many files.
var moreData = []dataPart{(*measurement).placedBytes, (*measurement).manyFiles}

// importer makes a store below the folder, and an importer of files below it.
func importer(dir string) (*artifact.Store, *artifact.Importer, error) {
	s, err := artifact.Open(filepath.Join(dir, "store"))
	if err != nil {
		return nil, nil, err
	}
	im, err := artifact.NewImporter(s, artifact.ImportPolicy{Roots: []artifact.Root{{Folder: dir}}, MaxBytes: 1 << 50,
		Own: []string{filepath.Join(dir, "store")}})
	return s, im, err
}

// importTimes races an import with cp and then openssl dgst. Ours is durable when it returns.
func (m *measurement) importTimes(ctx context.Context) error {
	src, err := m.random(ctx, "input", int64(m.sizes.DataMB)<<20)
	if err != nil {
		return err
	}
	defer os.Remove(src)
	store, im, err := importer(m.dir)
	if err != nil {
		return err
	}
	defer store.Close()
	var first []time.Duration
	shell := func(script string) func() error {
		return func() error { return exec.CommandContext(ctx, "sh", "-ec", script, "sh", src, m.dir+"/copied").Run() }
	}
	clear := func() error { // the copy before goes first, and the disk has nothing left to write
		err := errors.Join(os.RemoveAll(filepath.Join(m.dir, "copied")), os.RemoveAll(filepath.Join(m.dir, "store", "objects")),
			os.Mkdir(filepath.Join(m.dir, "store", "objects"), 0o700))
		syscall.Sync()
		return err
	}
	took, err := m.contest([]string{"clear", "cp", "clear", "cp_sync", "clear", "import"}, map[string]func() error{
		"clear":   clear,
		"cp":      shell(`cp "$1" "$2"; openssl dgst -sha256 "$2" >/dev/null`),
		"cp_sync": shell(`cp "$1" "$2"; openssl dgst -sha256 "$2" >/dev/null; sync "$2"`),
		"import": func() error {
			p := &artifact.Progress{}
			began, seen, over := time.Now(), make(chan time.Duration, 1), make(chan struct{})
			go func() {
				for tick := time.NewTicker(time.Millisecond); ; {
					select {
					case <-tick.C:
					case <-over:
						return
					}
					if done, of := p.Bytes(); done > 0 && of > 0 {
						seen <- time.Since(began)
						return
					}
				}
			}()
			_, err := im.ImportFile(artifact.Watched(ctx, p), src, artifact.Scope{Every: true})
			close(over)
			select {
			case t := <-seen:
				first = append(first, t)
			default:
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	params := []string{fmt.Sprint("mb=", m.sizes.DataMB), fmt.Sprint("rounds=", m.sizes.Rounds)}
	for _, name := range []string{"cp", "cp_sync", "import"} {
		m.print("import_time_"+name, took[name].Seconds(), "s", "", params...)
	}
	m.print("import_to_cp_and_openssl", ratioOf(took, "import", "cp"), "ratio", "<=1.1", params...)
	m.print("import_to_cp_openssl_and_sync", ratioOf(took, "import", "cp_sync"), "ratio", "", params...)
	if len(first) > 0 {
		m.print("import_first_progress", median(first).Seconds(), "s", "<=1", params...)
	}
	return clear()
}

// imported is the task of a process that imports one file.
type imported struct {
	Dir string
	MB  int
}

// importMemory measures the peak of a process that imports one file.
func (m *measurement) importMemory(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	sizes := []int{1, m.sizes.HugeMB}
	peaks := map[int]float64{}
	for _, mb := range sizes {
		dir := filepath.Join(m.dir, fmt.Sprint("memory", mb))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(dir, "input"))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(int64(mb)<<20), f.Close()); err != nil { // a hole: it costs no disk until it is copied
			return err
		}
		what, err := json.Marshal(imported{dir, mb})
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, "inside", "import", string(what))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err == nil {
			var peak float64
			if err = json.Unmarshal(out, &peak); err == nil {
				peaks[mb] = peak
				m.print("import_memory_peak", peak, "MB", "<=64", fmt.Sprint("mb=", mb))
			}
		}
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return err
		}
	}
	m.print("import_memory_growth", peaks[sizes[1]]-peaks[sizes[0]], "MB", "<=16", fmt.Sprint("from_mb=", sizes[0]), fmt.Sprint("to_mb=",
		sizes[1]))
	return nil
}

// importAlone imports one file, and prints this process's peak of memory.
func importAlone(ctx context.Context, what imported) error {
	store, im, err := importer(what.Dir)
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := im.ImportFile(ctx, filepath.Join(what.Dir, "input"), artifact.Scope{Every: true}); err != nil {
		return err
	}
	peak, err := status("VmHWM")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(peak)
}

// tools is the number of tools that use the one file.
const tools = 3

// copiedBytes measures what one file that three tools use takes on the disk where each gets its own copy, compared with
// the file itself.
func (m *measurement) copiedBytes(ctx context.Context) error {
	mb := m.sizes.LargeMB
	src, err := m.random(ctx, "shared-input", int64(mb)<<20)
	if err != nil {
		return err
	}
	defer os.Remove(src)
	store, im, err := importer(m.dir)
	if err != nil {
		return err
	}
	defer store.Close()
	runs := filepath.Join(m.dir, "runs")
	if err := os.Mkdir(runs, 0o700); err != nil {
		return err
	}
	s, err := staging.NewShared(staging.Config{RunsDir: runs, GatewayID: "gw-bench"})
	if err != nil {
		return err
	}
	got, err := im.ImportFile(ctx, src, artifact.Scope{Every: true})
	if err != nil {
		return err
	}
	open := func(ctx context.Context, sum string) (io.ReadCloser, int64, error) { return store.Reader(ctx, sum) }
	for n := range tools {
		in := plan.Input{Role: "reads", ChecksumSHA256: got.SHA256, DestRelpath: "in/reads"}
		if err := s.StageInputs(ctx, "run_"+fmt.Sprintf("%026d", n), []plan.Input{in}, open); err != nil {
			return err
		}
	}
	written, err := onDisk(runs, filepath.Join(m.dir, "store", "objects"))
	if err != nil {
		return err
	}
	m.print("bytes_written_copied", float64(written)/float64(got.SizeBytes), "ratio", "", fmt.Sprint("mb=", mb), fmt.Sprint("tools=", tools))
	return errors.Join(os.RemoveAll(runs), os.RemoveAll(filepath.Join(m.dir, "store")))
}

// onDisk returns how many bytes of the files below some folders are on the disk.
func onDisk(dirs ...string) (bytes int64, err error) {
	for _, dir := range dirs {
		err = errors.Join(err, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes += min(info.Sys().(*syscall.Stat_t).Blocks*512, info.Size()) // no holes
			}
			return err
		}))
	}
	return bytes, err
}
