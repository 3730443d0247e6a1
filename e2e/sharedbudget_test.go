package e2e

import (
	"os"
	"strings"
	"testing"
)

// proves OPS-03: what one gateway asks of Slurm, another of its host cannot ask any more.
// short: calls to Slurm do not grow
func TestTwoGatewaysShareABudget(t *testing.T) {
	t.Parallel()
	first, second := newSite(t, "genomics"), newSite(t, "genomics")
	file := first.file("budget", "")
	shared := "rpc_per_minute: 6000\n  shared: {file: " + file + ", rpc_per_minute: 12}"
	for _, s := range []*site{first, second} {
		s.replace("site.yaml", "rpc_per_minute: 6000", shared)
	}
	first.serve()
	second.serve()
	left := func(s *site) int {
		b := s.siteRows()["e2e"].Budget
		if b == nil || b.Shared == nil || b.Shared.PerMinute != 12 || b.Shared.Problem != "" || b.Left > b.Shared.Left {
			t.Fatalf("the verb sites shows the budget %+v, want 12 shared a minute, and no more left than those", b)
		}
		return b.Shared.Left
	}
	reads := data("reads.fastq.gz")
	var done struct{ State string }
	first.ok(&done, "run", "seqkit.stats", "--input", "reads="+reads, "--wait")
	if n := left(second); done.State != "succeeded" || n >= 11 { // full, it has 12
		t.Errorf("%d are left for the second after a run of the first, which %s", n, done.State)
	}
	must(t, os.Remove(host(file)))
	if b := second.siteRows()["e2e"].Budget; b.Shared.Problem == "" || b.Left == 0 {
		t.Errorf("without its file the shared budget is %+v, want a problem and the site's own budget", b)
	}
	if r := second.cli("sites"); r.code != 0 || !strings.Contains(string(r.stdout), "the shared budget of 12 RPCs per minute is not used") {
		t.Errorf("%v, want that the shared budget is not used", r)
	}
	second.ok(&done, "run", "seqkit.stats", "--input", "reads="+reads, "--wait")
	if done.State != "succeeded" {
		t.Errorf("without the shared budget a run is %s, want succeeded", done.State)
	}
}
