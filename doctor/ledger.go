package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"slurmgate/cli"
	"slurmgate/fault"
)

// Books is a ledger opened for reading.
type Books interface {
	ID() string
	// Staged lists runs of a cluster whose folders must exist.
	Staged(ctx context.Context, cluster string) ([]string, error)
	// Knows reports whether the ledger has a run.
	Knows(ctx context.Context, runID string) (bool, error)
	// Lost counts artifacts among the newest ones whose bytes are in neither the store nor the ledger.
	Lost(ctx context.Context) (lost, of int, err error)
	// Expiring lists the names of tokens that expire between two times.
	Expiring(ctx context.Context, after, before time.Time) ([]string, error)
	// References lists the names that the site gives to bytes.
	References(ctx context.Context) ([]Reference, error)
	Close() error
}

// NoClusterAnswers is the code of Config.MayStart where no cluster reports whether there was a ledger.
const NoClusterAnswers = "no_cluster_answers"

const ledgerCode, ledgerRuns = "ledger", "ledger_runs_dir"

// ledgerChecks returns the checks of the ledger's records about this site.
func ledgerChecks() []Check {
	return []Check{{
		Code: ledgerCode, Proves: "This program can read the ledger; if it is missing, nothing shows that there was one.", Where: Gateway,
		Needs: []string{stateDir, "state_files"}, Remedy: "mount the disk of gateway.state_dir, correct gateway.state_dir, or restore a backup",
		Look: func(ctx context.Context, x *Exam) []Result {
			if err := x.MayStart(ctx, x.Site); errors.Is(err, fs.ErrPermission) {
				return unknown("give "+x.User.name+", and the login user of a cluster elsewhere, access to the folders of the site file", "%s",
					fault.Text(err, cli.Words))
			} else if fault.CodeOf(err) == NoClusterAnswers {
				return unknown("mend what keeps the clusters away, as the checks below say, then run doctor again",
					"there is no ledger yet, and no cluster says whether there was one")
			} else if err != nil {
				return failed("", err)
			}
			books, err := x.OpenBooks(ctx, x.Site)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return ok("there is no ledger yet; the gateway creates it when it starts")
			case err != nil:
				return failed("", err)
			}
			x.Books = books
			return ok("gateway %s", books.ID())
		},
	}, {
		Code: "artifact_files", Proves: "gateway.artifact_dir has the bytes of the newest artifacts that the ledger names.", Where: Gateway,
		Needs: []string{ledgerCode, "artifact_dir"}, Remedy: "mount the disk of gateway.artifact_dir, or restore a backup",
		Look: func(ctx context.Context, x *Exam) []Result {
			if x.Books == nil {
				return ok("the ledger names none")
			}
			lost, of, err := x.Books.Lost(ctx)
			switch {
			case err != nil:
				return failed("", err)
			case lost > 0:
				return bad("", "%s lacks the bytes of %d of the %d newest artifacts that the ledger names: the folder is not the ledger's, or its "+
					"disk is not mounted", x.Site.Gateway.ArtifactDir, lost, of)
			}
			return ok("it has the %d newest", of)
		},
	}, {
		Code: "tokens", Proves: "No bearer token that was made for longer than four weeks expires within two.", Where: Gateway,
		Needs:  []string{ledgerCode},
		Remedy: "create a new token for its user",
		Look: func(ctx context.Context, x *Exam) []Result {
			if x.Books == nil {
				return ok("there are none")
			}
			names, err := x.Books.Expiring(ctx, time.Now(), time.Now().Add(soon))
			switch {
			case err != nil:
				return failed("", err)
			case len(names) > 0:
				return warning("", "%s expires within %d days: %s", plural(len(names), "token"), int(soon.Hours()/24), strings.Join(names, ", "))
			}
			return ok("")
		},
	}}
}

// soon is the time before the end of a token or a certificate at which doctor warns.
const soon = 14 * 24 * time.Hour

// mostRuns bounds how many folders of runs_dir are compared with the ledger.
const mostRuns = 5000

// ledgerAndRuns compares runs_dir with the ledger: its mark, the runs that must be there, and the runs that are there.
func ledgerAndRuns(ctx context.Context, x *Exam) []Result {
	if x.Books == nil {
		return ok("there is no ledger yet")
	}
	staged, err := x.Books.Staged(ctx, x.Cluster.Name)
	if err != nil {
		return failed("", err)
	}
	folder := x.runsFolder()
	dir := folder.name()
	mark, names, err := folder.marked(ctx)
	switch {
	case err != nil:
		return failed("", err)
	case mark == "" && len(staged) > 0:
		return bad("", "%s is not marked as a gateway's, but %s of this ledger must have a folder there: its filesystem is not mounted, or it "+
			"is another folder", dir, plural(len(staged), "unfinished run"))
	case mark != "" && mark != x.Books.ID():
		return bad("set storage.runs_dir to this gateway's folder, or gateway.state_dir to the ledger that belongs to that one",
			"%s belongs to gateway %s, but this ledger is that of gateway %s", dir, mark, x.Books.ID())
	}
	missing := ""
	n := 0
	for _, id := range staged {
		if folder.lacks(names, id) {
			missing = id
			n++
		}
	}
	if n > 0 {
		return bad("", "%s lacks the folders of %s of this ledger, such as %s: the folder was emptied, or an older copy of it is mounted", dir,
			plural(n, "unfinished run"), missing)
	}
	return x.unknownRuns(ctx, dir, names)
}

// unknownRuns finds folders of runs that the ledger does not know: an older ledger was restored, or it is the ledger of
// another folder.
func (x *Exam) unknownRuns(ctx context.Context, dir string, names []string) []Result {
	known, unknownRun, n := 0, "", 0
	for _, name := range names {
		if !strings.HasPrefix(name, "run_") {
			continue
		}
		is, err := x.Books.Knows(ctx, name)
		switch {
		case err != nil:
			return failed("", err)
		case is:
			known++
		default:
			unknownRun = name
			n++
		}
	}
	if n > 0 {
		return bad("restore the newer ledger; if it is lost, docs/run/backup.md, \"Restore\", says what to do with each run",
			"%s has %s that this ledger does not know, such as %s: an older ledger was restored, or another gateway used the folder", dir,
			plural(n, "run"), unknownRun)
	}
	return ok("%s", fmt.Sprintf("its mark and %s are the ledger's", plural(known, "run")))
}
