package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/site"
)

func FuzzProbeAnswer(f *testing.F) {
	for _, s := range []string{"slurmgate-probe 1 T\nnode n1\nend yes\n", "slurmgate-probe 1 T\nnode n1\nnode n2\nend yes\n", "",
		"slurmgate-probe 2 T\nend yes",
		"slurmgate-probe 1 T\nend yes\nnode n1\n", "slurmgate-probe 1 T\nwall.net lo\nend yes\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseAnswer(text, "T")
		if err != nil {
			if v != nil {
				t.Error("half an answer")
			}
			return
		}
		if !strings.HasPrefix(text, "slurmgate-probe 1 T\n") || v["end"] != "yes" {
			t.Errorf("%q is an answer: %v", text, v)
		}
	})
}

// shellcheck finds no fault in the probe's scripts, and they are plain sh where bash may be missing.
func TestProbeScripts(t *testing.T) {
	dir := t.TempDir()
	s := &site.Site{}
	s.Storage.RunsDir, s.Storage.ImageStore = dir+"/runs dir", dir+"/it's images"
	s.Apptainer.Path, s.Apptainer.Seccomp = "/opt/app tainer", "/etc/sec comp.json"
	s.Apptainer.Binds = []site.Bind{{Source: "/ref a"}, {Source: "/ref"}}
	must(t, writeProbe(dir, "TOKEN", s, []storedImage{{dir + "/a b.sif", 7}}))
	for name, shell := range map[string]string{"probe.sh": "sh", "container.sh": "bash"} {
		if out, err := exec.Command("shellcheck", "--shell="+shell, "--severity=warning", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Where the answer cannot be written, the probe's exit status gives the reason, and each status is a fault of a check
// that exists.
func TestProbeExits(t *testing.T) {
	codes := map[string]bool{}
	for _, k := range nodeChecks() {
		codes[k.Code] = true
	}
	for status, e := range probeExits {
		if !codes[e.check] || e.found == "" {
			t.Errorf("exit status %d stands for %+v", status, e)
		}
	}
	for name, c := range map[string]struct {
		spoil func(runs, dir string)
		want  int
	}{
		"healthy":                     {func(string, string) {}, 0},
		"another filesystem":          {func(_, dir string) { must(t, os.RemoveAll(dir)) }, 95},
		"missing":                     {func(runs, _ string) { must(t, os.RemoveAll(runs)) }, 98},
		"files of another gateway":    {func(_, dir string) { must(t, os.WriteFile(dir+"/token", []byte("other"), 0o600)) }, 99},
		"a file in place of the path": {func(runs, _ string) { must(t, os.RemoveAll(runs)); must(t, os.WriteFile(runs, nil, 0o600)) }, 97},
	} {
		t.Run(name, func(t *testing.T) {
			runs := filepath.Join(t.TempDir(), "runs")
			dir := filepath.Join(runs, ".doctor-1")
			must(t, os.MkdirAll(dir, 0o700))
			s := &site.Site{}
			s.Storage.RunsDir, s.Storage.ImageStore, s.Apptainer.Path = runs, t.TempDir(), "/nothing/apptainer"
			must(t, writeProbe(dir, "TOKEN", s, nil))
			script := filepath.Join(t.TempDir(), "probe.sh") // Slurm has its own copy
			text, err := os.ReadFile(dir + "/probe.sh")
			must(t, err)
			must(t, os.WriteFile(script, text, 0o700))
			c.spoil(runs, dir)
			cmd := exec.Command("/bin/sh", script)
			cmd.Env = []string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1"}
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.want {
				t.Fatalf("status %d, want %d\n%s", got, c.want, out)
			}
			if c.want != 0 {
				return
			}
			answer, err := os.ReadFile(dir + "/answer.7_")
			must(t, err)
			v, err := parseAnswer(string(answer), "TOKEN")
			if err != nil || v["node"] != "n1" || v["claim"] != "7_" || v["images"] != "" || !strings.HasPrefix(v["apptainer"], "missing") {
				t.Errorf("the probe's answer: %v\n%s", err, answer)
			}
		})
	}
}

// Where the node's bash does not run in the image that is tried, the container was not examined: a warning, because
// runs are not concerned. Without any answer it is unknown.
func TestNoShellInTheImage(t *testing.T) {
	for _, c := range []struct {
		answer map[string]string
		want   app.CheckStatus
	}{{map[string]string{"wall.failed": "255"}, app.CheckWarning}, {map[string]string{}, app.CheckUnknown},
		{map[string]string{"wall.end": "yes", "wall.net": "lo"}, app.CheckOK}} {
		for _, k := range containerChecks() {
			if k.Code == "container_network" {
				if r := k.Judge(nil, &Seen{Value: c.answer}); r[0].Status != c.want {
					t.Errorf("answer %v: results %+v", c.answer, r)
				}
			}
		}
	}
}

// A check whose question has no answer is unknown, whatever else the probe found, and so is one that needs a check that is not ok.
func TestNoAnswerIsNotOK(t *testing.T) {
	whole := map[string]string{"node": "n1", "time": "1", "user": "0 root 0", "env": "0", "claim": "7_", "tools": " ok", "room": "1 1 0 0",
		"tmp": "ok", "tmp_room": "1 1 0 0", "programs": "ok", "limits": "", "namespaces": "ok", "fuse": "ok", "scratch": "none", "binds": "", "store": "ok",
		"images": "",
		"digest": "x", "apptainer": "apptainer version 1.4.5", "suid": "no", "container": "ok", "wall.end": "yes", "wall.net": "lo"}
	for _, k := range nodeChecks() {
		if k.Judge == nil {
			continue
		}
		for _, q := range k.Asks {
			v := maps.Clone(whole)
			delete(v, q)
			x := &Exam{Cluster: &site.Site{}, answer: &app.DoctorAnswer{}, worst: map[string]app.CheckStatus{},
				stored: []storedImage{{"/x.sif", 1}}}
			x.judge(&Seen{Node: "n1", Job: "7_", Winner: "7_", Won: 1, Read: time.Now(), Value: v})
			for _, f := range x.answer.Findings {
				if f.Code == k.Code && (f.Status == app.CheckOK || f.Status == app.CheckWarning) {
					t.Errorf("%s without an answer to %s: results %+v", k.Code, q, f)
				}
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeProbe makes the folder as a round on a shared filesystem does.
func writeProbe(dir, token string, s *site.Site, images []storedImage) error {
	files, err := probeFiles(dir, token, s, images, nil)
	if err != nil {
		return err
	}
	l := localShared{filepath.Dir(dir), filepath.Base(dir)}
	return errors.Join(l.remove(context.Background()), l.make(context.Background(), files))
}

// A clock that is wrong is found however long the answer took: the probe read it while its job ran, by Slurm's clock.
func TestNodeClockOfASlowAnswer(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	end, read := start.Add(time.Second), start.Add(2*time.Minute)
	for _, c := range []struct {
		off  time.Duration // of the node's clock
		end  time.Time
		want app.CheckStatus
	}{
		{0, end, app.CheckOK}, {0, time.Time{}, app.CheckOK}, {20 * time.Second, end, app.CheckWarning}, {100 * time.Second, end, app.CheckFault},
		{-20 * time.Second, end, app.CheckWarning}, {-100 * time.Second, time.Time{}, app.CheckFault},
		{200 * time.Second, time.Time{}, app.CheckFault},
	} {
		seen := &Seen{Start: start, End: c.end, Read: read, Value: map[string]string{"time": fmt.Sprint(start.Add(c.off).Unix())}}
		if got := nodeClock(nil, seen); len(got) != 1 || got[0].Status != c.want {
			t.Errorf("nodeClock of a clock that is %s off, job ended %v: got %v, want %s", c.off, c.end, got, c.want)
		}
	}
}
