package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// floor is sbatch plus the writes of a durable submit and nothing else: no plan, no identity, no checks, no SQL. It
// creates the folders and files of a run, syncs them, and writes three records to a log that is synced before any of
// them returns, with one sync for all that wait. Its cost above a bare sbatch is what the disk costs any program that
// makes the same promise.
type floor struct {
	dir  string // of workspaces
	argv []string
	log  *os.File
	page []byte

	mu      sync.Mutex
	waiting []record
	writing bool
}

// record waits to be on disk: the rows of so many runs.
type record struct {
	runs int
	done chan error
}

// The size of what one transaction of the ledger leaves in its log: six pages.
const floorRecord = 6 * 4096

func openFloor(dir string, argv []string) (*floor, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE, 0o600)
	return &floor{dir: dir, argv: argv, log: log, page: make([]byte, floorRecord)}, err
}

func (f *floor) close() error { return f.log.Close() }

// prepare records and stages n of them, and names the folder of each as it is ready. The error counts once the channel is closed.
func (f *floor) prepare(ctx context.Context, name string, from, n int) (<-chan string, *error) {
	ready, staged := make(chan string, n), new(error)
	go func() {
		defer close(ready)
		*staged = parallel(ctx, callers, from, n, func(i int) error {
			dir := filepath.Join(f.dir, fmt.Sprint(name, i))
			if err := f.commit(1); err != nil {
				return err
			}
			if err := f.stage(dir); err != nil {
				return err
			}
			ready <- dir
			return nil
		})
	}()
	return ready, staged
}

// send does n of them, as many concurrently as the engine.
func (f *floor) send(ctx context.Context, from, n int) (time.Duration, error) {
	began := time.Now()
	ready, staged := f.prepare(ctx, "run", from, n)
	err := parallel(ctx, workers, from, n, func(int) error {
		dir, ok := <-ready
		if !ok {
			return *staged
		}
		if err := f.commit(1); err != nil {
			return err
		}
		if err := f.sbatch(filepath.Join(dir, "a1/ctl")); err != nil {
			return err
		}
		return f.commit(1)
	})
	return time.Since(began), err
}

// sendArrays does n of them as arrays of a thousand: the intents of an array are one record on the log, and so are its receipts.
func (f *floor) sendArrays(ctx context.Context, from, n int) (time.Duration, error) {
	began := time.Now()
	ready, staged := f.prepare(ctx, "task", from, n)
	for sent := 0; sent < n; {
		k := min(inArrays.Min, n-sent)
		leader := ""
		for range k {
			dir, ok := <-ready
			if !ok {
				return 0, *staged
			}
			leader = dir
		}
		if err := f.commit(k); err != nil {
			return 0, err
		}
		if err := f.sbatch(filepath.Join(leader, "a1/ctl"), "--array=0-"+strconv.Itoa(k-1)); err != nil {
			return 0, err
		}
		if err := f.commit(k); err != nil {
			return 0, err
		}
		sent += k
	}
	return time.Since(began), nil
}

// stage durably creates what a job with one small input needs.
func (f *floor) stage(dir string) error {
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for _, d := range []string{"", "in", "a1", "a1/ctl"} {
		if err := unix.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	for name, size := range map[string]int{"in/reads.txt": 4096, "a1/ctl/token": 33, "a1/ctl/pinned.sha256": 256, "a1/ctl/script": 8192} {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		open = append(open, fd)
		if _, err := unix.Write(fd, f.page[:size]); err != nil {
			return err
		}
	}
	for _, d := range []string{"in", "a1/ctl", "a1", "", ".."} {
		fd, err := unix.Open(filepath.Join(dir, d), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		open = append(open, fd)
	}
	for _, fd := range open {
		if err := unix.Fsync(fd); err != nil {
			return err
		}
	}
	return nil
}

// commit returns when the caller's record is on disk. The first of those that wait writes and syncs for all.
func (f *floor) commit(runs int) error {
	done := make(chan error, 1)
	f.mu.Lock()
	f.waiting = append(f.waiting, record{runs, done})
	lead := !f.writing
	f.writing = true
	f.mu.Unlock()
	for lead {
		f.mu.Lock()
		mine := f.waiting
		f.waiting = nil
		f.writing = len(mine) > 0
		f.mu.Unlock()
		if lead = len(mine) > 0; lead {
			var err error
			at := int64(0)
			for _, r := range mine {
				for range r.runs {
					if err == nil {
						_, err = f.log.WriteAt(f.page, at)
					}
					at += floorRecord
				}
			}
			if err == nil {
				err = unix.Fdatasync(int(f.log.Fd()))
			}
			for _, r := range mine {
				r.done <- err
			}
		}
	}
	return <-done
}

// sbatch starts a job with its output in files, as the gateway does.
func (f *floor) sbatch(ctl string, also ...string) error {
	cmd := exec.Command("/usr/bin/sbatch", slices.Concat(also, f.argv)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var files [2]*os.File
	for i, name := range []string{"send.1.out", "send.1.err"} {
		file, err := os.OpenFile(filepath.Join(ctl, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		files[i] = file
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sbatch of the floor: %w", err)
	}
	var id [64]byte
	n, err := files[0].ReadAt(id[:], 0)
	if n < 2 || !strings.HasSuffix(string(id[:n]), "\n") {
		return fmt.Errorf("sbatch of the floor said %q: %w", id[:n], err)
	}
	return nil
}
