package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"slurmgate/app"
	"slurmgate/cli"
	"slurmgate/fault"
)

// Where names the place of a check.
type Where string

// The places.
const (
	Gateway   Where = "gateway"   // the host of the gateway
	Slurmctld Where = "slurmctld" // Slurm, asked from the gateway's host
	Node      Where = "node"      // a compute node, by a probe job
	Login     Where = "login"     // the login node, over SSH
	Data      Where = "data"      // the SFTP server

	Slurmrestd Where = "slurmrestd"
)

// Check is one entry of the list. It proves one thing, and each of its results describes what was found.
type Check struct {
	Code   string // stable: lower case with underscores
	Proves string // a sentence: what holds if the result is ok
	Where  Where
	Remedy string // in general; a result has its own, with the site's names filled in

	Cluster bool     // it is made for each cluster; else once for the gateway
	Early   bool     // it reads files of this host and changes nothing: start-up and config check make it too
	Alone   bool     // only doctor makes it: it writes to the site, reads much of it, or is about this call
	OneUser bool     // it is made only as the user that --user names
	Stops   bool     // the gateway does not start with a fault that it finds
	Needs   []string // codes of earlier checks; if one of them is a fault or unknown, so is this one

	Only func(Ways) bool // it is made for these clusters alone; nil: for all
	Over reach           // what of the cluster it asks; where that is on another host, start-up and config check leave it out

	// Look makes a check of the gateway's host or of Slurm. A check without a result is unknown.
	Look func(context.Context, *Exam) []Result
	// Judge makes a check of a node, from what the probe saw there. One that is nil there, and has no Look, gets its results elsewhere.
	Judge func(*Exam, *Seen) []Result
	Asks  []string // questions of the probe that Judge needs the answers of; without one of them the check is unknown
}

// Result is one thing that a check found.
type Result struct {
	Status app.CheckStatus
	Found  string
	Remedy string
}

func ok(found string, args ...any) []Result {
	return []Result{{app.CheckOK, sprint(found, args), ""}}
}

func bad(remedy, found string, args ...any) []Result {
	return []Result{{app.CheckFault, sprint(found, args), remedy}}
}

func warning(remedy, found string, args ...any) []Result {
	return []Result{{app.CheckWarning, sprint(found, args), remedy}}
}

// unknown returns the result of a check that could not be made.
func unknown(remedy, found string, args ...any) []Result {
	return []Result{{app.CheckUnknown, sprint(found, args), remedy}}
}

func sprint(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// failed returns the result of an error: unknown if there was no answer in time, else a fault, because what this user
// may not do the service may not do either. An empty remedy is replaced by the error's own advice.
func failed(remedy string, err error) []Result {
	text := fault.Text(err, cli.Words)
	if e := fault.Advised(err); e != nil {
		advice := fault.Advice(e.Next, e.Steps, cli.Words)
		text = strings.TrimSuffix(text, ". Next: "+advice)
		if remedy == "" {
			remedy = advice
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return unknown(remedy, "%s", text)
	}
	return bad(remedy, "%s", text)
}

// command returns a step as a command for this shell.
func command(s fault.Step) string { return cli.Words([]fault.Step{s}) }

// Checks returns the list, in the order in which they are made.
func Checks() []Check {
	var all []Check
	for _, part := range [][]Check{siteChecks(), fileChecks(), ledgerChecks(), referenceChecks(), domainChecks(), workerChecks(), hostChecks(),
		networkChecks(),
		asUserChecks(), farChecks(), restChecks(), clusterFileChecks(), sameFolderChecks(), imageChecks(), slurmChecks(),
		sightChecks(), placementChecks(), historyChecks(),
		nodeChecks()} {
		all = append(all, part...)
	}
	return all
}

// Table lists the checks for people and programs.
func Table() []app.CheckDoc {
	var rows []app.CheckDoc
	for _, c := range Checks() {
		rows = append(rows, app.CheckDoc{Code: c.Code, Where: string(c.Where), Proves: c.Proves, Remedy: c.Remedy, Early: c.Early})
	}
	return rows
}
