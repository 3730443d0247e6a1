package slurm

import (
	"path/filepath"
	"strings"
	"unicode"

	"slurmgate/remote"
)

// Config is what a site says about its Slurm; package site has checked it and knows the defaults. Every field is required but Conf,
// Cluster, Unread, Harmless, and what is about SSH.
type Config struct {
	BinDir   string // folder of sbatch, squeue, sacct, scancel, scontrol
	Conf     string // SLURM_CONF for all of them; empty: Slurm's own default
	Cluster  string // ClusterName of the only cluster that may be reached; empty: any
	LocksDir string // folder on a disk of this machine alone, for the locks of sends; not used over SSH
	User     string // whose jobs are asked about, and cancelled: the user sbatch submits as
	AllUsers bool   // looks are at the jobs of all users; User is still the only one whose jobs are cancelled

	RunsDirOfAll string // with AllUsers: the folder of a user's runs as jobs see it, with a mark in the place of the user's name

	// Over is the login node with Slurm's commands; BinDir and Conf are paths there. nil: they are on this machine.
	Over *remote.Host
	// RunsDir is the folder of all runs as jobs see it, and LoginRunsDir the same folder as the login node sees it. Both are empty where
	// there is no difference.
	RunsDir, LoginRunsDir string

	Script ScriptConfig

	RPCPerMinute int    // to slurmctld and slurmdbd together, on average
	Shared       Shared // a budget of all gateways of this host, besides

	// Unread is called for each answer of a program with records that could not be read: how many, and for the first of them what is
	// wrong and its text. May be nil.
	Unread func(program string, records int, why, example string)
	// Harmless is called once for each kind of line, with its program, that is known from then on to mean nothing. May be nil.
	Harmless func(said string)
}

// ScriptConfig is what a site says about its compute nodes and about what is asked of Slurm for each job.
type ScriptConfig struct {
	Runtime                Runtime
	Verify                 string // VerifyImageOnly: the image alone; anything else: image and inputs
	GraceSeconds           int    // between TERM and KILL at the program's own limit, less than Slurm's KillWait
	VerifyAllowanceSeconds int    // added to the program's limit for hashing, before and after
	Scratch                string // folder on each node's own disk for /tmp of containers; empty: it lies in the attempt's folder
	Local                  bool   // the scripts are of docker plans, which run on the gateway's own host without Slurm
}

// Runtime says how a compute node finds Apptainer: an absolute path, or modules to load.
type Runtime struct {
	Path       string   // e.g. /usr/bin/apptainer
	ModuleInit string   // absolute path of the file that defines the module command, e.g. /etc/profile.d/modules.sh
	Modules    []string // then "apptainer" must be in PATH
}

// Values of ScriptConfig.Verify.
const (
	VerifyAll       = "all"
	VerifyImageOnly = "image_only"
)

// plainPath says what keeps a path from being given to Slurm and to the script as it is, "" when nothing. Slurm
// expands % in the paths of logs, drops \ there, and cuts lines at newlines.
func plainPath(s string) string {
	switch {
	case !filepath.IsAbs(s) || filepath.Clean(s) != s:
		return "an absolute path without . or .. or a trailing slash"
	case strings.ContainsAny(s, `%\`):
		return `a path without % and \, which Slurm would interpret`
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "a path of printable characters"
	}
	return ""
}
