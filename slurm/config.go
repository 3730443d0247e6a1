package slurm

import (
	"path/filepath"
	"strings"
	"unicode"

	"slurmgate/remote"
)

// Config holds a site's settings of Slurm. Package site has checked them and set the defaults. Every field is required
// but Conf, Cluster, Unread, Harmless, and those for SSH.
type Config struct {
	BinDir   string // folder of sbatch, squeue, sacct, scancel, scontrol
	Conf     string // SLURM_CONF for all of them; empty: Slurm's own default
	Cluster  string // ClusterName of the only cluster that may be reached; empty: any
	LocksDir string // folder on a disk of this machine alone, for the locks of sends; not used over SSH
	User     string // the user sbatch submits as, whose jobs are queried and cancelled
	AllUsers bool   // queries cover the jobs of all users; only jobs of User are cancelled

	RunsDirOfAll string // with AllUsers: the folder of a user's runs as jobs see it, with a placeholder for the user's name

	// Over is the login node with Slurm's commands; BinDir and Conf are paths there. nil: they are on this machine.
	Over *remote.Host
	// RunsDir is the folder of all runs as jobs see it, and LoginRunsDir the same folder as the login node sees it. Both are empty where
	// there is no difference.
	RunsDir, LoginRunsDir string

	Script ScriptConfig

	RPCPerMinute int    // to slurmctld and slurmdbd together, on average
	Shared       Shared // additional budget of all gateways of this host

	// Unread is called for each answer of a program with records that could not be read: their number, and for the
	// first of them the reason and its text. May be nil.
	Unread func(program string, records int, why, example string)
	// Harmless is called once for each kind of line that is ignored from then on. The text begins with the program. May
	// be nil.
	Harmless func(said string)
}

// ScriptConfig holds a site's settings of its compute nodes and of the request for each job.
type ScriptConfig struct {
	Runtime                Runtime
	Verify                 string // VerifyImageOnly: the image alone; anything else: image and inputs
	GraceSeconds           int    // between TERM and KILL at the program's own limit, less than Slurm's KillWait
	VerifyAllowanceSeconds int    // added to the program's limit for hashing, before and after
	Scratch                string // folder on each node's own disk for /tmp of containers; empty: /tmp is in the attempt's folder
	Local                  bool   // scripts are for docker plans, which run on the gateway's own host without Slurm
}

// Runtime states how a compute node finds Apptainer: an absolute path, or modules to load.
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

// plainPath returns the rule that a path breaks which Slurm and the script would not read literally, or "" if it is
// plain. Slurm expands % in the paths of logs, drops \ there, and cuts lines at newlines.
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
