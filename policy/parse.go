package policy

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/programs"
	"slurmgate/policy/yamldoc"
)

// toolNames says what toolName accepts.
const toolNames = "tool names such as samtools_flagstat: the id with _ for each dot"

// Defaults and bounds of values that may be left out.
const (
	tebibyte         = 1 << 40
	maxBytes         = 1<<53 - 1
	maxPreviewBytes  = 64 << 10
	mostFiles        = 200_000 // of every directory artifact, see plan/tree
	mostDepth        = 32      // likewise
	maxPreviewLines  = 2000
	maxLogBytes      = 64 << 20
	maxConcurrency   = 10000
	maxListed        = 1024
	defaultPreview   = 16 << 10
	defaultLines     = 200
	defaultLog       = 1 << 20
	defaultTimeout   = 900
	defaultInfraRuns = 1
)

// Parse reads a policies.yaml. file names it in messages; env looks up the value of ${NAME}. Every broken rule is reported,
// in one Validation fault with lines.
func Parse(file string, data []byte, env func(string) (string, bool)) (*Policy, error) {
	r := &yamldoc.Reader{File: file, Prefix: "POLICY"}
	doc := r.Parse(data)
	left := maxExpanded
	var long error
	doc.Rewrite("ENV-UNDEFINED", "${NAME} names a variable that is set; $${ is a literal ${", func(s string) (string, error) {
		if long != nil {
			return s, nil // the document is refused anyway
		}
		out, err := expand(s, left, env)
		if errors.As(err, new(tooLong)) {
			long = err
			return s, nil
		}
		left -= len(out)
		return out, err
	})
	if long != nil {
		r.Add("SIZE", "", fmt.Sprintf("at most %d bytes of text, with the values of variables", maxExpanded), long.Error(),
			"use long variables less often")
	}
	p := &Policy{file: file, doc: r}
	p.read(doc.Object("version", "tool_allowlist", "images_allowlist", "slurm", "sites", "local", "import", "limits", "env", "equivalent_runs",
		"executed_as", "retry", "network", "concurrency", "workers", "consent", "default_timeout_sec", "egress_allowlist", "logging",
		"timeouts"))
	tree := doc.JSON()
	if len(r.Problems()) == 0 {
		p.Moved = withoutMoved(tree)
		var err error
		if p.Snapshot, err = yamldoc.Canonical(tree); err != nil {
			r.Add("JSON", "", "a document that is also I-JSON", fault.First(err), "")
		}
		p.Hash = plan.Hash(p.Snapshot)
	}
	if bad := r.Problems(); len(bad) > 0 {
		return nil, &fault.Error{Kind: fault.Validation, Code: bad[0].Code, Problems: bad,
			Msg: "the policy " + file + " is invalid", Next: "correct the named lines; nothing is allowed until then"}
	}
	return p, nil
}

// maxExpanded bounds the texts of a policy in bytes, all together: a short file may name a long variable many times.
const maxExpanded = yamldoc.MaxBytes

// tooLong is the error about a text that is longer than it may be.
type tooLong string

func (t tooLong) Error() string { return string(t) + " makes the policy too long" }

var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}?`)

// expand replaces each ${NAME} by its value, which is not expanded again. $${ stands for ${. A result of more than most bytes is never
// built: the error is then [tooLong].
func expand(s string, most int, env func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for at := variable.FindStringSubmatchIndex(s); at != nil; at = variable.FindStringSubmatchIndex(s) {
		value, what := "${", "an escaped ${"
		if at[2] >= 0 {
			name, known := s[at[2]:at[3]], false
			if at[1] == at[3] || !plan.IsEnvName(name) {
				return "", errors.New("${ must be followed by a variable name and }")
			}
			if value, known = env(name); !known {
				return "", fmt.Errorf("the environment variable %s is not set", name)
			}
			what = "the value of " + name
		}
		if b.Len()+at[0]+len(value) > most {
			return "", tooLong(what)
		}
		b.WriteString(s[:at[0]] + value)
		s = s[at[1]:]
	}
	if b.Len()+len(s) > most {
		return "", tooLong("the text with the values of variables")
	}
	return b.String() + s, nil
}

var (
	toolName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,127}$`)
	digest   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	imageKey = regexp.MustCompile(`^([a-z0-9][a-z0-9._-]{0,127}|sha256:[0-9a-f]{64})$`)
	program  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)
	feature  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
)

