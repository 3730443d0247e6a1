package run_test

import (
	"strings"
	"testing"

	"slurmgate/run"
)

// The reason of a program that was killed quotes the end of its output, on whichever stream, before the job script's
// message.
func TestReasonQuotesTheProgram(t *testing.T) {
	for _, c := range []struct{ stderr, stdout, want string }{
		{"last on stderr\n", "last on stdout\n", "last on stderr"},
		{"", "reading\nlast on stdout\n", "last on stdout"},
		{"", "", "killed, code 137"},
	} {
		bubble(t, func(t *testing.T, w *world) {
			v := ended(t, w, nil, func(j *job, a *attempt) {
				w.exitFile(j, 137, "killed")
				a.ctl["stderr"], a.ctl["stdout"], a.ctl["job.log"] = []byte(c.stderr), []byte(c.stdout), []byte("killed, code 137\n")
				w.end(j, "FAILED", 137)
			})
			if v.Run.State != run.Failed || !strings.Contains(v.Run.Detail, c.want) {
				t.Errorf("a killed program that said %q and %q: %s, %q; want the detail to quote %q", c.stderr, c.stdout, v.Run.State,
					v.Run.Detail, c.want)
			}
		})
	}
}
