package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// planted is a fault of a site, and the checks that find it.
type planted struct {
	name   string
	code   string // of doctor's check
	status string // fault, warning or unknown
	found  string // part of the finding

	file    func(*siteFile)    // how the site file differs
	edit    [][2]string        // texts of site.yaml, and what replaces them
	rules   [][2]string        // the same in policies.yaml
	plant   func(*site)        // on the site, after it is written
	as      []string           // a command before doctor, as prlimit
	program string             // of the site's folder, in place of the usual one
	root    bool               // root runs doctor and config check
	also    []string           // other checks that find the same fault
	serve   string             // part of serve's output; empty: the check's code is in its log, or it does not start
	mute    bool               // start-up cannot see it: only doctor writes to the site, or reads every byte
	front   func(*site) func() // something that runs meanwhile; the function returned ends it
}

// said holds what doctor, serve and config check printed about a fault.
type said struct{ fault, code, doctor, serve, config string }

// Each fault is planted on a healthy site. Doctor names it by its code, calls nothing else broken, and start-up and
// config check do not contradict it; on the healthy site none of the three reports anything.
//
// proves OPS-02
func TestDoctorFaults(t *testing.T) {
	var (
		mu   sync.Mutex
		rows []said
	)
	faults := append(plantedHere(), plantedInSlurm()...)
	faults = append([]planted{{name: "nothing is wrong"}}, faults...)
	t.Run("planted", func(t *testing.T) {
		for _, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				row := f.try(t)
				mu.Lock()
				rows = append(rows, row)
				mu.Unlock()
			})
		}
	})
	if len(faults) < 29 {
		t.Errorf("%d faults", len(faults)-1)
	}
	slices.SortFunc(rows, func(a, b said) int {
		at := func(s said) int { return slices.IndexFunc(faults, func(f planted) bool { return f.name == s.fault }) }
		return at(a) - at(b)
	})
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | code | doctor | serve | config check |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.fault, r.code, r.doctor, r.serve, r.config)
	}
	t.Logf("%d faults planted\n%s", len(faults)-1, b.String())
}

// try plants the fault and asks all three.
func (f planted) try(t *testing.T) said {
	edit := []func(*siteFile){}
	if f.file != nil {
		edit = append(edit, f.file)
	}
	s := newSite(t, "genomics", edit...)
	for _, e := range f.edit {
		s.replace("site.yaml", e[0], e[1])
	}
	for _, e := range f.rules {
		s.replace("domain/policies.yaml", e[0], e[1])
	}
	if f.plant != nil {
		f.plant(s)
	}
	if f.front != nil {
		t.Cleanup(f.front(s))
	}
	row := said{fault: f.name, code: f.code}
	row.doctor = f.askDoctor(s)
	row.config = f.askConfig(s)
	row.serve = f.askServe(s)
	return row
}

func (f planted) run(s *site, args ...string) result {
	s.t.Helper()
	user := "lab"
	if f.root {
		user = "root"
	}
	ctx, stop := commandContext(s.t)
	defer stop()
	program := world.dir + "/slurmgate"
	if f.program != "" {
		program = s.dir + "/" + f.program
	}
	argv := append(append(slices.Clone(f.as), program), args...)
	c := inClusterContext(ctx, user, []string{"SLURMGATE_SITE=" + s.dir + "/site.yaml"}, argv...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		s.t.Fatal(err)
	}
	return result{args, c.ProcessState.ExitCode(), out.Bytes(), errs.Bytes()}
}

// askDoctor wants this fault, and no other one.
func (f planted) askDoctor(s *site) string {
	s.t.Helper()
	r := f.run(s, "doctor", "--no-jobs", "--json")
	var e examined
	r.object(s.t, &e)
	status, found, remedy := e.find(f.code)
	if f.code != "" && (status != f.status || !strings.Contains(found, f.found) || remedy == "") {
		s.t.Errorf("doctor reports for %s: %s: %s (%s)\n%v", f.code, status, found, remedy, r)
	}
	for _, other := range e.Findings {
		if other.Status == "ok" || other.Code == f.code || slices.Contains(f.also, other.Code) ||
			other.Status == "unknown" && strings.Contains(other.Found, "has to be ok first") {
			continue
		}
		s.t.Errorf("doctor reports also: %s: %s: %s", other.Code, other.Status, other.Found)
	}
	want := map[string]int{"": 0, "warning": 0, "unknown": 8, "fault": 1}[f.status]
	if e.Faults > 0 {
		want = 1
	}
	if r.code != want {
		s.t.Errorf("exit status %d is due: %v", want, r)
	}
	if strings.Contains(remedy, "scontrol ping") || f.status == "" && e.Warnings > 0 {
		s.t.Errorf("doctor names %q as next step, with %d warnings; want no remedy by scontrol ping, and no warning without a fault",
			remedy, e.Warnings)
	}
	if f.code == "" {
		return "all ok"
	}
	return s.plain(fmt.Sprintf("%s: %s. Next: %s", status, found, remedy))
}

