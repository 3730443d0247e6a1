package slurm

import (
	"testing"

	"slurmgate/run/runtest"
)

// The renderer of job scripts, held to the suite of all renderers; what runs the jobs is held to its suites in run/runtest.
func TestRendererConformance(t *testing.T) {
	runtest.Renderer(t, renderer(t, runtimePath), flagstat("/shared/runs/"+testRun))
}
