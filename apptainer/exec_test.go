package apptainer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/plan"
	"slurmgate/run"
)

// A container sees the folders of the site that its tool requested, and no others.
//
// proves ABI-19
func TestExecArgs(t *testing.T) {
	r := NewRuntime(Config{Binds: []Bind{{"soft", "/cvmfs", "/cvmfs"}, {"ref", "/data/ref", "/ref"}, {"other", "/other", "/other"}},
		NoMount: []string{"sys"}})
	spec := plan.Spec{Execution: plan.Execution{Command: plan.Command{Argv: []string{"samtools", "view", "a b", "$(id)"},
		Workdir: plan.Workdir}}}
	got := r.ExecArgs(spec, []plan.Bind{{Name: "ref", Version: "1"}, {Name: "soft", Version: "2"}}, nil, "/shared/images/x.sif",
		"/shared/runs/run_1", "/shared/runs/run_1/a2")
	want := strings.Fields(`--quiet exec --containall --cleanenv --no-eval --no-privs --no-home --home /tmp --net --network none
		--no-mount hostfs,bind-paths,home,cwd,sys --workdir /shared/runs/run_1/a2/tmp
		--bind /shared/runs/run_1/in:/work/in:ro --bind /shared/runs/run_1/a2/out:/work/out --bind /shared/runs/run_1/a2/meta:/work/meta:ro
		--bind /data/ref:/ref:ro --bind /cvmfs:/cvmfs:ro --pwd /work /shared/images/x.sif samtools view`)
	want = append(want, "a b", "$(id)")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(r.ExecArgs(spec, nil, nil, "/i.sif", "/r", "/r/a1"), " "); strings.Contains(got, "cvmfs") || strings.Contains(got,
		"ref") {
		t.Errorf("nobody asked: %s", got)
	}
}

// A site's seccomp profile is on every command line. Without a profile command lines are unchanged.
func TestSeccompFlag(t *testing.T) {
	spec := plan.Spec{Execution: plan.Execution{Command: plan.Command{Argv: []string{"x", "--security"}, Workdir: plan.Workdir}}}
	args := strings.Join(NewRuntime(Config{Seccomp: "/shared/seccomp.json"}).ExecArgs(spec, nil, nil, "/i.sif", "/r", "/r/a1"), " ")
	if !strings.Contains(args, " --security seccomp:/shared/seccomp.json --pwd /work /i.sif x") {
		t.Error(args)
	}
	if args := strings.Join(NewRuntime(Config{}).ExecArgs(spec, nil, nil, "/i.sif", "/r", "/r/a1"), " "); strings.Contains(args, "seccomp") {
		t.Error(args)
	}
}

func TestGPUFlag(t *testing.T) {
	one := 1
	spec := plan.Spec{Resources: plan.Resources{GPUs: &one}, Execution: plan.Execution{Command: plan.Command{Argv: []string{"x"},
		Workdir: plan.Workdir}}}
	for gpu, flag := range map[GPU]string{"": "--nv", NVIDIA: "--nv", AMD: "--rocm"} {
		r := NewRuntime(Config{GPU: gpu})
		args := r.ExecArgs(spec, nil, nil, "/i.sif", "/r", "/r/a1")
		if args[len(args)-3] != flag {
			t.Errorf("gpu %q: %v", gpu, args)
		}
	}
}

// An input that is not copied is mounted at its place, alone and read-only, for any characters in its path.
func TestMountedInputs(t *testing.T) {
	in := []run.Placed{{Input: plan.Input{DestRelpath: "in/a.bam"}, Strength: run.InPlace, Path: `/refs/a, "b": c.bam`},
		{Input: plan.Input{DestRelpath: "in/b.bam"}, Strength: run.Copied}}
	args := NewRuntime(Config{}).ExecArgs(plan.Spec{}, nil, in, "/i.sif", "/r", "/r/a1")
	i := slices.Index(args, "--mount")
	if want := `type=bind,"source=/refs/a, ""b"": c.bam","destination=/work/in/a.bam",ro`; i < 0 || args[i+1] != want {
		t.Errorf("%q", args)
	}
	if strings.Contains(strings.Join(args, " "), "b.bam") && slices.Index(args[i+1:], "--mount") >= 0 {
		t.Errorf("a copied input is mounted: %q", args)
	}
}
