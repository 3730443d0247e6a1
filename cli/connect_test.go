package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/app"
	"slurmgate/gate"
)

// An answer that is read into the place of an earlier one has nothing of that: batch wait showed the counts of states that no row had any
// more.
func TestAnswerReplacesTheOneBefore(t *testing.T) {
	var st app.BatchStatusAnswer
	for _, text := range []string{`{"rows":2,"counts":{"running":2},"name":"c"}`, `{"rows":2,"counts":{"succeeded":2}}`} {
		must(t, decode(gate.Response{OK: true, Result: []byte(text)}, &st))
	}
	if diff := cmp.Diff(map[string]int64{"succeeded": 2}, st.Counts); diff != "" || st.Name != "" {
		t.Errorf("counts after the second answer (-want +got):\n%s; name %q, want none", diff, st.Name)
	}
}
