package slurm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
	"slurmgate/shell"
)

// ScriptVersion is part of every run's identity (slurm_script_version): it is raised only when what runs
// changes, not when a comment does.
const ScriptVersion = "slurm_script_v1"

//go:embed script.tmpl.sh
var scriptText string

var scriptTemplate = template.Must(template.New("script").Option("missingkey=error").Parse(scriptText))

// Renderer renders job scripts and the sbatch command line.
type Renderer struct{ cfg ScriptConfig }

// NewRenderer returns a renderer with the settings c.
func NewRenderer(c ScriptConfig) *Renderer { return &Renderer{cfg: c} }

// Render returns the job script and the list of pinned files (formats: run/control.go); run.Renderer has the contract.
func (r *Renderer) Render(job run.JobSpec) (script, pinned []byte, err error) {
	sent, err := r.sent(job)
	if err != nil {
		return nil, nil, err
	}
	if len(job.ExecArgs) <= len(job.Spec.Execution.Command.Argv) || plainPath(job.ImagePath) != "" {
		return nil, nil, fault.New(fault.Internal, "job_spec", "a script needs the image's path and the runtime's arguments")
	}
	if job.MaxOutputBytes < 1 {
		return nil, nil, fault.New(fault.Internal, "job_spec", "a script needs the limit of the outputs' size")
	}
	cmd := job.Spec.Execution.Command
	stdout := job.ControlPath(run.StdoutFile)
	if cmd.Stdout != nil {
		stdout = filepath.Join(job.AttemptDir(), *cmd.Stdout)
	}
	stdin := "/dev/null"
	if cmd.Stdin != nil {
		stdin = filepath.Join(job.RunDir, *cmd.Stdin)
		for _, in := range job.Inputs() { // an input that is not copied has only an empty placeholder there
			if in.DestRelpath == *cmd.Stdin && in.Path != "" {
				stdin = in.Path
			}
		}
	}
	var pipe, names []string
	for i, argv := range cmd.Programs() {
		if names = append(names, argv[0]); i > 0 {
			pipe = append(pipe, words(argv))
		}
	}
	var environment, outputs, folders []string
	for name, value := range cmd.Env {
		environment = append(environment, "APPTAINERENV_"+name+"="+value)
	}
	slices.Sort(environment)
	for _, o := range job.Spec.IO.Outputs {
		if o.Type == plan.Directory {
			folders = append(folders, o.SrcRelpath)
		} else {
			outputs = append(outputs, o.SrcRelpath)
		}
	}
	if slices.ContainsFunc(job.ExecArgs, func(a string) bool { return strings.Contains(a, "\x00") }) {
		return nil, nil, fault.New(fault.Validation, "nul", "a NUL cannot be passed to a program")
	}
	for _, in := range job.Inputs() {
		if in.Path != "" && unlisted(in.Path) {
			return nil, nil, fault.New(fault.Internal, "job_spec", "an input's path cannot be written to the list of pinned files")
		}
	}
	pinned = pinnedList(job)
	sum := sha256.Sum256(pinned)
	// All values are quoted but the plain words of the header.
	v := map[string]any{
		"Version": ScriptVersion, "RunID": job.RunID, "N": job.N, "Image": job.Spec.ImageDigest(), "Ctl": job.ControlPath(""), "Sent": sent,
		"Limit": job.Spec.Resources.TimeLimitSeconds, "Grace": r.cfg.GraceSeconds, "MaxOutputBytes": job.MaxOutputBytes,
		"Run": shell.Quote(job.RunDir), "Attempt": shell.Quote(job.AttemptDir()), "Token": shell.Quote(job.Token),
		"Stdout": shell.Quote(stdout), "PinnedFile": run.PinnedFile, "PinnedSHA256": hex.EncodeToString(sum[:]),
		"Container": words(job.ExecArgs[:len(job.ExecArgs)-len(cmd.Argv)]), "Program": words(cmd.Argv),
		"Pipe": pipe, "Names": words(names), "Parts": len(names), "Stdin": shell.Quote(stdin), "FromInput": cmd.Stdin != nil,
		"Env": words(environment), "Outputs": words(outputs),
		"Folders": words(folders), "MaxFiles": tree.MaxFiles, "MaxDepth": tree.MaxDepth,
		"Apptainer": shell.Quote(r.cfg.Runtime.Path), "ModuleInit": shell.Quote(r.cfg.Runtime.ModuleInit),
		"Modules": quoted(r.cfg.Runtime.Modules), "Scripted": false,
		"StdoutDeclared": cmd.Stdout != nil, "VerifyInputs": r.cfg.Verify != VerifyImageOnly, "GPUs": job.Spec.Resources.GPUs != nil,
		"InPlace": words(inPlace(job)), "Recheck": "",
		"Trees":   slices.ContainsFunc(job.Placed, func(in run.Placed) bool { return in.Files != nil }),
		"Scratch": "",
	}
	if r.cfg.Verify != VerifyImageOnly {
		v["Recheck"] = words(recheck(job))
	}
	if job.Spec.Execution.Kind == plan.Scripted {
		v["Apptainer"], v["Modules"], v["Scripted"] = "/bin/bash", []string(nil), true
	}
	if r.cfg.Scratch != "" {
		v["Scratch"] = shell.Quote(r.cfg.Scratch)
	}
	var b bytes.Buffer
	b.Grow(len(scriptText) + 4<<10)
	if err := scriptTemplate.Execute(&b, v); err != nil {
		return nil, nil, fault.Wrap(fault.Internal, "template", "the script's template cannot be rendered", err)
	}
	return b.Bytes(), pinned, nil
}

