package e2e

import "testing"

// A run that an earlier policy let in is not sent again under one that would not: the denial names rule and limit, nothing is
// sent, and the request itself is denied as well. proves ARC-06
func TestPolicyAtTheBoundary(t *testing.T) {
	t.Parallel()
	s := newSite(t, "examples")
	var table struct {
		ID string `json:"artifact_id"`
	}
	s.ok(&table, "artifact", "import", s.file("ragged.csv", "a,b\n1,2,3\n"), "--type", "CSV")
	args := []string{"run", "mlr.markdown", "--input", "table=" + table.ID}
	var l looked
	r := s.cli(append(append([]string{}, args...), "--wait", "--json")...)
	if r.code != 6 {
		t.Fatal(r)
	}
	r.object(t, &l)
	before := s.story(l.RunID)
	s.replace("domain/policies.yaml", "max_mem_mb: 16384", "max_mem_mb: 512")
	for _, again := range [][]string{{"retry", l.RunID}, args} {
		f := s.fails(4, again...)
		if len(f.Details.Problems) != 1 || f.Details.Problems[0].Code != "POLICY-MEM" ||
			f.Details.Problems[0].Rule != "policy slurm.max_mem_mb: at most 512" {
			t.Errorf("%v: %+v", again, f)
		}
	}
	if after := s.story(l.RunID); len(after.Sends) != len(before.Sends) || after.State != "failed" {
		t.Errorf("%+v", after)
	}
	s.replace("domain/policies.yaml", "max_mem_mb: 512", "max_mem_mb: 16384")
	s.ok(nil, "retry", l.RunID)
}
