package secrets_test

import (
	"testing"

	"slurmgate/secrets"
)

// An id of the gateway's own may contain the letters of a name for secrets, as one in some hundred does. What follows it
// is the role of an output, and no secret.
func TestOwnIDsAreNoNames(t *testing.T) {
	s := secrets.New()
	for _, prefix := range []string{"run_", "batch_", "art_", "file_", "prn_"} {
		for _, letters := range []string{"PASSWD", "PWD", "SECRET", "PASS", "KEY"} {
			for _, at := range []int{0, 7, 15} {
				digits := "5KQH49R728H685RA4CX0Z1V3M9"
				id := prefix + digits[:at] + letters + digits[at+len(letters):]
				for _, text := range []string{id + ":result", `{"seed":"` + id + `:result"}`} {
					if found := s.Find(text); len(found) > 0 {
						t.Errorf("Find(%s) = %v, want nothing", text, found)
					}
				}
			}
		}
	}
	if text := "run_PASSWD: hunter2x9"; len(s.Find(text)) == 0 {
		t.Errorf("Find(%s) finds nothing, want the password: the name only begins as an id does", text)
	}
}
