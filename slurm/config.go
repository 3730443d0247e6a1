package slurm

import (
	"cmp"
	"path/filepath"
	"strings"
	"unicode"
)

// Config is what a site says about its Slurm; package site has checked it. NewCLI fills the fields left zero with the defaults named here.
type Config struct {
	BinDir   string // folder of sbatch, squeue, sacct, scancel, scontrol; default /usr/bin
	Conf     string // SLURM_CONF for all of them; empty: Slurm's own default
	LocksDir string // folder on a disk of this machine alone, for the locks of sends; required
	User     string // whose jobs are asked about: the user sbatch submits as; required

	Script ScriptConfig

	RPCPerMinute int // to slurmctld and slurmdbd together, on average; default 60
}

// ScriptConfig is what a site says about its compute nodes and about what is asked of Slurm for each job.
type ScriptConfig struct {
	Runtime                Runtime
	Verify                 string // "all" (default): image and inputs; "image_only"
	GraceSeconds           int    // between TERM and KILL at the program's own limit; default 10, less than Slurm's KillWait
	VerifyAllowanceSeconds int    // added to the program's limit for hashing, before and after; default 300
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

func (c Config) withDefaults() Config {
	c.Script = c.Script.withDefaults()
	c.BinDir = cmp.Or(c.BinDir, "/usr/bin")
	c.RPCPerMinute = cmp.Or(c.RPCPerMinute, 60)
	return c
}

func (c ScriptConfig) withDefaults() ScriptConfig {
	c.Verify = cmp.Or(c.Verify, VerifyAll)
	c.GraceSeconds = cmp.Or(c.GraceSeconds, 10)
	c.VerifyAllowanceSeconds = cmp.Or(c.VerifyAllowanceSeconds, 300)
	return c
}

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
