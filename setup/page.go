package setup

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/visible"
)

//go:embed site.tmpl.yaml
var siteText string

//go:embed policies.tmpl.yaml
var policyText string

// page is the input of the templates: what was found, and what follows from it.
type page struct {
	Found
	Day string // of writing, UTC
}

// domainsDir is the parent of domain folders, in the site file's folder.
const domainsDir = "domains"

// DomainDir returns the folder of the domain, relative to that of the site file.
func (p page) DomainDir() string {
	if p.Domain != "" {
		return filepath.Join(domainsDir, filepath.Base(p.Domain))
	}
	return filepath.Join(domainsDir, p.Name)
}

// RunsDir returns the folder of runs, on the filesystem that the nodes share.
func (p page) RunsDir() string { return filepath.Join(p.Shared, "slurmgate", "runs") }

// ImageStore returns the folder of images, by digest, on the same filesystem.
func (p page) ImageStore() string { return filepath.Join(p.Shared, "slurmgate", "images") }

// OverSFTP reports whether files go by SFTP.
func (p page) OverSFTP() bool { return p.Login != nil && p.Files == "sftp" }

// Where names the host that was read.
func (p page) Where() string {
	if p.Login != nil {
		return visible.Line(p.Login.Host)
	}
	return "this host"
}

// There returns "there" if the mounts are on a login node, else "here".
func (p page) There() string {
	if p.Login != nil {
		return "there"
	}
	return "here"
}

// dropIn is the command that lets the package's unit write to more folders, the second argument. The first one is the
// folder of its drop-ins.
const dropIn = `install -d %[1]s && ` +
	`printf '[Unit]\nRequiresMountsFor=%[2]s\n[Service]\nReadWritePaths=%[2]s\n' >%[1]s/folders.conf && systemctl daemon-reload`

// folders returns the commands that make the folders, and the one that lets the package's unit write there.
func (p page) folders() (list []string) {
	state := fmt.Sprintf("install -d -m 700 -o %s %s", p.User, p.StateDir)
	if p.OverSFTP() {
		list = []string{state, p.Login.command(p.Key) + fmt.Sprintf(" install -d -m 700 %s %s", p.RunsDir(), p.ImageStore())}
	} else {
		list = []string{fmt.Sprintf("install -d -m 755 %s %s", filepath.Dir(p.RunsDir()), p.ImageStore()),
			fmt.Sprintf("install -d -m 700 -o %s %s", p.User, p.RunsDir()), state}
	}
	if more := p.unitFolders(); p.Service() != "" && len(more) > 0 {
		list = append(list, fmt.Sprintf(dropIn, "/etc/systemd/system/"+unit+".d", strings.Join(more, " ")))
	}
	return list
}

// unitFolders returns the folders that the gateway writes to and that the package's unit does not name.
func (p page) unitFolders() (list []string) {
	if dir := filepath.Dir(p.RunsDir()); !p.OverSFTP() && dir != unitShared {
		list = append(list, dir)
	}
	if p.StateDir != localState {
		list = append(list, p.StateDir)
	}
	return list
}

// Socket returns the socket's path in the service's own folder, if that exists.
func (p page) Socket() string {
	if fi, err := os.Stat("/run/slurmgate"); err == nil && fi.IsDir() {
		return "/run/slurmgate/gateway.sock"
	}
	return ""
}

// The package's unit, and the folder on the shared filesystem that it may write to.
const (
	unit       = "slurmgate.service"
	unitShared = "/shared/slurmgate"
)

// Service returns the unit of the package, if this gateway's user is the package's user or that of the unit on this
// host.
func (p page) Service() string {
	if p.User == serviceUser {
		return unit
	}
	for _, dir := range []string{"/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"} {
		text, err := os.ReadFile(filepath.Join(dir, unit))
		if err == nil && slices.Contains(strings.Split(string(text), "\n"), "User="+p.User) {
			return unit
		}
	}
	return ""
}

// Grace returns the time from TERM to KILL in seconds, shorter than Slurm's own.
func (p page) Grace() int {
	wait := p.Config().Seconds("KillWait")
	if wait == 0 {
		return 10
	}
	return min(10, max(1, int(wait/time.Second)-2))
}

// Config returns slurmctld's configuration.
func (f Found) Config() run.ClusterConfig { return f.Slurm.Config.Value }

// HasAccounts reports whether the user of the jobs may charge accounts by associations.
func (p page) HasAccounts() bool { return len(p.own().Accounts) > 0 }

// ChargesDefault reports whether plans without an account charge Slurm's default.
func (p page) ChargesDefault() bool { return p.Charged.Name == p.own().Default }

