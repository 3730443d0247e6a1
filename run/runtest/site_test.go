package runtest_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
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

// site has the real workspaces and the real job script. The runtime of its jobs starts the program on the host itself.
type site struct {
	run.Workspace
	renderer *slurm.Renderer
	image    string
}

// runtimeScript replaces apptainer.
const runtimeScript = "#!/bin/bash\nexec \"${@:2}\"\n" // after the word for the container

func openSite(t *testing.T, root string) *site {
	t.Helper()
	runs := filepath.Join(root, "runs")
	must(t, os.MkdirAll(runs, 0o700))
	s := &site{image: filepath.Join(root, "image.sif")}
	must(t, os.WriteFile(s.image, []byte("image"), 0o600))
	shared, err := staging.NewShared(staging.Config{RunsDir: runs, GatewayID: "gw-suite"})
	must(t, err)
	s.Workspace = shared
	return s
}

// transport returns what the suites need, except for the ports of what runs the jobs.
func (s *site) transport() *runtest.Transport {
	return &runtest.Transport{Workspace: s.Workspace,
		Until: func(t *testing.T, what string, ok func() bool) {
			t.Helper()
			for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("no %s after 5 minutes", what)
				}
			}
		},
		Executions: func(job run.JobSpec) int {
			data, _ := os.ReadFile(filepath.Join(job.AttemptDir(), "ran"))
			return strings.Count(string(data), "ran")
		}}
}

// program returns what a job of a kind runs. It records each start in the attempt's folder.
func program(k runtest.Kind, lasting ...runtest.Kind) string {
	for _, l := range lasting {
		if k == l {
			return "echo ran >>ran; sleep 300"
		}
	}
	return "echo ran >>ran"
}

// prepare puts an attempt in place as the lifecycle does.
func (s *site) prepare(t *testing.T, place plan.Placement, program string) run.JobSpec {
	t.Helper()
	random := make([]byte, 16)
	rand.Read(random) // never fails
	token := hex.EncodeToString(random)
	id := plan.Identity{ToolName: "suite", ParamsHash: token}.RunID()
	sum := sha256.Sum256([]byte("image"))
	argv := []string{"/bin/bash", "-c", program}
	spec := plan.Spec{Version: plan.SpecVersion, Resources: plan.Resources{TimeLimitSeconds: 60, CPUs: 1, MemMB: 50}, Placement: place,
		Execution: plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer",
			Image: "sha256:" + hex.EncodeToString(sum[:]), NetworkMode: "none", ReadonlyRootfs: true},
			Command: plan.Command{Argv: argv}},
		IO: plan.IO{Outputs: []plan.Output{{Role: "mark", SrcRelpath: "out/mark", Type: "TEXT", Label: "mark"}}}}
	spec.Fill()
	job := run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token), Spec: spec, RunDir: s.RunDir(id),
		ImagePath: s.image, ExecArgs: append([]string{"container"}, argv...), MaxOutputBytes: 1 << 30}
	must(t, s.StageInputs(t.Context(), id, nil, nil))
	script, pinned, err := s.renderer.Render(job)
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
