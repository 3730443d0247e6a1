package slurm

import (
	"regexp"
	"strings"
	"testing"

	"slurmgate/run"
)

// A job's comment is one word of plain signs, bounded, for any names in it: no name can add a field, an option or a
// line. The id of the principal is whole. A run without a known principal has no such fields.
//
// proves OPS-03
func TestNote(t *testing.T) {
	form := regexp.MustCompile(`^slurmgate,tool=[A-Za-z0-9._:/@#+%~-]*(,by=[A-Za-z0-9._:/@#+%~-]+)?(,id=[A-Za-z0-9._:/@#+%~-]+)?$`)
	long := strings.Repeat("ü", 400)
	for _, name := range []string{"user:alice", "oidc:https://login.example.org#a b=c;d", "x\ny\x00", "token:%41", "\u202e", "--uid=0", "~",
		long, ""} {
		got := note(run.JobSpec{ToolID: name, Principal: run.Principal{Name: name, ID: "prn_0D6C7B2A49E1F35880A2C6D41B"}})
		if !form.MatchString(got) || len(got) > 400 || !strings.HasSuffix(got, ",id=prn_0D6C7B2A49E1F35880A2C6D41B") {
			t.Errorf("the note of the name %q is %q, want at most 400 bytes of its form, with the id at the end", name, got)
		}
	}
	if got := note(run.JobSpec{ToolID: "t.x"}); got != "slurmgate,tool=t.x" {
		t.Errorf("the note without a caller is %q, want \"slurmgate,tool=t.x\"", got)
	}
	if a, b := noted(long+"a"), noted(long+"b"); !strings.HasSuffix(a, "~") || a != b || len(a) > maxNote+1 {
		t.Errorf("two long names are noted as %q and %q, want the same note, cut, with ~ at the end", a, b)
	}
	if a, b := noted("100%20"), noted("100 "); a == b { // two names never look the same unless they are cut
		t.Errorf("two names are both noted as %q, want different notes", a)
	}
}
