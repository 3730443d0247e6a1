package slurm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/plan"
	"slurmgate/run"
)

// registered returns the state of a file in place, as package artifact writes it.
func registered(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("stat", "-c", "%i %s %.Y %.Z", path).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// inPlaceRun runs a program that copies an input in place, and returns the exit record. meanwhile is called once the
// program runs, before it reads.
func inPlaceRun(t *testing.T, in run.Placed, meanwhile func()) run.Exit {
	t.Helper()
	data, err := os.ReadFile(in.Path)
	must(t, err)
	gate := filepath.Join(t.TempDir(), "go")
	must(t, unix.Mkfifo(gate, 0o600))
	job, cmd := pipeRunOf(t, 60, "", func(job *run.JobSpec) {
		in.Input, in.Strength, in.State = job.Spec.IO.Inputs[0], run.InPlace, registered(t, in.Path)
		in.ChecksumSHA256 = plan.Hash(data)[7:]
		job.Placed = []run.Placed{in}
	}, "read -r _ <"+gate+"; cat "+in.Path)
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	f, err := os.OpenFile(gate, os.O_WRONLY, 0) // waits until the program opens it
	must(t, err)
	meanwhile()
	f.Close()
	_ = cmd.Wait()
	return exitOf(t, job)
}

// onDisk creates a folder on a disk: a file in memory (tmpfs) has no times of writes through mapped pages.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "slurmgate-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// mapped creates a file whose first page was written to through a mapping, with the byte that it already has, and is
// not yet on the disk.
func mapped(t *testing.T, file string, content []byte) []byte {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { unix.Munmap(page) })
	page[0] = content[0]
	return page
}

// A job must not succeed on bytes that were changed while its program ran: neither through a page that was written to
// before the job began (later writes to it change no time until it is on the disk), nor on a filesystem that has no
// such times at all.
//
// proves DATA-05
func TestInPlaceSwappedUnderTheProgram(t *testing.T) {
	good := bytes.Repeat([]byte("good"), 2048)
	memory := t.TempDir()
	must(t, unix.Mount("none", memory, "tmpfs", 0, ""))
	t.Cleanup(func() { unix.Unmount(memory, 0) })
	for _, c := range []struct {
		name, dir string
		recheck   bool
		swap      bool
		want      string
	}{
		{"nothing is swapped", onDisk(t), true, false, "ok"},
		{"a page that was dirty, on a disk", onDisk(t), false, true, "input_mismatch"},
		{"a page that was dirty, in memory", memory, true, true, "input_mismatch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := mapped(t, filepath.Join(c.dir, "data"), good)
			x := inPlaceRun(t, run.Placed{Path: filepath.Join(c.dir, "data"), Recheck: c.recheck}, func() {
				if c.swap {
					copy(page, "evil")
				}
			})
			if x.Reason != c.want {
				t.Errorf("the job's reason = %s, want %s", x.Reason, c.want)
			}
		})
	}
}
