package slurm

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// ScriptVersion is part of every run's identity (slurm_script_version): it is raised only when what runs
// changes, not when a comment does.
const ScriptVersion = "slurm_script_v1"

//go:embed script.tmpl.sh
var scriptText string

var scriptTemplate = template.Must(template.New("script").Option("missingkey=error").Parse(scriptText))

// Renderer makes job scripts and the sbatch command line.
type Renderer struct{ cfg ScriptConfig }

// NewRenderer makes a renderer; fields left zero get their defaults.
func NewRenderer(c ScriptConfig) (*Renderer, error) {
	c = Config{Script: c}.withDefaults().Script
	if err := refusal(c.problems()); err != nil {
		return nil, err
	}
	return &Renderer{cfg: c}, nil
}

// scriptValues is what the template is filled with. All but the header's plain words are quoted here, by Quote.
type scriptValues struct {
	Version, RunID, Image, Ctl, Sent string // in comments
	N, Limit, Grace                  int
	Run, Attempt, Token, Stdout      string
	PinnedFile, PinnedSHA256         string
	Program, Env, Outputs            []string
	Apptainer, ModuleInit            string
	Modules                          []string
	StdoutDeclared, VerifyInputs     bool
	MaxOutputBytes                   int64
	GPUs                             bool
}

// Render returns the job script and the list of pinned files (formats: run/control.go); run.Renderer has the contract.
func (r *Renderer) Render(job run.JobSpec) (script, pinned []byte, err error) {
	sent, err := r.sent(job)
	if err != nil {
		return nil, nil, err
	}
	if len(job.ExecArgs) == 0 || plainPath(job.ImagePath) != "" {
		return nil, nil, fault.New(fault.Internal, "slurm.Render", "job_spec", "a script needs the image's path and the runtime's arguments")
	}
	pinned = pinnedList(job)
	cmd, sum := job.Spec.Execution.Command, sha256.Sum256(pinned)
	v := scriptValues{
		Version: ScriptVersion, RunID: job.RunID, N: job.N, Image: job.Spec.ImageDigest(), Ctl: job.ControlPath(""), Sent: sent,
		Limit: job.Spec.Resources.TimeLimitSeconds, Grace: r.cfg.GraceSeconds,
		Run: Quote(job.RunDir), Attempt: Quote(job.AttemptDir()), Token: Quote(job.Token),
		Stdout:     Quote(job.ControlPath(run.StdoutFile)),
		PinnedFile: run.PinnedFile, PinnedSHA256: hex.EncodeToString(sum[:]),
		Apptainer: Quote(r.cfg.Runtime.Path), ModuleInit: Quote(r.cfg.Runtime.ModuleInit), Modules: r.cfg.Runtime.Modules,
		VerifyInputs: r.cfg.Verify == VerifyAll, GPUs: job.Spec.Resources.GPUs != nil,
		MaxOutputBytes: job.MaxOutputBytes,
	}
	if job.MaxOutputBytes < 1 {
		return nil, nil, fault.New(fault.Internal, "slurm.Render", "job_spec", "a script needs the limit of the outputs' size")
	}
	if cmd.Stdout != nil {
		v.Stdout, v.StdoutDeclared = Quote(filepath.Join(job.AttemptDir(), *cmd.Stdout)), true
	}
	for _, a := range job.ExecArgs {
		if strings.Contains(a, "\x00") {
			return nil, nil, fault.New(fault.Validation, "slurm.Render", "nul", "a NUL cannot be passed to a program")
		}
		v.Program = append(v.Program, Quote(a))
	}
	for name, value := range cmd.Env {
		v.Env = append(v.Env, Quote("APPTAINERENV_"+name+"="+value))
	}
	slices.Sort(v.Env)
	for _, o := range job.Spec.IO.Outputs {
		v.Outputs = append(v.Outputs, Quote(o.SrcRelpath))
	}
	var b bytes.Buffer
	b.Grow(len(scriptText) + 4<<10)
	if err := scriptTemplate.Execute(&b, v); err != nil {
		return nil, nil, fault.Wrap(fault.Internal, "slurm.Render", "template", "the script's template cannot be rendered", err)
	}
	return b.Bytes(), pinned, nil
}

// pinnedList is the content of pinned.sha256: the image, then the inputs.
func pinnedList(job run.JobSpec) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", job.Spec.ImageDigest(), job.ImagePath)
	for _, in := range job.Spec.IO.Inputs {
		fmt.Fprintf(&b, "%s  %s\n", in.ChecksumSHA256, in.DestRelpath)
	}
	return b.Bytes()
}

// sent is what the script's comment says of how it was started.
func (r *Renderer) sent(job run.JobSpec) (string, error) {
	if r.cfg.Local {
		return "#   nothing: it runs on the gateway's own host, without Slurm", r.checkJob(job)
	}
	argv, err := r.Argv(job)
	return comment(argv), err
}

// comment shows the command line as comment lines of a readable width.
func comment(argv []string) string {
	var b strings.Builder
	line := "#   sbatch"
	for _, a := range argv {
		if q := Quote(a); len(line)+len(q) > 130 {
			b.WriteString(line + " \\\n")
			line = "#     " + q
		} else {
			line += " " + q
		}
	}
	return b.String() + line
}

// checkJob makes sure that what goes unquoted into names, comments and options is what it must be. The plan was
// validated long ago; here its words are checked once more where they become Slurm's.
func (r *Renderer) checkJob(job run.JobSpec) error {
	bad := func(what string) error {
		return fault.New(fault.Internal, "slurm.checkJob", "job_spec", "the job cannot be rendered: "+what)
	}
	s := job.Spec
	switch {
	case !plan.IsRunID(job.RunID) || job.N < 1:
		return bad("run or attempt number")
	case !token.MatchString(job.Token) || job.JobName != run.JobName(job.RunID, job.N, job.Token):
		return bad("token or job name")
	case plainPath(job.RunDir) != "":
		return bad("the run's folder must be " + plainPath(job.RunDir))
	case !plan.IsSHA256(lastHex(s.Execution.Container.Image)):
		return bad("image digest")
	}
	return s.Validate(plan.Rules{Types: declaredTypes(s), Docker: r.cfg.Local, Stored: true})
}

// declaredTypes takes the artifact types as they are: which exist is the domain's business.
func declaredTypes(s plan.Spec) []string {
	var types []string
	for _, o := range s.IO.Outputs {
		types = append(types, o.Type)
	}
	return types
}

var token = regexp.MustCompile(`^[0-9a-f]{32}$`)

func lastHex(s string) string { return s[max(0, len(s)-64):] }
