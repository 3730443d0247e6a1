package e2e

import (
	"strings"
	"testing"
)

// Nothing is sent to another cluster than the site file's, not even when the commands' target changes while the gateway runs: runs wait,
// the reason says for what, and they go on by themselves. A gateway that is started then does not start, and config check and doctor name
// it.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	bin := s.dir + "/bin"
	shell(t, "lab", `mkdir "$1" && ln -s /usr/bin/sbatch /usr/bin/squeue /usr/bin/scancel /usr/bin/scontrol /usr/bin/sacct "$1"`, bin)
	s.replace("site.yaml", "slurm:\n", "slurm:\n  bin_dir: "+bin+"\n  cluster: DevCluster\n")
	d := s.serve()
	if l := s.wait(s.submit(probePlan("write", "out/result", "right")).RunID); l.State != "succeeded" {
		t.Fatalf("%+v", l)
	}

	other := `printf '#!/bin/sh\necho "ClusterName = other"\n' >"$1/scontrol.new" && chmod +x "$1/scontrol.new" && mv "$1/scontrol.new" "$1/scontrol"`
	shell(t, "lab", other, bin)
	waits := s.submit(probePlan("write", "out/result", "waits")).RunID
	l := s.phase(waits, "deferred")
	if why := l.why(); !strings.Contains(why, "wrong_cluster") || !strings.Contains(why,
		"the cluster other, but slurm.cluster is DevCluster") {
		t.Errorf("%+v %s", l, why)
	}
	for says, verb := range map[string][]string{"cluster other": {"config", "check"},
		"the cluster that answers is other": {"doctor", "--no-jobs"}} {
		if r := s.cli(append(verb, "--json")...); !strings.Contains(string(r.stdout), says) ||
			!strings.Contains(string(r.stdout), "slurm.cluster") {
			t.Errorf("%s: %s", verb, r.stdout)
		}
	}
	if n := s.countNow(waits).Accounted; n != 0 {
		t.Errorf("%d jobs", n)
	}

	d.signal("TERM")
	d.ended(t)
	if f := s.fails(78, "serve"); len(f.Details.Problems) != 1 || f.Details.Problems[0].Field != "slurm.cluster" {
		t.Errorf("%+v", f)
	}

	shell(t, "lab", `ln -sf /usr/bin/scontrol "$1/scontrol"`, bin)
	s.serve()
	if l := s.wait(waits); l.State != "succeeded" || s.count(waits).Accounted != 1 {
		t.Errorf("%+v", l)
	}
}

// A slurmctld that does not answer keeps no gateway from starting; a bin_dir without Slurm does, and says what to correct.
func TestStartWithoutSlurm(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	conf := s.dir + "/slurm.conf"
	shell(t, "lab", `sed '/^SlurmctldPort=/d' /etc/slurm/slurm.conf >"$1" && echo SlurmctldPort=1 >>"$1"`, conf)
	s.replace("site.yaml", "slurm:\n", "slurm:\n  bin_dir: "+s.dir+"/bin\n  conf: "+conf+"\n  cluster: devcluster\n")
	if f := s.fails(78, "serve"); len(f.Details.Problems) != 1 || f.Details.Problems[0].Field != "slurm.bin_dir" {
		t.Errorf("%+v", f)
	}
	s.replace("site.yaml", "  bin_dir: "+s.dir+"/bin\n", "")
	s.serve()
	id := s.submit(probePlan("write", "out/result", "later")).RunID
	if l := s.phase(id, "deferred"); !strings.Contains(l.why(), "slurm_unreachable") {
		t.Errorf("%+v %s", l, l.why())
	}
	shell(t, "lab", `sed -i '/^SlurmctldPort=1$/d' "$1"`, conf)
	if l := s.wait(id); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
}
