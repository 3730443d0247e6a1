package run

import (
	"testing"
	"time"
)

// Accounting has a record of each start of a job that was requeued, and the start that was given up looks like a
// waiting job. The newest counts, wherever it is in the list.
func TestNewestRecordOfAJob(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(105, 0)
	v := View{Submission: Submission{JobID: "67_1"}}
	given := Job{ID: "67_1", State: "REQUEUED", Class: ClassPending, Submitted: &first}
	ended := Job{ID: "67_1", State: "FAILED", Class: ClassEnded, Submitted: &second}
	again := Job{ID: "67_1", State: "RUNNING", Class: ClassRunning, Submitted: &second}
	for _, c := range []struct {
		list []Job
		want string
	}{{[]Job{given, ended}, "FAILED"}, {[]Job{ended, given}, "FAILED"}, {[]Job{given, again}, "RUNNING"}, {[]Job{given}, "REQUEUED"},
		{[]Job{{ID: "67_1", State: "COMPLETED", Class: ClassEnded}, {ID: "67_1", State: "RUNNING", Class: ClassRunning}}, "RUNNING"}} {
		if j, ok := pick(v, c.list); !ok || j.State != c.want {
			t.Errorf("of the records %+v the one %s is picked, want %s", c.list, j.State, c.want)
		}
	}
}