// RPCRate returns the RPCs a minute that slurmctld allows each user, by rl_enable, rl_refill_rate (2) and rl_refill_period (1 s); 0: it
// does not limit them. (slurm.conf(5), SlurmctldParameters)
func (p page) RPCRate() int {
	v := map[string]int{"rl_refill_rate": 2, "rl_refill_period": 1}
	enabled := false
	for word := range strings.SplitSeq(p.Config().Values["SlurmctldParameters"], ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		enabled = enabled || key == "rl_enable"
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			v[key] = n
		}
	}
	if !enabled {
		return 0
	}
	return max(1, v["rl_refill_rate"]*60/v["rl_refill_period"])
}

// Rate returns the budget of RPCs a minute where slurmctld limits them.
func (p page) Rate() int { return min(6000, max(1, p.RPCRate()*95/100)) }

// Floor returns the shortest time between two queries there, in seconds; a query costs two RPCs.
func (p page) Floor() int { return min(3600, max(10, 240/p.Rate())) }

// Ceiling returns the longest time between two queries in seconds, at least Floor.
func (p page) Ceiling() int { return max(60, p.Floor()) }

// AllowedNames returns the partitions that the policy lists.
func (p page) AllowedNames() (names []string) {
	for _, part := range p.allowed() {
		names = append(names, part.Name)
	}
	return names
}

// Accounts returns the accounts that the policy lists.
func (p page) Accounts() []string {
	names := []string{p.Charged.Name}
	for _, a := range p.own().Accounts {
		if a.Name != p.Charged.Name && plan.IsSlurmName(a.Name) {
			names = append(names, a.Name)
		}
	}
	return names
}

// Limited reports whether every listed partition has a time limit.
func (p page) Limited() bool {
	for _, part := range p.allowed() {
		if part.MaxSeconds == 0 {
			return false
		}
	}
	return true
}

// MaxSeconds returns the longest time limit of a program. The job's own limit is longer by the time to verify image
// and inputs.
func (p page) MaxSeconds() int {
	if !p.Limited() {
		return 7 * 24 * 3600
	}
	return max(60, p.most(func(c Choice) int { return int(c.MaxSeconds) })-allowance)
}

// allowance is the default of slurm.verify_allowance_seconds plus that of the grace time, rounded up.
const allowance = 180

// MaxCPUs returns the most CPUs of a node in the listed partitions.
func (p page) MaxCPUs() int {
	return min(plan.MaxCPUs, max(1, p.most(func(c Choice) int { return c.CPUs })))
}

// MaxMemMB returns the most memory of such a node in MiB.
func (p page) MaxMemMB() int {
	return min(plan.MaxMemMB, max(1, p.most(func(c Choice) int { return c.MemMB })))
}

// MaxGPUs returns the most GPUs of such a node, 0 without GPUs.
func (p page) MaxGPUs() int { return min(plan.MaxGPUs, p.most(func(c Choice) int { return c.GPUs })) }

func (p page) most(of func(Choice) int) (n int) {
	for _, c := range p.Partitions {
		if c.Allowed {
			n = max(n, of(c))
		}
	}
	return n
}

// render fills a template. Slurm's texts become comments without line breaks, and values that are quoted unless they
// are plain.
func (p page) render(text string) (string, error) {
	var b strings.Builder
	t, err := template.New("").Funcs(template.FuncMap{"yaml": scalar, "comment": visible.Line, "list": func(words []string) string {
		var out []string
		for _, w := range words {
			out = append(out, scalar(w))
		}
		return strings.Join(out, ", ")
	}}).Parse(text)
	if err == nil {
		err = t.Execute(&b, p)
	}
	if err != nil {
		return "", fault.Wrap(fault.Internal, "", "the file cannot be written", err)
	}
	return b.String(), nil
}

var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/_.+-]*$`)

// scalar writes a word as YAML. It quotes no, on and the like, and everything else that YAML may read as something
// other than a text.
func scalar(s string) string {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

var topLevel = regexp.MustCompile(`(?m)^[A-Za-z_]+:`)

// replaceSection replaces a section of one YAML text by the same section of another, and keeps the rest, including
// comments. If the section is missing it is appended.
func replaceSection(into, from, key string) string {
	section := func(s string) (start, end int) {
		start, end = len(s), len(s)
		for _, at := range topLevel.FindAllStringIndex(s, -1) {
			if start < len(s) {
				return start, at[0]
			}
			if s[at[0]:at[1]] == key+":" {
				start = at[0]
			}
		}
		return start, end
	}
	a, b := section(into)
	c, d := section(from)
	return into[:a] + from[c:d] + into[b:]
}