func (p *Policy) read(o yamldoc.Object) {
	if p.Version = 1; !isAX(o) || o.Opt("version").Exists() {
		p.Version = int(o.Need("version").Int(1, 1))
	}
	p.ToolAllowlist = listed(o.Opt("tool_allowlist"), "TOOL-NAME", toolNames, toolName.MatchString)
	p.ImagesAllowlist = listed(o.Opt("images_allowlist"), "IMAGE", "sha256:<64 hex digits>", digest.MatchString)
	p.Slurm.read(o.Opt("slurm"))
	p.Sites.read(o.Opt("sites"))
	p.Local.read(o.Opt("local"))

	imp := o.Opt("import").Object("roots", "max_bytes", "kinds", "types_allowlist", "directory")
	const roots = "absolute folders without . or .. or double slashes, not /"
	p.Import.Roots = append([]string{}, imp.Opt("roots").Words("IMPORT-ROOT", roots, isRoot)...)
	p.Import.MaxBytes = number(imp.Opt("max_bytes"), 0, maxBytes, tebibyte)
	p.Import.Kinds = listed(imp.Opt("kinds"), "IMPORT-KIND", "one of "+strings.Join(ImportKinds(), ", "),
		func(s string) bool { return slices.Contains(ImportKinds(), s) })
	if dir := imp.Opt("directory"); dir.Exists() {
		in := dir.Object("max_files", "max_depth", "max_bytes")
		p.Import.Directory = &DirectoryLimits{MaxFiles: number(in.Opt("max_files"), 1, mostFiles, 0),
			MaxDepth: number(in.Opt("max_depth"), 1, mostDepth, 0), MaxBytes: number(in.Opt("max_bytes"), 1, maxBytes, 0)}
	}
	p.Import.Types = listed(imp.Opt("types_allowlist"), "TYPE", "artifact types, e.g. BAM", plan.IsTypeName)

	lim := o.Opt("limits").Object("preview_bytes", "preview_lines", "collect_bytes", "log_bytes")
	p.Limits = Limits{
		PreviewBytes: number(lim.Opt("preview_bytes"), 1, maxPreviewBytes, defaultPreview),
		PreviewLines: number(lim.Opt("preview_lines"), 1, maxPreviewLines, defaultLines),
		CollectBytes: number(lim.Opt("collect_bytes"), 1, maxBytes, tebibyte),
		LogBytes:     number(lim.Opt("log_bytes"), 1, maxLogBytes, defaultLog),
	}
	p.Env = map[string]string{}
	for _, e := range o.Opt("env").Entries() {
		if !plan.IsEnvName(e.Key) || programs.ChangesCode(e.Key) {
			e.Fail("ENV", "names of variables, none that decides which code a program loads",
				`a policy cannot set the variable "`+clip(e.Key)+`"`, "remove it")
		}
		p.Env[e.Key] = e.Text()
	}
	p.EquivalentRuns = word(o.Opt("equivalent_runs"), "EQUIVALENT-RUNS", "submit", "reuse")
	p.ExecutedAs.SharedProjects = append([]string{}, o.Opt("executed_as").Object("shared_projects").Opt("shared_projects").
		Words("PROJECT", "names or ids of projects", func(s string) bool { return plan.CheckProject(s) == "" })...)
	retry := o.Opt("retry").Object("infrastructure_attempts")
	p.Retry.InfrastructureAttempts = int(number(retry.Opt("infrastructure_attempts"), 0, 10, defaultInfraRuns))

	p.readConcurrency(o.Opt("concurrency"))
	work := o.Opt("workers").Object("max_calls", "hybrid")
	p.Workers = Workers{MaxCalls: int(number(work.Opt("max_calls"), 1, maxConcurrency, 0)),
		Hybrid: append([]string{}, work.Opt("hybrid").Words("TOOL-NAME", toolNames, toolName.MatchString)...)}
	p.Consent.read(o.Opt("consent"))
	p.EgressAllowlist = append([]string{}, o.Opt("egress_allowlist").Words("EGRESS", "host:port", plan.IsHostPort)...)
	p.readAX(o)
}

