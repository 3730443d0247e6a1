package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// cancel-all is about the caller's own runs unless the command names others.
func TestCancelAllMeansOnesOwn(t *testing.T) {
	for line, want := range map[string]string{"--yes": "me", "--principal alice": "alice", "--everyone": ""} {
		var c struct {
			Clear CancelAll `cmd:"" name:"cancel-all"`
		}
		p, err := kong.New(&c)
		must(t, err)
		if _, err := p.Parse(append([]string{"cancel-all"}, strings.Fields(line)...)); err != nil {
			t.Fatalf("cancel-all %s: %v", line, err)
		}
		if got := c.Clear.whose(); got != want {
			t.Errorf("cancel-all %s lists the runs of %q, want %q", line, got, want)
		}
	}
}
