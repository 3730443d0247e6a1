package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

// fakeApptainer prints the messages of the real one (1.4.5) for a missing program and for an image that it cannot
// mount.
const fakeApptainer = `#!/bin/bash
fatal() { printf 'FATAL:   %s\n' "$1" >&2; exit 255; }
[[ ! -e ${0%/*}/broken ]] || fatal "container creation failed: image driver mount failure"
shift
[[ -n $(type -P -- "$1") ]] || fatal "\"$1\": executable file not found in \$PATH"
exec "$@"
`

// left reads a control file; it returns "" if the file does not exist.
func left(job run.JobSpec, name string) string {
	data, _ := os.ReadFile(job.ControlPath(name))
	return string(data)
}

// A script records how its program ended, for any output of the program, and writes a manifest only after success.
func TestScriptEndings(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		limit   int
		reason  string
		code    int
	}{
		"ok":               {"echo out; echo err >&2", 60, "ok", 0},
		"exit 124":         {"exit 124", 60, "tool_failed", 124},
		"exit 127":         {"exit 127", 60, "tool_failed", 127},
		"FATAL, its own":   {"echo 'FATAL:   the database is locked' >&2; exit 255", 60, "tool_failed", 255},
		"FATAL, loosely":   {"echo 'FATAL: could not open image' >&2; exit 255", 60, "tool_failed", 255},
		"FATAL, nested":    {"echo 'FATAL:   container creation failed: x' >&2; exit 255", 60, "tool_failed", 255},
		"no such program":  {"no-such-program", 60, "program_not_started", 255},
		"no container":     {"exit 0; true", 60, "runtime_broken", 255},
		"killed":           {"kill -KILL $$", 60, "killed", 137},
		"segfault":         {"kill -SEGV $$", 60, "tool_failed", 139},
		"own limit":        {"sleep 60; true", 1, "time_limit", 124},
		"own limit, exit0": {"trap 'exit 0' TERM; sleep 60 & wait", 1, "time_limit", 124},
		"deaf":             {"trap '' TERM; while :; do sleep 1; done", 8, "time_limit", 137}, // enough time for a busy machine to set the trap
		"orphans":          {"sleep 20 & disown; exit 0", 60, "ok", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, cmd := pipeRun(t, c.limit, "", c.program)
			mustWrite(t, filepath.Join(job.RunDir, "apptainer"), fakeApptainer, 0o755)
			if name == "no container" {
				mustWrite(t, filepath.Join(job.RunDir, "broken"), "", 0o600)
			}
			log, err := cmd.CombinedOutput()
			if x := exitOf(t, job); x.Reason != c.reason || x.Code != c.code || cmd.ProcessState.ExitCode() != c.code {
				t.Errorf("the exit record says %s, code %d, and the script ended with %v; want %s, code %d\n%s", x.Reason, x.Code, err, c.reason,
					c.code, log)
			}
			if whole := left(job, run.ManifestFile) != ""; whole != (c.reason == "ok") {
				t.Errorf("after %s there is a manifest: %t", c.reason, whole)
			}
			if got := left(job, run.StderrFile); name == "ok" && got != "err\n" {
				t.Errorf("standard error is %q, want err", got)
			}
		})
	}
}

// After TERM the script ends the program, with KILL if it ignores TERM, and writes no manifest even if the program
// exits with 0.
func TestScriptTerminated(t *testing.T) {
	for name, program := range map[string]string{
		"obedient": "echo up >&2; exec sleep 300",
		"deaf":     "trap '' TERM; echo up >&2; while :; do sleep 1; done",
		"exits 0":  "trap 'exit 0' TERM; echo up >&2; sleep 300 & wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, cmd := pipeRun(t, 600, "", program)
			must(t, cmd.Start())
			whenBegun(t, job)
			must(t, cmd.Process.Signal(syscall.SIGTERM))
			_ = cmd.Wait()
			if x := exitOf(t, job); x.Reason != "terminated" || x.Code != 143 || left(job, run.ManifestFile) != "" {
				t.Errorf("after TERM the exit record says %s, code %d; want terminated, code 143, and no manifest", x.Reason, x.Code)
			}
		})
	}
}

// A killed digest proves nothing about its file: it is computed again, unless the script got TERM too.
func TestDigestCutShort(t *testing.T) {
	for whom, c := range map[string]struct {
		reason string
		code   int
	}{"$$": {"ok", 0}, "0": {"terminated", 143}} { // the digest alone, or all processes of the job as Slurm does
		job, cmd := pipeRun(t, 60, "", "echo a b")
		bin := t.TempDir()
		// The first call only checks that openssl exists.
		mustWrite(t, bin+"/openssl", "#!/bin/bash\necho call >>"+bin+"/calls\n[[ $(wc -l <"+bin+"/calls) != 2 ]] || kill -TERM "+whom+
			"\nexec /usr/bin/openssl \"$@\"\n", 0o755)
		script := strings.Replace(left(job, run.ScriptFile), "PATH=/usr/bin:/bin", "PATH="+bin+":/usr/bin:/bin", 1)
		mustWrite(t, job.ControlPath(run.ScriptFile), script, 0o755)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		log, _ := cmd.CombinedOutput()
		if x := exitOf(t, job); x.Reason != c.reason || x.Code != c.code {
			t.Errorf("after kill -TERM %s in a digest the exit record says %s, code %d; want %s, code %d\n%s", whom, x.Reason, x.Code, c.reason,
				c.code, log)
		}
	}
}

