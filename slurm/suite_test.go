package slurm

import (
	"testing"

	"slurmgate/run/runtest"
)

// The renderer of job scripts passes the conformance suite of all renderers; the suites in run/runtest check what runs
// the jobs.
func TestRendererConformance(t *testing.T) {
	runtest.Renderer(t, renderer(t, runtimePath), flagstat("/shared/runs/"+testRun))
}
