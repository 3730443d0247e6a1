//go:build npm

package e2e

import (
	"bytes"
	"os/exec"
	"testing"
)

// A client that a public generator made of the OpenAPI document drives a whole run: scripts/openapi-client generates it
// and defines the calls. It needs npm and a network, so it runs with `make openapi-client`, not with all tests.
//
// proves AX-03
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	p := s.openPort(t)
	cmd := exec.CommandContext(t.Context(), world.repo+"/scripts/openapi-client", p.url, p.token,
		world.repo+"/build/data/reads-small.fastq.gz")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("a generated client drove a whole run")) {
		t.Errorf("scripts/openapi-client ends with %v, want a whole run driven by the generated client", err)
	}
}
