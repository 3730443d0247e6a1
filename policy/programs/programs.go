// Package programs knows which programs make an allow-list of programs meaningless: shells, programs that start
// others, and interpreters that take code from an argument or a file. The tables are a safety net behind the lists an
// administrator writes, not a sandbox; the container is the sandbox. A program is known by its name: the target of a
// link in the image cannot be seen from outside the image.
package programs

import (
	"regexp"
	"slices"
	"strings"
)

// starters are shells and programs that run a program named in an argument.
var starters = strings.Fields(`
	sh bash rbash dash ash zsh ksh ksh93 mksh pdksh csh tcsh fish busybox toybox elvish nu xonsh pwsh
	env xargs parallel sudo doas su runuser setpriv chroot unshare nsenter capsh bwrap fakeroot
	nohup nice ionice chrt taskset numactl timeout stdbuf setsid setarch linux32 linux64 script time watch flock
	strace ltrace gdb valgrind catchsegv tini dumb-init catatonit gosu start-stop-daemon systemd-run
	ssh scp rsync nc ncat netcat socat expect apptainer singularity docker podman srun sbatch salloc`)

// coders are programs whose ordinary arguments can be code, or name a program to run.
var coders = strings.Fields(`awk gawk mawk nawk original-awk ed ex vi vim nvim emacs find make ninja git mlr`)

// loaders are other programs that run code from a file, a module or a plug-in that an argument names, or that start
// other programs. A policy may list them for raw plans, like interpreters.
var loaders = strings.Fields(`
	pythonw ipython jupyter jupyter-lab jupyter-notebook jupyter-nbconvert papermill pytest marimo streamlit pip conda mamba micromamba uv poetry
	java javaw jshell jruby jython scala kotlin groovy clojure gradle mvn ant littler irb rake gem bundle npm npx yarn pnpm ts-node tsx
	tclsh wish tclkit ocaml ghci runghc runhaskell stack cabal swift go rustc cargo erl elixir iex escript sbcl clisp ecl racket scheme csi gforth
	matlab octave-cli scilab maxima sage gp magma cling root tcc gcc g++ cc c++ clang clang++ ld as meson bazel scons cpp m4 dc bc
	snakemake nextflow cwltool cwl-runner toil-cwl-runner miniwdl cromwell luigi airflow dask
	mpirun mpiexec mpiexec.hydra orterun prun prterun torchrun accelerate deepspeed horovodrun
	tar bsdtar gtar star cpio zip unzip sort split logrotate cron at batch screen tmux less more man dpkg rpm apt apt-get
	duckdb psql mysql mongosh redis-cli lldb rr perf bpftrace stap qemu qemu-user qemu-x86_64 qemu-aarch64 wine
	ffmpeg convert magick gs latex pdflatex xelatex lualatex tex luatex hg svn svnadmin cvs ctags pandoc`)

