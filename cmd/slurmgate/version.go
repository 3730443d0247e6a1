package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"slurmgate/cli"
	"slurmgate/ledger"
)

// release and commit are set by the linker: make build names the tag and the commit of the checkout. go build alone leaves them empty.
var release, commit string

// built returns what this program was built from: as the linker set it, else as the go command recorded it.
func built() cli.Build {
	b := cli.Build{Version: release, Commit: commit, Dirty: strings.HasSuffix(release, "-dirty"), Go: runtime.Version(),
		SQLite: ledger.SQLiteVersion()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "(devel)" {
			b.Version = cmp.Or(b.Version, v)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = cmp.Or(b.Commit, s.Value)
			case "vcs.modified":
				b.Dirty = b.Dirty || s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, b.Commit, "unknown")
	return b
}
