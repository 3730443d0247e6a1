package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"slurmgate/artifact"
)

// manyImported is the report of a process about the directory that it imported.
type manyImported struct {
	PeakMB  float64
	Seconds float64
	Sums    []string // of the objects, for their removal
}

// manyFiles measures what a directory of many small files costs: the import compared with cp -r and sha256sum, the
// memory for each file, the removal.
func (m *measurement) manyFiles(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	counts := []int{m.sizes.Files / 100, m.sizes.Files}
	peaks := map[int]float64{}
	for _, n := range counts {
		dir := filepath.Join(m.dir, fmt.Sprint("files", n))
		if err := errors.Join(os.Mkdir(dir, 0o700), smallFiles(filepath.Join(dir, "input"), n)); err != nil {
			return err
		}
		params := fmt.Sprint("files=", n)
		began := time.Now()
		if err := exec.CommandContext(ctx, "sh", "-ec", `cp -r "$1" "$2"; find "$2" -type f -exec sha256sum {} + >/dev/null; sync -f "$2"`, "sh",
			dir+"/input", dir+"/copied").Run(); err != nil {
			return err
		}
		plain := time.Since(began).Seconds()
		what, err := json.Marshal(imported{Dir: dir})
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, "inside", "import-folder", string(what))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		var got manyImported
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil {
			return err
		}
		peaks[n] = got.PeakMB
		m.print("directory_cp_and_sha256sum", plain, "s", "", params)
		m.print("directory_import", got.Seconds, "s", "", params)
		m.print("directory_import_memory_peak", got.PeakMB, "MB", "<=192", params)
		if err := m.eraseFiles(ctx, dir, got.Sums, params); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	m.print("directory_import_memory_per_file", (peaks[counts[1]]-peaks[counts[0]])*(1<<20)/float64(counts[1]-counts[0]), "bytes", "<=1024",
		fmt.Sprint("from_files=", counts[0]), fmt.Sprint("to_files=", counts[1]))
	return nil
}

// smallFiles makes n different files of some bytes, in folders of a thousand.
func smallFiles(dir string, n int) error {
	for i := range n {
		folder := filepath.Join(dir, fmt.Sprintf("part-%03d", i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("sample-%06d.txt", i)), fmt.Appendf(nil, "%d\n", i), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// eraseFiles removes the objects of a directory as artifact rm does, without the ledger's part.
func (m *measurement) eraseFiles(ctx context.Context, dir string, sums []string, params string) error {
	s, err := artifact.Open(filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	for _, err := range s.Erase(ctx, sums...) {
		return err
	}
	m.print("directory_objects_removed", time.Since(began).Seconds(), "s", "", params)
	return nil
}

// importFolderAlone imports a folder, and prints this process's peak of memory and how long it took.
func importFolderAlone(ctx context.Context, what imported) error {
	store, im, err := importer(what.Dir)
	if err != nil {
		return err
	}
	defer store.Close()
	began := time.Now()
	got, err := im.ImportFolder(ctx, filepath.Join(what.Dir, "input"), artifact.Scope{Every: true})
	if err != nil {
		return err
	}
	out := manyImported{Seconds: time.Since(began).Seconds()}
	if out.PeakMB, err = status("VmHWM"); err != nil {
		return err
	}
	for _, f := range got.List.Files {
		out.Sums = append(out.Sums, f.SHA256)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
