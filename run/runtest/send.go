package runtest

import (
	"testing"

	"slurmgate/run"
)

// WantSend fails the test unless a send has this outcome, and this job id or, if it was not accepted, this code; empty:
// any.
func WantSend(t testing.TB, got run.SendResult, want run.SendOutcome, detail string) {
	t.Helper()
	said := got.Code
	if want == run.SendAccepted {
		said = got.JobID
	}
	if got.Outcome != want || detail != "" && said != detail || (got.JobID != "") != (want == run.SendAccepted) {
		t.Errorf("the send ended as %+v, want %s %s", got, want, detail)
	}
}

// WantCount fails the test unless something was called this often.
func WantCount(t testing.TB, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s was called %d times, want %d", what, got, want)
	}
}