func (s *Slurm) read(v yamldoc.Value) {
	o := v.Object("partitions_allowlist", "accounts_allowlist", "qos_allowlist", "constraints_allowlist", "gpu_types_allowlist",
		"max_cpus", "max_mem_mb", "max_time_limit_seconds", "max_gpus", "raw_plans")
	const name = "Slurm names: letters, digits, _ . + -"
	s.Partitions = listed(o.Opt("partitions_allowlist"), "SLURM-NAME", name, plan.IsSlurmName)
	s.Accounts = listed(o.Opt("accounts_allowlist"), "SLURM-NAME", name, plan.IsSlurmName)
	s.QOS = listed(o.Opt("qos_allowlist"), "SLURM-NAME", name, plan.IsSlurmName)
	s.Constraints = listed(o.Opt("constraints_allowlist"), "SLURM-NAME", "features (letters, digits, _ . -) and whole constraints",
		func(s string) bool { return feature.MatchString(s) || plan.IsConstraint(s) })
	s.GPUTypes = listed(o.Opt("gpu_types_allowlist"), "SLURM-NAME", name, plan.IsSlurmName)
	s.MaxCPUs = int(number(o.Opt("max_cpus"), 1, plan.MaxCPUs, plan.MaxCPUs))
	s.MaxMemMB = int(number(o.Opt("max_mem_mb"), 1, plan.MaxMemMB, plan.MaxMemMB))
	s.MaxTimeLimitSeconds = int(number(o.Opt("max_time_limit_seconds"), 1, plan.MaxTimeLimitSeconds, plan.MaxTimeLimitSeconds))
	s.MaxGPUs = int(number(o.Opt("max_gpus"), 0, plan.MaxGPUs, plan.MaxGPUs))

	raw := o.Opt("raw_plans").Object("allowed", "entry_programs", "env")
	s.RawPlans = RawPlans{Allowed: raw.Opt("allowed").Bool(), EntryPrograms: map[string][]string{}}
	for _, e := range raw.Opt("entry_programs").Entries() {
		if !imageKey.MatchString(e.Key) {
			e.Fail("IMAGE", "the name of an image in images.lock.yaml, or sha256:<64 hex digits>", `"`+clip(e.Key)+`" is not an image`, "")
		}
		const rule = "base names of programs, no shell and none that starts others or runs code given in an argument"
		s.RawPlans.EntryPrograms[e.Key] = e.Words("ENTRY-PROGRAM", rule, func(s string) bool {
			return program.MatchString(s) && !programs.Starts(s) && !programs.Codes(s)
		})
	}
	s.RawPlans.Env = listed(raw.Opt("env"), "ENV", "names of variables, none that decides which code a program loads or that the gateway, "+
		"Slurm or "+
		"the container's runtime sets", func(s string) bool { return plan.IsEnvName(s) && !programs.FindsCode(s) && !programs.Reserved(s) })
}

func (l *Local) read(v yamldoc.Value) {
	o := v.Object("tools_allowlist", "max_running", "max_cpus", "max_mem_mb", "max_time_limit_seconds", "max_input_bytes")
	l.Allowed = v.Exists()
	l.Tools = listed(o.Opt("tools_allowlist"), "TOOL-NAME", toolNames, toolName.MatchString)
	l.MaxRunning = int(number(o.Opt("max_running"), 1, 64, 1))
	l.MaxCPUs = int(number(o.Opt("max_cpus"), 1, plan.MaxCPUs, 1))
	l.MaxMemMB = int(number(o.Opt("max_mem_mb"), 1, plan.MaxMemMB, 1024))
	l.MaxTimeLimitSeconds = int(number(o.Opt("max_time_limit_seconds"), 1, 3600, 60))
	l.MaxInputBytes = number(o.Opt("max_input_bytes"), 0, maxBytes, 100<<20)
}

func listed(v yamldoc.Value, code, rule string, ok func(string) bool) *[]string {
	if !v.Exists() {
		return nil
	}
	words := v.Words(code, rule, ok)
	if len(words) > maxListed {
		v.Fail("SIZE", fmt.Sprintf("at most %d entries", maxListed), fmt.Sprintf("the list has %d entries, which are too many", len(words)), "")
	}
	words = append([]string{}, words...)
	return &words
}

func number(v yamldoc.Value, low, high, absent int64) int64 {
	if !v.Exists() {
		return absent
	}
	return v.Int(low, high)
}

// word reads one of several words; the first is the default.
func word(v yamldoc.Value, code string, words ...string) string {
	if !v.Exists() {
		return words[0]
	}
	return v.OneOf(code, words...)
}

func isRoot(s string) bool {
	return path.IsAbs(s) && path.Clean(s) == s && s != "/" && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// shown lists allowed values for a message.
func shown(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	list = slices.Sorted(slices.Values(list))
	if len(list) > 20 {
		return strings.Join(list[:20], ", ") + fmt.Sprintf(" and %d more", len(list)-20)
	}
	return strings.Join(list, ", ")
}
