package slurm

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"slurmgate/fault"
)

// Config is what a site says about its Slurm. NewCLI fills the fields left zero with the defaults named here.
type Config struct {
	BinDir   string // folder of sbatch, squeue, sacct, scancel, scontrol; default /usr/bin
	Conf     string // SLURM_CONF for all of them; empty: Slurm's own default
	LocksDir string // folder on a disk of this machine alone, for the locks of sends; required
	User     string // whose jobs are asked about: the user sbatch submits as; required

	Script ScriptConfig
	Budget BudgetConfig

	QueryTimeout  time.Duration // of one squeue, sacct, scancel or scontrol; default 60 s
	MaxQueryBytes int64         // of what one query may print; default 64 MiB
}

// ScriptConfig is what a site says about its compute nodes and about what is asked of Slurm for each job.
type ScriptConfig struct {
	Runtime                Runtime
	Verify                 string // "all" (default): image and inputs; "image_only"
	GraceSeconds           int    // between TERM and KILL at the program's own limit; default 10, less than Slurm's KillWait
	VerifyAllowanceSeconds int    // added to the program's limit for hashing, before and after; default 300
	Export                 string // "NIL" (default) or "NONE", for a Slurm that does not know NIL
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

// moduleName is what may stand behind "module load".
var moduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}$`)

func (c Config) withDefaults() Config {
	def(&c.BinDir, "/usr/bin")
	def(&c.QueryTimeout, time.Minute)
	def(&c.MaxQueryBytes, 64<<20)
	def(&c.Script.Verify, VerifyAll)
	def(&c.Script.GraceSeconds, 10)
	def(&c.Script.VerifyAllowanceSeconds, 300)
	def(&c.Script.Export, "NIL")
	def(&c.Budget.RPCPerMinute, 60)
	def(&c.Budget.SendsInFlight, 4)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check reports every rule the configuration breaks.
func (c Config) check() error {
	p := c.Script.problems()
	add := func(field, rule, got string) {
		p = append(p, fault.Problem{Code: "SITE-SLURM", Field: field, Rule: rule, Msg: "got " + Quote(got)})
	}
	path := func(field, s string, optional bool) {
		if optional && s == "" {
			return
		}
		if msg := plainPath(s); msg != "" {
			add(field, msg, s)
		}
	}
	path("bin_dir", c.BinDir, false)
	path("conf", c.Conf, true)
	path("locks_dir", c.LocksDir, false)
	if !userName.MatchString(c.User) {
		add("user", "a unix user name", c.User)
	}
	if c.Budget.RPCPerMinute < 1 {
		add("budget.rpc_per_minute", "at least 1", fmt.Sprint(c.Budget.RPCPerMinute))
	}
	if c.Budget.SendsInFlight < 1 {
		add("budget.sends_in_flight", "at least 1", fmt.Sprint(c.Budget.SendsInFlight))
	}
	if c.QueryTimeout < time.Second {
		add("query_timeout", "at least 1 s", c.QueryTimeout.String())
	}
	if c.MaxQueryBytes < 1<<20 {
		add("max_query_bytes", "at least 1 MiB", fmt.Sprint(c.MaxQueryBytes))
	}
	return refusal(p)
}

func refusal(p []fault.Problem) error {
	if len(p) == 0 {
		return nil
	}
	return fault.Invalid("slurm.Config", "the site's Slurm settings cannot be used", p...)
}

var userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$`)

func (c ScriptConfig) problems() []fault.Problem {
	var p []fault.Problem
	add := func(field, rule, got string) {
		p = append(p, fault.Problem{Code: "SITE-SCRIPT", Field: field, Rule: rule, Msg: "got " + Quote(got)})
	}
	r := c.Runtime
	switch {
	case r.Path != "" && len(r.Modules) > 0:
		add("runtime", "a path or modules, not both", r.Path)
	case r.Path != "":
		if msg := plainPath(r.Path); msg != "" {
			add("runtime.path", msg, r.Path)
		}
	case len(r.Modules) == 0:
		add("runtime", "a path or modules", "")
	default:
		if msg := plainPath(r.ModuleInit); msg != "" {
			add("runtime.module_init", msg, r.ModuleInit)
		}
		for _, m := range r.Modules {
			if !moduleName.MatchString(m) {
				add("runtime.modules", "module names, as in \"apptainer/1.4\"", m)
			}
		}
	}
	if c.Verify != VerifyAll && c.Verify != VerifyImageOnly {
		add("verify", "all or image_only", c.Verify)
	}
	if c.GraceSeconds < 1 || c.GraceSeconds > 3600 {
		add("grace_seconds", "1 to 3600, and less than Slurm's KillWait", fmt.Sprint(c.GraceSeconds))
	}
	if c.VerifyAllowanceSeconds < 0 || c.VerifyAllowanceSeconds > 86400 {
		add("verify_allowance_seconds", "0 to 86400", fmt.Sprint(c.VerifyAllowanceSeconds))
	}
	if c.Export != "NIL" && c.Export != "NONE" {
		add("export", "NIL or NONE", c.Export)
	}
	return p
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