// askConfig wants the same of the checks that config check makes too.
func (f planted) askConfig(s *site) string {
	s.t.Helper()
	r := f.run(s, "config", "check", "--json")
	var c struct {
		Findings []struct {
			Code, Status, Found string
			Stops               bool
		}
		Warnings []string
		Error    *failure
	}
	r.object(s.t, &c)
	if c.Error != nil {
		if f.code != "site_file" {
			s.t.Errorf("config check: %v", r)
		}
		return s.plain("refused: " + c.Error.Message)
	}
	text := "nothing"
	for _, one := range c.Findings {
		if one.Code != f.code && !slices.Contains(f.also, one.Code) && !strings.Contains(one.Found, "has to be ok first") {
			s.t.Errorf("with the fault %s config check also reports %+v", f.name, one)
		}
		if one.Code == f.code {
			text = one.Status + ": " + one.Found
			if one.Stops {
				text = "will not start: " + one.Found
			}
		}
	}
	if text == "nothing" && len(c.Warnings) > 0 {
		text = c.Warnings[0]
	}
	if early(s, f.code) && text == "nothing" {
		s.t.Errorf("config check does not report %s", f.code)
	}
	return s.plain(text)
}

var earlyChecks struct {
	sync.Once
	codes map[string]bool
}

// early reports whether config check and start-up also make a check, according to doctor --list.
func early(s *site, code string) bool {
	earlyChecks.Do(func() {
		earlyChecks.codes = map[string]bool{}
		var l struct {
			Checks []struct {
				Code  string
				Early bool
			}
		}
		s.ok(&l, "doctor", "--list")
		for _, c := range l.Checks {
			earlyChecks.codes[c.Code] = c.Early
		}
	})
	return earlyChecks.codes[code]
}

var logged = regexp.MustCompile(`msg=("(?:[^"\\]|\\.)*"|\S+) check=(\S+)`)

// askServe starts the gateway: it refuses, or it logs the fault; with a warning it starts.
func (f planted) askServe(s *site) string {
	s.t.Helper()
	ctx, stop := commandContext(s.t)
	defer stop()
	c := s.command(ctx, "serve")
	var text syncBuffer
	c.Stdout, c.Stderr = &text, &text
	must(s.t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	pid := ""
	defer func() {
		if pid != "" {
			_ = inCluster("lab", "kill", "-TERM", pid).Run()
			<-ended
		}
	}()
	answer := ""
	until(s.t, "word of serve about "+f.code, func() bool {
		select {
		case err := <-ended:
			if _, failed := err.(*exec.ExitError); !failed || f.status == "warning" || f.status == "" {
				s.t.Errorf("serve ended (%v), and doctor calls that %q:\n%s", err, f.status, &text)
			}
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			answer, pid = "refused: "+lines[len(lines)-1], ""
			return true
		default:
		}
		if m := servePID.FindStringSubmatch(text.String()); m != nil {
			pid = m[1]
		}
		for _, m := range logged.FindAllStringSubmatch(text.String(), -1) {
			if m[2] == f.code {
				answer = "logs: " + m[1]
			}
		}
		if (f.code == "" || f.mute || !early(s, f.code)) && strings.Contains(text.String(), "the site was checked") {
			answer = "starts"
		}
		return answer != "" && pid != ""
	})
	if answer == "starts" && f.status == "" && logged.MatchString(text.String()) {
		s.t.Errorf("a healthy site: %s", &text)
	}
	if !strings.Contains(answer+text.String(), f.serve) {
		s.t.Errorf("serve printed %s", &text)
	}
	return s.plain(answer)
}

// plain takes the names of this test's folders out of a text.
func (s *site) plain(text string) string {
	base := strings.TrimPrefix(s.dir, "/shared/")
	text = strings.NewReplacer("/home/lab/"+base, "STATE", s.dir, "SITE", "|", "\\|", "\n", " ").Replace(text)
	if len(text) > 400 {
		text = text[:400] + "…"
	}
	return text
}

// wrapped sets a folder of Slurm's commands for the site in which one is a script.
func (s *site) wrapped(program, script string) {
	s.t.Helper()
	shell(s.t, "lab", `mkdir -p "$1/bin"; cd "$1/bin"; ln -sf /usr/bin/{sbatch,squeue,scancel,scontrol,sacct,sinfo,sacctmgr} .; rm "$2"
		printf '#!/bin/bash\n%s\n' "$3" >"$2"; chmod 755 "$2"`, s.dir, program, script)
	s.replace("site.yaml", "  transport: cli\n", "  transport: cli\n  bin_dir: "+s.dir+"/bin\n")
}

// config wraps scontrol so that slurmctld's configuration has another value.
func config(key, value string) func(*site) {
	return func(s *site) {
		s.wrapped("scontrol", fmt.Sprintf(`/usr/bin/scontrol "$@" | sed 's/^%s  *= .*/%s = %s/'`, key, key, value))
	}
}

// asRoot plants with a line of bash: $1 is the site's folder, $2 its state folder.
func asRoot(line string) func(*site) {
	return func(s *site) {
		state := "/home/lab/" + strings.TrimPrefix(s.dir, "/shared/")
		if strings.Contains(line, "mount ") || strings.Contains(line, "fuse-overlayfs") {
			s.t.Cleanup(func() {
				shell(s.t, "root", `cut -d" " -f2 /proc/self/mounts | grep -E "^($1|$2)(/|$)" | tac | xargs -r -n1 umount -l`, s.dir, state)
			})
		}
		shell(s.t, "root", line, s.dir, state)
	}
}

// then plants one after the other.
func then(steps ...func(*site)) func(*site) {
	return func(s *site) {
		for _, step := range steps {
			step(s)
		}
	}
}

// used makes the site's ledger, runs_dir and artifacts.
func used(s *site) { s.import1(s.file("reads.fq", "@a\nA\n+\nI\n")) }
