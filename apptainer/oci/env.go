package oci

import (
	"regexp"
	"slices"
	"strings"
)

// What Apptainer needs of an image, measured on 1.4.5 with the options of apptainer.ExecArgs (--cleanenv --containall --no-eval):
//
//   - It reads /.singularity.d/env/*.sh in the container, in order, with a built-in shell, and clears the environment
//     before.
//   - 10-docker2singularity.sh sets the variables of the image's configuration (Env). Afterwards Apptainer appends the
//     standard folders to PATH.
//   - After 99-base.sh, and only then, it sets the job's variables (APPTAINERENV_…). Without that file a plan's
//     environment would be lost; with it, the plan's variables override the image's.
//   - In its shell an escaped quote between two quoted texts leaves a backslash in the value, so values are written in double quotes. The
//     quoting of Apptainer's own build breaks on a value with quotes, back quotes or $(…) in it: no program of such an image starts.
//   - HOME is the job's, as Apptainer's own build leaves it.
const (
	envFile  = ".singularity.d/env/10-docker2singularity.sh"
	userFile = ".singularity.d/env/90-environment.sh"
	baseFile = ".singularity.d/env/99-base.sh"
)

var (
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// kept lists the names that the image may not set: the job's, and those that control a shell.
	kept = []string{"HOME", "PWD", "OLDPWD", "IFS", "OPTIND", "OPTARG", "UID", "EUID", "GID", "PPID", "PS1", "PS2", "PS4", "PROMPT_COMMAND",
		"ENV", "BASH_ENV", "SHELLOPTS", "USER", "LOGNAME"}
	quote = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")
)

// environment returns the script that sets the variables of an image's configuration. left lists the names that are not
// set.
func environment(env []string) (script string, left []string) {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		switch {
		case !ok:
		case !envName.MatchString(name), slices.Contains(kept, name), strings.ContainsRune(value, 0),
			strings.HasPrefix(name, "APPTAINER"), strings.HasPrefix(name, "SINGULARITY"):
			left = append(left, name)
		default:
			b.WriteString("export " + name + `="` + quote.Replace(value) + "\"\n")
		}
	}
	return b.String(), left
}

var (
	mountFolders = []string{"dev", "home", "proc", "root", "run", "sys", "var", "etc", "work", "work/in", "work/out", "work/meta"}
	mountFiles   = []string{"etc/hosts", "etc/localtime", "etc/resolv.conf"}
)

// furnish adds what Apptainer needs and the image lacks: the environment, mount points, and users.
func (t *tree) furnish(env []string) (left []string) {
	script, left := environment(env)
	t.layer++
	for _, dir := range mountFolders {
		t.mkdir(dir, folderMode)
	}
	t.mkdir("tmp", 0o1777)
	t.mkdir("var/tmp", 0o1777)
	for _, f := range mountFiles {
		t.write(f, 0o644, nil, false)
	}
	t.write("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"), false)
	t.write("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"), false)
	t.write(envFile, 0o755, []byte(script), true)
	t.write(userFile, 0o755, []byte("#!/bin/sh\n"), true)
	t.write(baseFile, 0o755, []byte("#!/bin/sh\n"), true)
	return left
}
