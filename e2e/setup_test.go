package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// site init writes a cluster's first site file from the cluster's answers: it loads, its policy fits the domain, the
// commands that it prints make the folders that the file names, and a tool runs. proves OPS-01
//
// short: operating it
func TestSiteInit(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics") // for its folder
	must(t, os.Remove(host(s.dir)+"/site.yaml"))
	must(t, os.MkdirAll(host(s.dir)+"/etc", 0o755))
	file, state := s.dir+"/etc/site.yaml", "/home/lab/"+filepath.Base(world.dir)+"/"+filepath.Base(s.dir)
	init := []string{world.dir + "/slurmgate", "site", "init", "--site", file}
	run := func(user string, argv ...string) (string, error) {
		out, err := inCluster(user, argv...).CombinedOutput()
		return string(out), err
	}
	out, err := run("root", init...)
	for _, option := range []string{"--user NAME", "--shared DIR"} { // no user slurmgate, no network filesystem
		if err == nil || !strings.Contains(out, option) {
			t.Errorf("site init without what it cannot guess printed (%v)\n%s\nwant a refusal that names %s", err, out,
				option)
		}
	}
	init = append(init, "--user", "lab", "--shared", s.dir, "--state-dir", state, "--domain", s.dir+"/domain", "--data", world.dir+"/data")
	printed, err := run("root", append(init, "--print")...)
	if _, failed := os.Stat(host(file)); err != nil || failed == nil {
		t.Fatalf("site init --print printed (%v)\n%s\nwant the file on standard output, and none written: %v", err,
			printed, failed)
	}
	out, err = run("root", init...)
	if err != nil {
		t.Fatalf("site init fails: %v\n%s", err, out)
	}
	text := value(os.ReadFile(host(file)))(t)
	if !strings.Contains(printed, string(text)) {
		t.Errorf("--print shows another file:\n%s\n%s", printed, text)
	}
	for line := range strings.Lines(out) {
		if command := strings.TrimSpace(line); strings.HasPrefix(command, "install ") {
			if out, err := run("root", "sh", "-c", command); err != nil {
				t.Errorf("%s, printed by site init, fails: %v\n%s", command, err, out)
			}
		}
	}
	for _, c := range []struct{ want, argv string }{
		{"is a valid site file for devcluster", "config check"}, {"no mistakes", "domain check " + s.dir + "/etc/domains/domain"},
		{"sha256:", "image add samtools " + world.dir + "/samtools.sif"},
		{"succeeded", "run samtools.flagstat --wait --input bam=" + data("aln.bam")},
	} {
		user := "lab"
		if strings.HasPrefix(c.argv, "image") {
			user = "root"
		}
		cmd := inCluster(user, append([]string{world.dir + "/slurmgate", "--site", file}, strings.Fields(c.argv)...)...)
		out, err := cmd.CombinedOutput()
		if exit, ok := err.(*exec.ExitError); ok {
			t.Errorf("%s: exit %d: %s", c.argv, exit.ExitCode(), out)
		}
		if !strings.Contains(string(out), c.want) {
			t.Errorf("slurmgate %s prints %s, want %q in it", c.argv, out, c.want)
		}
	}
	if out, err := run("root", init...); err == nil || !strings.Contains(out, "already exists") {
		t.Errorf("the second site init printed (%v)\n%s\nwant a refusal, as the file exists", err, out)
	}
}

// The first site file of a cluster elsewhere, from its login node's answers: the host key is shown and not trusted by
// itself, config check and doctor accept the file, and a tool runs, with the gateway outside of the cluster. Nothing is
// overwritten.
//
// proves OPS-01 SITE-03
func TestSiteInitOverSSH(t *testing.T) {
	t.Parallel()
	s, h, dir := newSite(t, "genomics"), sshOf(t), t.TempDir()
	s.outside = dir + "/etc/site.yaml"
	shell(t, "lab", `mkdir -p "$1/far"`, s.dir)
	must(t, os.CopyFS(dir+"/data", os.DirFS(host(world.dir)+"/data")))
	init := []string{"site", "init", "--ssh", "lab@" + h.Login.Address, "--key", h.Key, "--user", "daemon", "--shared", s.dir + "/far",
		"--state-dir", dir + "/state", "--domain", host(s.dir) + "/domain", "--data", dir + "/data"}
	r := s.cli(init...)
	print := regexp.MustCompile(`--trust (SHA256:\S{43})`).FindStringSubmatch(r.String())
	if r.code == 0 || print == nil {
		t.Fatalf("%v, want a refusal that shows the host key", r)
	}
	keys := value(exec.Command("ssh-keygen", "-l", "-f", h.KnownHosts).Output())(t)
	if !strings.Contains(string(keys), print[1]) {
		t.Errorf("%s is no key of the login node:\n%s", print[1], keys)
	}
	if _, err := os.Stat(dir + "/etc"); err == nil {
		t.Error("something was written before the host key was compared")
	}
	var answer struct {
		Written  bool
		Commands []string
	}
	s.cli(append(init, "--trust", print[1], "--json")...).object(t, &answer)
	if !answer.Written || len(answer.Commands) != 2 {
		t.Fatalf("site init --trust returned %+v, want a file written and two commands", answer)
	}
	for _, line := range answer.Commands[1:] { // the first one is for the service's user
		must(t, command("sh", "-c", line))
	}
	if r := s.cli(init...); r.code == 0 || !strings.Contains(r.String(), "already exists") {
		t.Errorf("%v, want a refusal, as the file exists", r)
	}
	for _, c := range []struct{ want, argv string }{
		{"is a valid site file for devcluster", "config check"}, {"sha256:", "image add samtools " + host(world.dir) + "/samtools.sif"},
		{"succeeded", "run samtools.flagstat --wait --input bam=" + dir + "/data/aln.bam"},
	} {
		if r := s.cli(strings.Fields(c.argv)...); r.code != 0 || !strings.Contains(r.String(), c.want) {
			t.Errorf("%v, want exit 0 and %q", r, c.want)
		}
	}
	var e examined
	s.cli("doctor", "--no-jobs", "--json").object(t, &e)
	for _, f := range e.Findings {
		if f.Status == "fault" && f.Code != "images" { // of tools without images
			t.Errorf("doctor on the first site file finds %+v, want no fault", f)
		}
	}
}
