package e2e

import "testing"

// Who follows a run's log from before its job starts gets all that the program writes, and the verb ends with the run.
//
// short: the shell
func TestFollowLogs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	id, release := s.waiting(probePlan("exit", "3"))
	ended := map[string]chan result{}
	for _, stream := range []string{"stdout", "stderr"} {
		ended[stream] = make(chan result, 1)
		go func() { ended[stream] <- s.cli("logs", id, "--follow", "--stream", stream) }()
	}
	release()
	for stream, end := range ended {
		r := <-end
		if want := "said on " + stream + " before the end\n"; r.code != 0 || string(r.stdout) != want {
			t.Errorf("logs --follow --stream %s ended with %d and printed %q, want 0 and %q", stream, r.code, r.stdout, want)
		}
	}
}
