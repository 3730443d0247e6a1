package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// mostExamined bounds the files that are examined below one folder.
const mostExamined = 10_000

// installed warns of files that decide what runs and that every user of this host can change: the site file, the domain, the images, the
// seccomp profile, and the folders they are in.
func (x *Exam) installed() []Result {
	var open []string
	s := x.Cluster
	files := []string{s.File(), s.DomainDir}
	if x.Data == nil { // else the others are on other hosts
		files = append(files, s.Storage.ImageStore, s.Apptainer.Seccomp)
	}
	for _, path := range files {
		if path != "" {
			open = append(open, writable(path)...)
		}
	}
	slices.Sort(open)
	open = slices.Compact(open)
	if len(open) == 0 {
		return ok("only their owners and groups can change site file, domain and images")
	}
	more := ""
	if len(open) > 1 {
		more = fmt.Sprintf(" and %d more", len(open)-1)
	}
	return warning("", "every user of this host can change %s%s, and with it what the gateway runs", open[0], more)
}

// writable lists what every user can write to: files and folders at and below a path, and the folders above it, in
// which the path could be replaced. What cannot be examined here is left out.
func writable(path string) (open []string) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode()&0o002 != 0 && st.Mode()&fs.ModeSticky == 0 {
			open = append(open, dir)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	seen := 0
	_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if seen++; seen > mostExamined {
			return fs.SkipAll
		}
		if err != nil {
			return nil
		}
		// A link's own mode does not matter.
		if st, err := e.Info(); err == nil && e.Type()&fs.ModeSymlink == 0 && st.Mode()&0o002 != 0 {
			open = append(open, name)
		}
		return nil
	})
	return open
}
