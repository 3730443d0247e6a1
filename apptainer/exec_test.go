package apptainer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// A container sees the folders of the site that its tool asked for, and no other.
//
// proves ABI-19
func TestExecArgs(t *testing.T) {
	r, err := NewRuntime(Config{Binds: []Bind{{"soft", "/cvmfs", "/cvmfs"}, {"ref", "/data/ref", "/ref"}, {"other", "/other", "/other"}},
		NoMount: []string{"sys"}})
	if err != nil {
		t.Fatal(err)
	}
	spec := plan.Spec{Execution: plan.Execution{Command: plan.Command{Argv: []string{"samtools", "view", "a b", "$(id)"},
		Workdir: plan.Workdir}}}
	got := r.ExecArgs(spec, []plan.Bind{{Name: "ref", Version: "1"}, {Name: "soft", Version: "2"}}, "/shared/images/x.sif",
		"/shared/runs/run_1", "/shared/runs/run_1/a2")
	want := strings.Fields(`--quiet exec --containall --cleanenv --no-eval --no-privs --no-home --home /tmp --net --network none
		--no-mount hostfs,bind-paths,home,cwd,sys --workdir /shared/runs/run_1/a2/tmp
		--bind /shared/runs/run_1/in:/work/in:ro --bind /shared/runs/run_1/a2/out:/work/out --bind /shared/runs/run_1/a2/meta:/work/meta:ro
		--bind /data/ref:/ref:ro --bind /cvmfs:/cvmfs:ro --pwd /work /shared/images/x.sif samtools view`)
	want = append(want, "a b", "$(id)")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(r.ExecArgs(spec, nil, "/i.sif", "/r", "/r/a1"), " "); strings.Contains(got, "cvmfs") || strings.Contains(got,
		"ref") {
		t.Errorf("nobody asked: %s", got)
	}
}

func TestGPUFlag(t *testing.T) {
	one := 1
	spec := plan.Spec{Resources: plan.Resources{GPUs: &one}, Execution: plan.Execution{Command: plan.Command{Argv: []string{"x"},
		Workdir: plan.Workdir}}}
	for gpu, flag := range map[GPU]string{"": "--nv", NVIDIA: "--nv", AMD: "--rocm"} {
		r, err := NewRuntime(Config{GPU: gpu})
		if err != nil {
			t.Fatal(err)
		}
		args := r.ExecArgs(spec, nil, "/i.sif", "/r", "/r/a1")
		if args[len(args)-3] != flag {
			t.Errorf("gpu %q: %v", gpu, args)
		}
	}
}

func TestNewRuntimeRefuses(t *testing.T) {
	_, err := NewRuntime(Config{
		Binds: []Bind{{"b1", "/a:b", "/x"}, {"b2", "rel", "/x"}, {"b3", "/a", "/x,y"}, {"b4", "/a", "/work/in"}, {"b5", "/a", "/proc"},
			{"b6", "/a/../b", "/x"}, {"b7", "/a", "/"}, {"b1", "/a", "/y"}, {"", "/a", "/z"}},
		NoMount: []string{"a,b", "", "/etc/hosts", "../x"},
		GPU:     "intel",
	})
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, p.Code+" "+p.Field)
	}
	want := []string{
		"BIND-PATH apptainer.binds[0].source", "BIND-PATH apptainer.binds[1].source", "BIND-PATH apptainer.binds[2].target",
		"BIND-TARGET apptainer.binds[3].target", "BIND-TARGET apptainer.binds[4].target", "BIND-PATH apptainer.binds[5].source",
		"BIND-PATH apptainer.binds[6].target", "BIND-NAME apptainer.binds[7].name", "BIND-NAME apptainer.binds[8].name",
		"NO-MOUNT apptainer.no_mount[0]", "NO-MOUNT apptainer.no_mount[1]", "NO-MOUNT apptainer.no_mount[3]",
		"GPU-MAKER apptainer.gpu",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
