package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A cluster's first site file, from what the cluster says: it loads, its policy fits the domain, the folders that it names are made with
// the commands that it says, and a tool runs. proves OPS-01
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
			t.Errorf("%v: %s", err, out)
		}
	}
	init = append(init, "--user", "lab", "--shared", s.dir, "--state-dir", state, "--domain", s.dir+"/domain", "--data", world.dir+"/data")
	printed, err := run("root", append(init, "--print")...)
	if _, failed := os.Stat(host(file)); err != nil || failed == nil {
		t.Fatalf("%v %v: %s", err, failed, printed)
	}
	out, err = run("root", init...)
	if err != nil {
		t.Fatal(err, out)
	}
	text, err := os.ReadFile(host(file))
	must(t, err)
	if !strings.Contains(printed, string(text)) {
		t.Errorf("--print shows another file:\n%s\n%s", printed, text)
	}
	for line := range strings.Lines(out) {
		if command := strings.TrimSpace(line); strings.HasPrefix(command, "install ") {
			if out, err := run("root", "sh", "-c", command); err != nil {
				t.Error(command, out)
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
			t.Errorf("%s: %s", c.argv, out)
		}
	}
	if out, err := run("root", init...); err == nil || !strings.Contains(out, "already exists") {
		t.Errorf("%v: %s", err, out)
	}
}
