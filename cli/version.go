package cli

import (
	"fmt"
	"io"
)

// Build is what this program was built from.
type Build struct {
	Version string `json:"version"` // the tag, or the newest tag and the commit, or the commit alone; "unknown" outside a checkout
	Commit  string `json:"commit"`  // empty if unknown
	Dirty   bool   `json:"dirty"`   // built from files that differ from the commit
	Go      string `json:"go"`
	SQLite  string `json:"sqlite"`
}

// Version is the verb that prints the version.
type Version struct{}

// Run prints it.
func (Version) Run(a *Shell) error {
	return a.show(a.Build, func(w io.Writer) {
		fmt.Fprintf(w, "slurmgate %s\n", a.Build.Version)
		if a.Build.Commit != "" {
			fmt.Fprintf(w, "commit    %s\n", a.Build.Commit)
		}
		if a.Build.Dirty {
			fmt.Fprintln(w, "          with changes that are not committed")
		}
		fmt.Fprintf(w, "built by  %s, with SQLite %s\n", a.Build.Go, a.Build.SQLite)
	})
}
