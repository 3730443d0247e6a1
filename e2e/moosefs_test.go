//go:build moosefs

package e2e

import (
	"strings"
	"testing"
)

// A node loses the shared filesystem under a job, in a cluster where each node mounts it with a separate client (up
// --fs moosefs). While its network is cut the job hangs; afterwards it continues. When its client is killed the run
// fails, and the next run on the healed node succeeds. No attempt has two jobs, and the gateway, whose own client
// works, answers all the time. `make matrix` runs this test.
func TestNodeLosesFilesystem(t *testing.T) {
	s := newSite(t, "probing")
	s.serve()
	shell(t, "root", "scontrol update nodename=n2 state=drain reason=test")
	t.Cleanup(func() {
		shell(t, "root", `nft flush set inet devcluster blocked; devd start mfsmount-n1; scontrol update nodename=n2 state=resume`)
		heal(t, "n1")
	})

	cut := s.submit(probePlan("await", "out/go", "out/result")).RunID
	s.started(cut)
	shell(t, "root", `devd block mfsmount-n1
		: >"$1/a1/out/go"
		devd on slurmd-n1 stat "$1/a1/out/go" </dev/null >/dev/null 2>&1 &
		for n in {1..30}; do kill -0 $!; sleep 0.1; done`, s.story(cut).Workspace) // nothing comes back from there
	if l := s.phase(cut, "running"); l.State != "running" {
		t.Errorf("while its node has no network %v, want it running", l)
	}
	shell(t, "root", "devd unblock mfsmount-n1")
	s.ends(cut, "succeeded")
	s.hasOneJob(cut)

	killed := s.submit(probePlan("sleep", "5")).RunID
	s.started(killed)
	shell(t, "root", "devd kill mfsmount-n1")
	if l := s.wait(killed); l.State != "failed" || !strings.HasPrefix(l.why(), "control_unwritable: ") {
		t.Errorf("after its node lost the filesystem %v, want it failed as control_unwritable", l)
	}
	s.hasOneJob(killed)
	shell(t, "root", "devd start mfsmount-n1")
	s.ends(s.submit(probePlan("write", "out/result", "healed")).RunID, "succeeded")
}
