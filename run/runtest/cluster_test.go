//go:build cluster

package runtest_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/slurm"
	"slurmgate/staging"
)

// The real transport and the real workspace, on a login node of the dev cluster. The fake of package run's tests is held to the same suite
// (run.TestFakeConformance).
func TestClusterConformance(t *testing.T) {
	// Written before anything runs beside it: a process started meanwhile would have it open, and the kernel executes no file that is open
	// for writing.
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/sbatch", []byte("#!/bin/bash\nwhile [[ -e ${0%/*}/hold ]]; do sleep 0.05; done\n"+
		"exec /usr/bin/sbatch \"$@\"\n"), 0o700))
	must(t, os.WriteFile(dir+"/apptainer", []byte("#!/bin/bash\nexec \"$@\"\n"), 0o700))
	runtest.Slurm(t, func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) }, func(t *testing.T) *runtest.Transport {
		return open(t,
			dir)
	})
}

// site is a transport and the folder its jobs work in.
type site struct {
	*slurm.CLI
	*staging.Shared
	image string
}

func open(t *testing.T, programs string) *runtest.Transport {
	root := filepath.Join(os.Getenv("SLURMGATE_TEST_DIR"), strings.ReplaceAll(t.Name(), "/", "_"))
	runs, bin := filepath.Join(root, "runs"), t.TempDir()
	must(t, os.MkdirAll(runs, 0o700))
	for _, name := range []string{"squeue", "sacct", "scancel", "scontrol"} {
		must(t, os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)))
	}
	must(t, os.Symlink(filepath.Join(programs, "sbatch"), filepath.Join(bin, "sbatch")))
	runtime, err := os.ReadFile(filepath.Join(programs, "apptainer"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "apptainer"), runtime, 0o700)) // started on the nodes only
	me, err := user.Current()
	must(t, err)

	s := site{image: filepath.Join(root, "image.sif")}
	must(t, os.WriteFile(s.image, []byte("image"), 0o600))
	s.CLI, err = slurm.NewCLI(slurm.Config{BinDir: bin, LocksDir: filepath.Join(bin, "locks"), User: me.Username,
		Budget: slurm.BudgetConfig{RPCPerMinute: 1e6, SendsInFlight: 100},
		Script: slurm.ScriptConfig{Runtime: slurm.Runtime{Path: filepath.Join(root, "apptainer")}, GraceSeconds: 2}})
	must(t, err)
	s.Shared, err = staging.NewShared(staging.Config{RunsDir: runs, GatewayID: "gw-suite"})
	must(t, err)
	hold := filepath.Join(bin, "hold")
	return &runtest.Transport{Submitter: s.CLI, Queue: s.CLI, Canceller: s.CLI, Workspace: s.Shared, Job: s.job,
		Slow: func(t *testing.T) func() {
			must(t, os.WriteFile(hold, nil, 0o600))
			return func() { must(t, os.Remove(hold)) }
		},
		Until: func(t *testing.T, what string, ok func() bool) {
			t.Helper()
			for end := time.Now().Add(time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("no %s after a minute", what)
				}
			}
		},
		Executions: func(job run.JobSpec) int {
			data, _ := os.ReadFile(filepath.Join(job.RunDir, "a1/ran"))
			return strings.Count(string(data), "ran")
		},
	}
}

// job prepares an attempt as the lifecycle does. Its program notes each start in the attempt's folder.
func (s site) job(t *testing.T, k runtest.Kind) run.JobSpec {
	place, program := plan.Placement{Partition: "main", Account: "research"}, "echo ran >>ran"
	switch k {
	case runtest.Sleeps:
		program += "; sleep 300"
	case runtest.Waits:
		place.Partition = "big" // whose nodes are down
	case runtest.Wrong:
		place.Partition = "nowhere"
	case runtest.NoRoom: // QOS tiny: two jobs of a user at a time
		tiny := "tiny"
		place.Partition, place.QOS = "big", &tiny
		for range 2 {
			first := s.prepare(t, place, program)
			res := s.Send(context.Background(), first, 1)
			t.Cleanup(func() { exec.Command("scancel", res.JobID).Run() })
		}
	}
	return s.prepare(t, place, program)
}

func (s site) prepare(t *testing.T, place plan.Placement, program string) run.JobSpec {
	t.Helper()
	random := make([]byte, 16)
	rand.Read(random) // never fails
	token := hex.EncodeToString(random)
	id := plan.Identity{ToolName: "suite", ParamsHash: token}.RunID()
	sum := sha256.Sum256([]byte("image"))
	spec := plan.Spec{Version: plan.SpecVersion, Resources: plan.Resources{TimeLimitSeconds: 60, CPUs: 1, MemMB: 50}, Placement: place,
		Execution: plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer",
			Image: "sha256:" + hex.EncodeToString(sum[:]), NetworkMode: "none", ReadonlyRootfs: true},
			Command: plan.Command{Argv: []string{"bash"}}},
		IO: plan.IO{Outputs: []plan.Output{{Role: "mark", SrcRelpath: "out/mark", Type: "TEXT", Label: "mark"}}}}
	spec.Fill()
	job := run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token), Spec: spec, RunDir: s.RunDir(id),
		ImagePath: s.image, ExecArgs: []string{"/bin/bash", "-c", program}, MaxOutputBytes: 1 << 30}
	must(t, s.StageInputs(t.Context(), id, nil, nil))
	script, pinned, err := s.Render(job)
	must(t, err)
	must(t, s.OpenAttempt(t.Context(), id, 1, token, run.ControlFile{Name: run.PinnedFile, Data: pinned},
		run.ControlFile{Name: run.ScriptFile, Data: script}))
	return job
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