// A control folder that cannot be written ends the script with its own status, before the program starts.
func TestUnwritableControl(t *testing.T) {
	job, cmd := pipeRun(t, 60, "", "echo a b")
	for dir := job.RunDir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Chmod(job.ControlPath(""), 0o555))
	if os.Geteuid() == 0 { // who may write everywhere
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	log, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != run.ExitControlUnwritable || left(job, run.ClaimFile) != "" {
		t.Errorf("without the right to write ctl the script ended with %d, want %d and no claim\n%s", got, run.ExitControlUnwritable, log)
	}
}

// The manifest lists a declared output as a file only if it is a regular file with one name, reached without a symlink.
func TestScriptManifest(t *testing.T) {
	paths := []string{"file", "sub dir/it's $(id) é.txt", "link", "way/through", "two", "three", "pipe", "folder", "missing", "no/where",
		"dangling", "empty"}
	job, cmd := pipeRunOf(t, 60, "", func(j *run.JobSpec) {
		j.Spec.IO.Outputs, j.Spec.Execution.Command.Stdout = nil, nil
		for i, p := range paths {
			j.Spec.IO.Outputs = append(j.Spec.IO.Outputs, plan.Output{Role: fmt.Sprint("r", i), SrcRelpath: "out/" + p, Type: "TEXT",
				Label: fmt.Sprint("l", i)})
		}
	}, `cd out && printf hello >file && mkdir -p 'sub dir' && printf x >"sub dir/it's \$(id) é.txt" && ln -s file link && ln -s 'sub dir' way &&
		printf y >two && ln two three && mkfifo pipe && mkdir folder && printf z >'sub dir/through' && ln -s /nowhere dangling && : >empty`)
	cmd.Dir = job.AttemptDir()
	log, _ := cmd.CombinedOutput()
	m, err := run.ParseManifest([]byte(left(job, run.ManifestFile)))
	if err != nil {
		t.Fatalf("ParseManifest: %v\n%s", err, log)
	}
	var got []string
	for _, e := range m.Entries {
		if e.Kind == "file" && len(e.SHA256) == 64 {
			e.Kind = fmt.Sprintf("file %d", e.Size)
		}
		got = append(got, e.Kind+" "+strings.TrimPrefix(e.Relpath, "out/"))
	}
	want := "file 5 file|file 1 sub dir/it's $(id) é.txt|irregular link|irregular way/through|irregular two|irregular three|irregular pipe|" +
		"irregular folder|missing missing|missing no/where|irregular dangling|file 0 empty"
	if all := strings.Join(got, "|"); all != want {
		t.Errorf("the manifest has\n%s\nwant\n%s", all, want)
	}
}

// The program's environment contains nothing of the gateway and nothing of Slurm.
func TestScriptEnvironment(t *testing.T) {
	job, cmd := pipeRunOf(t, 60, "", func(j *run.JobSpec) {
		j.Spec.Execution.Command.Env = map[string]string{"A": "$(id)\n'`\"\\ é,\u202e=x"}
	}, "tr '\\0' '\\n' </proc/$$/environ | grep -v '^PWD=\\|^SHLVL=\\|^_=' | sort; umask; pwd; cat")
	cmd.Dir = job.AttemptDir()
	cmd.Env = append(cmd.Env, "SBATCH_TIMELIMIT=99:00:00", "SLURM_SECRET=secret", "APPTAINER_BIND=/etc", "APPTAINERENV_SECRET=secret")
	log, err := cmd.CombinedOutput()
	want := "'`\"\\ é,\u202e=x\nAPPTAINERENV_A=$(id)\nHOME=" + job.AttemptDir() + "/tmp\nLC_ALL=C\nPATH=/usr/bin:/bin\n0077\n" +
		job.AttemptDir() + "\n"
	if got, _ := os.ReadFile(filepath.Join(job.AttemptDir(), "out/flagstat.json")); string(got) != want {
		t.Errorf("the program finds %q, want %q (%v)\n%s", got, want, err, log)
	}
}

// With a claim of another job the script does nothing: it starts no program and creates no file.
func TestScriptTakesNoOthersClaim(t *testing.T) {
	const other = "slurmgate-claim 1 job=1 task=- restart=0 token=%s node=n1\n"
	for name, claim := range map[string]string{
		"void":          string(run.VoidClaim(testToken)),
		"another job's": fmt.Sprintf(other, testToken),
		"empty":         "",
		"of a token":    fmt.Sprintf(other, strings.Repeat("f", 32)),
	} {
		job, start, starts := countedRun(t)
		mustWrite(t, job.ControlPath(run.ClaimFile), claim, 0o600)
		before, err := exec.Command("ls", "-A", job.ControlPath("")).Output()
		must(t, err)
		if got := start("SLURM_JOB_ID=7"); got != run.ExitClaimNotOurs || starts() != 0 || left(job, run.ClaimFile) != claim {
			t.Errorf("with a claim that is %s the script ended with %d after %d starts, and the claim is %q; want 90, none and the same", name,
				got, starts(), left(job, run.ClaimFile))
		}
		if after, _ := exec.Command("ls", "-A", job.ControlPath("")).Output(); string(after) != string(before) {
			t.Errorf("with a claim that is %s the script changed the control folder from %q to %q", name, before, after)
		}
	}
}
