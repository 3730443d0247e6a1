package doctor

import (
	"context"
	"fmt"
)

// sessionsWanted is the number of concurrent sessions that doctor opens on a host: three for files, and one for a
// script.
const sessionsWanted = 4

// sessionsCheck returns the check that a host accepts several sessions on one connection.
func sessionsCheck(prefix, whose string, where Where, over reach, only func(Ways) bool) Check {
	return Check{Code: prefix + "_sessions", Proves: "The gateway gets several sessions at once on one connection to " + whose + ".",
		Where: where, Cluster: true, Only: only, Over: over, Needs: []string{prefix + "_login"},
		Remedy: fmt.Sprintf("ask for MaxSessions %d or more in sshd_config there; OpenSSH's default is 10", sessionsWanted),
		Look: func(ctx context.Context, x *Exam) []Result {
			host, err := x.host(prefix)
			if err != nil {
				return failed("", err)
			}
			ctx, stop := context.WithTimeout(ctx, lookTime)
			defer stop()
			n, err := host.Sessions(ctx, sessionsWanted)
			found := fmt.Sprintf("%s allows %s at once on one connection (MaxSessions)", host.Name(), plural(n, "session"))
			switch {
			case err != nil:
				return failed("", err)
			case n < 2 && scriptsAndFiles(prefix, x.Ways):
				return bad("", "%s, but a script runs while files are sent", found)
			case n < sessionsWanted:
				return warning("", "%s: scripts and files wait for each other", found)
			}
			return ok("%d sessions at once to %s", n, host.Name())
		}}
}

// scriptsAndFiles reports whether one host both runs the scripts and carries the files.
func scriptsAndFiles(prefix string, w Ways) bool {
	if prefix == "sftp" {
		return dataShell(w)
	}
	return w.Shell != nil && !w.DataHost
}