// versionSuffix matches what follows the name in python3.12, perl5.38-x86_64-linux-gnu, python3.13t and ksh93.
var versionSuffix = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)*[a-z]?(-[a-z0-9_.-]+)?$`)

// family returns the name of a program without its version.
func family(name string) string {
	name = strings.TrimSuffix(name, ".exe")
	if at := versionSuffix.FindStringIndex(name); at != nil && at[0] > 0 {
		return name[:at[0]]
	}
	return name
}

// Starts reports whether a program is a shell or is meant to start other programs, with or without a version in its
// name. The dynamic loader counts as one.
func Starts(name string) bool {
	return has(starters, name) || strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld.so") || strings.HasPrefix(name, "ld-musl")
}

// Codes reports whether a program takes code from its ordinary arguments, as awk does.
func Codes(name string) bool { return has(coders, name) }

func has(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, family(name))
}

// interpreters are programs that take code from an option: the letters of their short options and their long ones.
var interpreters = map[string]struct {
	short string
	long  []string
}{
	"python":  {"c", nil},
	"pypy":    {"c", nil},
	"perl":    {"eEMm", nil},
	"ruby":    {"er", nil},
	"node":    {"epr", []string{"--eval", "--print", "--require", "--import", "--loader", "--experimental-loader"}},
	"nodejs":  {"epr", []string{"--eval", "--print", "--require", "--import", "--loader", "--experimental-loader"}},
	"deno":    {"", []string{"eval"}},
	"bun":     {"epr", []string{"--eval", "--print", "--preload"}},
	"php":     {"rBREd", []string{"--run", "--process-begin", "--process-code", "--process-end", "--define"}},
	"lua":     {"el", nil},
	"luajit":  {"el", nil},
	"R":       {"e", nil},
	"Rscript": {"e", nil},
	"julia":   {"eELE", []string{"--eval", "--print", "--load"}},
	"octave":  {"", []string{"--eval"}},
	"guile":   {"ce", nil},
	"ghc":     {"e", nil},
	"sed":     {"e", []string{"--expression"}},
	"sqlite3": {"", []string{"-cmd", "--cmd"}},
	"gnuplot": {"e", nil},
}

// Interprets reports whether a program runs code given in an option.
func Interprets(name string) bool {
	_, ok := interpreters[name]
	if !ok {
		_, ok = interpreters[family(name)]
	}
	return ok
}

// RunsFiles reports whether a program runs code from a file, a module or a plug-in named in its ordinary arguments,
// or starts other programs: the arguments then select what runs.
func RunsFiles(name string) bool {
	return Interprets(name) || has(loaders, name) || Starts(name) || Codes(name)
}

// scripted lists the programs that run their first argument that is not an option.
var scripted = strings.Fields(`python pythonw pypy ipython perl ruby jruby node nodejs deno bun php lua luajit R Rscript littler julia octave octave-cli
	guile java jython groovy scala kotlin tclsh wish sbcl clisp racket scheme ocaml runghc runhaskell escript elixir iex matlab scilab
	snakemake nextflow cwltool miniwdl papermill m4 dc bc gnuplot`)

// RunsFirst reports whether a program runs its first argument that is not an option as code.
func RunsFirst(name string) bool { return has(scripted, name) }

// Plugin reports whether an argument makes a program load a library from a path, as in "bcftools +/work/in/x.so" and
// "bcftools plugin x.so", or a script, as bcftools' filters that begin with perl: do.
func Plugin(name, arg string) bool {
	return family(name) == "bcftools" && (strings.HasPrefix(arg, "+") && strings.Contains(arg, "/") || arg == "plugin" ||
		strings.Contains(arg, "perl:"))
}

// InlineCode reports whether an argument is code for an interpreter. Check every argument, including those for the
// script: refusing too much is safe.
func InlineCode(name, arg string) bool {
	in, ok := interpreters[name]
	if !ok {
		if in, ok = interpreters[family(name)]; !ok {
			return false
		}
	}
	long, _, _ := strings.Cut(arg, "=")
	if slices.Contains(in.long, long) {
		return true
	}
	return strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.ContainsAny(arg[1:], in.short)
}

// ChangesCode reports whether an environment variable decides which code a program loads or starts.
func ChangesCode(name string) bool {
	switch name {
	case "PATH", "ENV", "BASH_ENV", "SHELL", "IFS", "PS4", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PAGER", "EDITOR", "VISUAL", "BROWSER",
		"HOME", "GCONV_PATH", "GETCONF_DIR", "LOCPATH", "NLSPATH", "CLASSPATH", "MANPATH", "TERMINFO", "HOSTALIASES", "RES_OPTIONS":
		return true
	}
	for _, p := range []string{"LD_", "PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_", "NODE_", "BUN_", "DENO_", "PHP", "LUA_", "JAVA_", "_JAVA",
		"JDK_", "R_", "JULIA_", "GUILE_", "GIT_", "SSH_", "MALLOC_", "GLIBC_", "BASH_FUNC_", "XDG_", "CONDA_", "OPENSSL_", "GUESTFISH_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// FindsCode reports whether an environment variable sets where, or with which options, one program finds further
// code. An administrator may set it in a policy; a caller may not.
func FindsCode(name string) bool {
	switch name {
	case "TCLLIBPATH", "AWKPATH", "AWKLIBPATH", "FPATH", "ZDOTDIR", "INPUTRC", "LESSOPEN", "LESSCLOSE", "MANPAGER", "TAR_OPTIONS", "TAPE",
		"RSYNC_RSH",
		"MAKEFLAGS", "MAKEFILES", "MFLAGS", "CC", "CXX", "CPATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "MATLABPATH", "EXINIT",
		"VIMINIT",
		"EMACSLOADPATH", "IPYTHONDIR", "MPLBACKEND", "BCFTOOLS_PLUGINS", "HDF5_PLUGIN_PATH", "GDAL_DRIVER_PATH", "KRB5_CONFIG", "SASL_PATH":
		return true
	}
	for _, p := range []string{"OCTAVE_", "MATLAB_", "ERL_", "CARGO_", "NXF_", "SNAKEMAKE_", "JUPYTER_", "QT_", "GTK_", "GST_", "OCL_",
		"VK_", "GNUPLOT_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return ChangesCode(name)
}

// Reserved reports whether an environment variable belongs to the container's runtime, to Slurm or to the workspace, so that only the
// gateway sets it.
func Reserved(name string) bool {
	for _, p := range []string{"APPTAINER", "SINGULARITY", "SLURM", "SBATCH"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains([]string{"TMPDIR", "TMP", "TEMP", "TEMPDIR", "PWD", "OLDPWD", "USER", "LOGNAME"}, name)
}

// Base returns the last part of a path.
func Base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
