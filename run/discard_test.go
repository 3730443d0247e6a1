package run_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"slurmgate/run"
)

// What a run left on a disk that it filled is removed once the run has ended, not before: other runs and its own next
// attempt need the room.
func TestFullDiskIsMadeRoomOn(t *testing.T) {
	const noRoom = "write /work/out/x: No space left on device\n"
	for _, c := range []struct {
		code   int
		reason string // in the exit file, if there is one
		stderr string
		want   bool
	}{{96, "", "", true}, {1, "tool_failed", noRoom, true}, {1, "tool_failed", "bad input\n", false}, {137, "killed", noRoom, true}} {
		bubble(t, func(t *testing.T, w *world) {
			var removed []string
			w.discard = func(runID string) error {
				v, err := w.ledger.View(t.Context(), runID)
				if err == nil && v.Run.Phase == run.Done {
					removed = append(removed, runID)
				}
				return err
			}
			v := ended(t, w, nil, func(j *job, a *attempt) {
				if a.ctl["stderr"] = []byte(c.stderr); c.reason != "" {
					w.exitFile(j, c.code, c.reason)
				}
				w.end(j, "FAILED", c.code)
			})
			synctest.Wait() // the workspace is removed after the run has ended
			if got := slices.Contains(removed, v.Run.ID); v.Run.State != run.Failed || got != c.want {
				t.Errorf("a run that ended with %d as %s (%s): its workspace was removed: %t, want %t", c.code, v.Run.State, v.Run.Detail, got,
					c.want)
			}
		})
	}
}
