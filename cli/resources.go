package cli

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// moreResources holds the options for other memory and time than a tool gives its jobs.
type moreResources struct {
	Mem  string `help:"Memory of the job, for example 8G or 1500M." placeholder:"SIZE"`
	Time string `help:"Time limit of the job, for example 90m, 4h or 1d12h." placeholder:"DURATION"`
}

// asked returns the resources of the options; the problems are reported together.
func (o moreResources) asked(cpus int) (plan.MoreResources, error) {
	var more plan.MoreResources
	var problems []fault.Problem
	if o.Mem != "" {
		if mb, ok := memoryMB(o.Mem); ok {
			more.MemMB = &mb
		} else {
			problems = append(problems, fault.Problem{Code: "RUN-MEM", Field: "--mem", Rule: "a number with its unit M, G or T, for example 8G",
				Msg: strconv.Quote(o.Mem) + " is not an amount of memory"})
		}
	}
	if o.Time != "" {
		if s, ok := wholeSeconds(o.Time); ok {
			more.TimeLimitSeconds = &s
		} else {
			problems = append(problems, fault.Problem{Code: "RUN-TIME", Field: "--time",
				Rule: "numbers with the units d, h, m and s, for example 4h or 1d12h, or HOURS:MINUTES:SECONDS",
				Msg:  strconv.Quote(o.Time) + " is not a duration"})
		}
	}
	if cpus != 0 {
		more.CPUs = &cpus
	}
	if len(problems) > 0 {
		return more, fault.Invalid("", problems...)
	}
	return more, nil
}

// more returns the resources of the options, before anything is imported for the call.
func (c Run) more(tool app.ToolDoc) (plan.MoreResources, error) {
	more, err := c.asked(c.CPUs)
	if err != nil || more.None() {
		return more, err
	}
	bad := func(code, rule, msg, hint string) error {
		return fault.Invalid("", fault.Problem{Code: code, Field: "--mem, --time, --cpus", Rule: rule, Msg: msg, Hint: hint})
	}
	if slices.Contains(tool.Caps, gate.CapWorker) {
		return more, bad("RUN-RESOURCES", "only for tools that run as jobs",
			"a service worker carries out "+tool.ToolID+", which has no job",
			"leave the options out")
	}
	for _, p := range c.Param {
		if p.name == "resources" || strings.HasPrefix(p.name, "resources.") {
			return more, bad("RUN-TWICE", "one value for each argument", "--param "+p.name+" gives it too",
				"leave one of them out")
		}
	}
	return more, nil
}

var memorySize = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([MGTmgt])(?:i?[Bb])?$`)

// memoryMB reads a size as MiB, rounded up.
func memoryMB(s string) (int, bool) {
	m := memorySize.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	mb := math.Ceil(n * map[string]float64{"M": 1, "G": 1 << 10, "T": 1 << 20}[strings.ToUpper(m[2])])
	return int(mb), err == nil && mb >= 1 && mb < 1<<31
}

var clock = regexp.MustCompile(`^(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-5][0-9]):([0-5][0-9])$`)

var days = regexp.MustCompile(`^([0-9]{1,4})d(.*)$`)

// wholeSeconds parses a time limit, rounded up to seconds. It rejects a bare number: sbatch reads it as minutes, others
// as seconds.
func wholeSeconds(s string) (int, bool) {
	if m := clock.FindStringSubmatch(s); m != nil {
		total := 0
		for i, unit := range []int{86400, 3600, 60, 1} {
			n, _ := strconv.Atoi(m[i+1]) // digits, or nothing
			total += n * unit
		}
		return total, total > 0
	}
	var more time.Duration
	if m := days.FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[1])
		more, s = time.Duration(n)*24*time.Hour, m[2]
	}
	if s == "" {
		return int(more / time.Second), more > 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > 1<<31*time.Second {
		return 0, false
	}
	d += more
	return int((d + time.Second - 1) / time.Second), d > 0
}
