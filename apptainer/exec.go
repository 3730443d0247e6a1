package apptainer

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/plan"
	"slurmgate/run"
)

// Bind is a folder of the site that a tool can request by name. Its containers see the folder read-only.
type Bind struct {
	Name   string
	Source string // absolute path on the compute node
	Target string // absolute path in the container
}

// GPU selects Apptainer's option --nv or --rocm for plans that request GPUs.
type GPU string

// The GPU makers that Apptainer supports.
const (
	NVIDIA GPU = "nvidia"
	AMD    GPU = "amd"
)

// Config is a site's settings for containers.
type Config struct {
	Binds   []Bind
	NoMount []string // more words for --no-mount, e.g. sys
	GPU     GPU      // NVIDIA when empty
	Seccomp string   // absolute path of a seccomp profile on the compute nodes; none when empty
}

// Runtime writes exec lines.
type Runtime struct {
	noMount string
	binds   map[string]string // "source:target:ro" by name
	gpuFlag string
	seccomp string
}

// neverMounted lists what a site's apptainer.conf may mount into every container without a request of the plan.
var neverMounted = []string{"hostfs", "bind-paths", "home", "cwd"}

// NewRuntime returns the runtime of a site; package site has checked the settings.
func NewRuntime(c Config) *Runtime {
	r := &Runtime{noMount: strings.Join(slices.Concat(neverMounted, c.NoMount), ","), binds: map[string]string{}, gpuFlag: "--nv",
		seccomp: c.Seccomp}
	for _, b := range c.Binds {
		r.binds[b.Name] = b.Source + ":" + b.Target + ":ro"
	}
	if c.GPU == AMD {
		r.gpuFlag = "--rocm"
	}
	return r
}

// mount returns the value of --mount for a file or folder that the program sees read-only.
func mount(source, target string) string {
	quote := strings.NewReplacer(`"`, `""`)
	return `type=bind,"source=` + quote.Replace(source) + `","destination=` + quote.Replace(target) + `",ro`
}

// ExecArgs returns the arguments after "apptainer" for a plan: options, the image and the program. The paths are
// absolute and plain, as the site file demands of runs_dir and image_store; attemptDir has the folders out, meta and
// tmp. The caller has checked that the site offers the binds.
//
// Measured on Apptainer 1.4.5, as a plain user:
//   - --quiet: without it two INFO lines about missing helpers appear on the program's stderr.
//   - --containall gives the program separate pid and ipc namespaces, /dev and /tmp; --no-mount removes what
//     apptainer.conf adds (/etc/hosts, /etc/localtime, bind paths of the site).
//   - --no-eval: without it the value of an APPTAINERENV_ variable is evaluated by a shell: `$(id)` runs.
//   - --no-home --home /tmp: no home folder is mounted and $HOME is a folder that exists and can be written.
//   - --workdir: /tmp and /var/tmp are in the attempt's tmp folder, not in 64 MiB of memory.
//   - The umask of the caller applies inside (no --no-umask): the program's files are as private as the job's.
//   - --security seccomp:FILE works without root. Without it a program can create user namespaces, in which it has
//     every capability over its own resources. Apptainer ends with FATAL before the program if it cannot read the file.
//   - No --no-init: as process 1 a program that does not handle SIGTERM would ignore it.
//
// The job script must also provide an empty environment, HOME set to the attempt's tmp (Apptainer creates a folder
// .apptainer in it), and no open descriptors but 0 to 2: the program inherits all others.
//   - --mount reads its value as a line of CSV, so a path may have commas, colons and quotes; --bind has no such form.
func (r *Runtime) ExecArgs(spec plan.Spec, binds []plan.Bind, inputs []run.Placed, imagePath, runDir, attemptDir string) []string {
	args := []string{
		"--quiet", "exec",
		"--containall", "--cleanenv", "--no-eval", "--no-privs",
		"--no-home", "--home", "/tmp",
		"--net", "--network", "none",
		"--no-mount", r.noMount,
		"--workdir", filepath.Join(attemptDir, "tmp"),
		"--bind", filepath.Join(runDir, "in") + ":/work/in:ro",
		"--bind", filepath.Join(attemptDir, "out") + ":/work/out",
		"--bind", filepath.Join(attemptDir, "meta") + ":/work/meta:ro",
	}
	for _, in := range inputs {
		if in.Path != "" {
			args = append(args, "--mount", mount(in.Path, path.Join(plan.Workdir, in.DestRelpath)))
		}
	}
	for _, b := range binds {
		if folder, ok := r.binds[b.Name]; ok {
			args = append(args, "--bind", folder)
		}
	}
	if r.seccomp != "" {
		args = append(args, "--security", "seccomp:"+r.seccomp)
	}
	args = append(args, "--pwd", spec.Execution.Command.Workdir)
	if spec.Resources.GPUs != nil {
		args = append(args, r.gpuFlag)
	}
	args = append(args, imagePath)
	return append(args, spec.Execution.Command.Argv...)
}
