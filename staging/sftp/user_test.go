package sftp

import (
	"bytes"
	"context"
	"testing"

	"slurmgate/fault"
	"slurmgate/remote"
)

// forger is a far side with answers forged by a user.
type forger struct {
	stdout []byte
}

func (f forger) Run(context.Context, remote.Call) (remote.Output, error) {
	return remote.Output{Stdout: f.stdout}, nil
}

// Forged answers are refused, or affect only that user's run; none of them costs much memory.
//
// proves SITE-08
func TestForgedAnswers(t *testing.T) {
	f := newFar(t, nil)
	w := f.open(t, nil)
	forged := func(text string, times int) *shelled {
		return newShelled(Config{Shell: forger{bytes.Repeat([]byte(text), times)}})
	}
	for name, text := range map[string]string{"negative": "-5\n", "words": "many\n", "too large": "99999999999999999999\n", "nothing": ""} {
		if _, err := forged(text, 1).size(t.Context(), runA); fault.CodeOf(err) != "far_shell" {
			t.Errorf("size, %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"negative size": "81a4 1 0 -1 0\n", "half": "81a4 1 0", "no numbers": "x x x x x\n"} {
		if _, err := forged(text, 1).output(t.Context(), runA, 1, "out/x"); fault.CodeOf(err) != "far_shell" {
			t.Errorf("output, %s: %v", name, err)
		}
	}
	before := testing.AllocsPerRun(1, func() {
		if _, err := forged("\x00", maxAnswer).list(t.Context(), runA, 1, nil); fault.CodeOf(err) != "far_shell" {
			t.Error(err)
		}
	})
	if before > 1000 {
		t.Errorf("%.0f allocations for a list of empty names", before)
	}
	// A forged answer may claim that every file exists: only files that the user may read are then read over SFTP, and
	// checked against the manifest.
	w.far = forged("81a4 1 0 6 0\n", 1)
	_, _, err := w.OpenOutput(t.Context(), runA, 1, "out/../../../secret")
	if !fault.Is(err, fault.Internal) && !fault.Is(err, fault.Validation) {
		t.Errorf("a path out of the run's folder: %v", err)
	}
}