func quoted(words []string) (list []string) {
	for _, w := range words {
		list = append(list, shell.Quote(w))
	}
	return list
}

// unlisted reports whether a path does not fit a line of the list of pinned files.
func unlisted(path string) bool {
	return !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsFunc(path, unicode.IsControl)
}

// pinnedList returns the content of pinned.sha256: the image, then the inputs.
func pinnedList(job run.JobSpec) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", job.Spec.ImageDigest(), job.ImagePath)
	for _, in := range job.Inputs() {
		for _, f := range in.Files {
			fmt.Fprintf(&b, "%s  %s\n", f.ChecksumSHA256, in.Path+strings.TrimPrefix(f.DestRelpath, in.DestRelpath))
		}
		if in.Files == nil {
			fmt.Fprintf(&b, "%s  %s\n", in.ChecksumSHA256, cmp.Or(in.Path, in.DestRelpath))
		}
	}
	return b.Bytes()
}

// inPlace returns the paths of the inputs that the job reads in place, each followed by its state when it was
// registered.
func inPlace(job run.JobSpec) (words []string) {
	for _, in := range job.Placed {
		if in.State != "" {
			words = append(words, in.Path, in.State)
		}
	}
	return words
}

// recheck returns the paths of the inputs in place that the job hashes again after the program.
func recheck(job run.JobSpec) (paths []string) {
	for _, in := range job.Placed {
		if in.Recheck {
			paths = append(paths, in.Path)
		}
	}
	return paths
}

// sent returns the script's comment about how it was started.
func (r *Renderer) sent(job run.JobSpec) (string, error) {
	if r.cfg.Local {
		return "#   nothing: it runs on the gateway's own host, without Slurm", r.checkJob(job)
	}
	argv, err := r.Argv(job)
	return comment(argv), err
}

// comment formats the command line as comment lines of a readable width.
func comment(argv []string) string {
	return "#   " + strings.Join(lines(append([]string{"sbatch"}, quoted(argv)...)), " \\\n#     ")
}

// words formats a list as the words of a bash array.
func words(list []string) string { return strings.Join(lines(quoted(list)), "\n  ") }

// lines joins words into lines of a readable width.
func lines(words []string) (out []string) {
	for _, w := range words {
		if last := len(out) - 1; last < 0 || len(out[last])+len(w) > 124 {
			out = append(out, w)
		} else {
			out[last] += " " + w
		}
	}
	return out
}

// checkJob returns a fault unless all values that go unquoted into names, comments and options have their form. The
// plan was validated when it was stored; its words are checked again here, where Slurm receives them.
func (r *Renderer) checkJob(job run.JobSpec) error {
	bad := func(what string) error {
		return fault.New(fault.Internal, "job_spec", "the job cannot be rendered: "+what)
	}
	s := job.Spec
	switch {
	case !plan.IsRunID(job.RunID) || job.N < 1:
		return bad("run or attempt number")
	case !token.MatchString(job.Token) || job.JobName != run.JobName(job.RunID, job.N, job.Token):
		return bad("token or job name")
	case slices.ContainsFunc(job.Exclude, func(n string) bool { return !nodeName.MatchString(n) }):
		return bad("name of a node to exclude")
	case checkArray(job.Array) != "":
		return bad(checkArray(job.Array))
	case plainPath(job.RunDir) != "":
		return bad("the run's folder must be " + plainPath(job.RunDir))
	}
	return s.Validate(plan.Rules{Docker: r.cfg.Local, Stored: true})
}

// nodeName matches the name of one node: no list, no range, no option.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

var token = regexp.MustCompile(`^[0-9a-f]{32}$`)
