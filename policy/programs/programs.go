// Package programs knows which programs make an allow-list of programs meaningless: shells, programs that start
// others, and interpreters that take code from an argument. The tables are a safety net behind the lists an
// administrator writes, not a sandbox; the container is that.
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

var versionSuffix = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)*$`)

// Starts reports whether a program is a shell or is meant to start other programs, with or without a version in its
// name. The dynamic loader counts as one.
func Starts(name string) bool {
	return has(starters, name) || strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld.so") || strings.HasPrefix(name, "ld-musl")
}

// Codes reports whether a program takes code from its ordinary arguments, as awk does.
func Codes(name string) bool { return has(coders, name) }

func has(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, versionSuffix.ReplaceAllString(name, ""))
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
		_, ok = interpreters[versionSuffix.ReplaceAllString(name, "")]
	}
	return ok
}

// InlineCode reports whether an argument gives an interpreter code to run. Check every argument, also
// those the script would get: refusing too much is the safe side.
func InlineCode(name, arg string) bool {
	in, ok := interpreters[name]
	if !ok {
		if in, ok = interpreters[versionSuffix.ReplaceAllString(name, "")]; !ok {
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

// Base is the last part of a path.
func Base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
