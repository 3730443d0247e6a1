package plan

import (
	"regexp"
	"strings"
)

// Promise is an output of a run that may be unfinished, as an input of another: run_…:role.
type Promise struct {
	RunID string
	Role  string
}

// PromisePattern is the form of a promise, as a regular expression without anchors.
const PromisePattern = `run_[0-9A-HJKMNP-TV-Z]{26}:[A-Za-z0-9][A-Za-z0-9._-]{0,63}`

var promise = regexp.MustCompile(`^` + PromisePattern + `$`)

// ParsePromise reads a promise; ok is false if the text is not one.
func ParsePromise(s string) (p Promise, ok bool) {
	if !strings.HasPrefix(s, "run_") || !promise.MatchString(s) {
		return p, false
	}
	p.RunID, p.Role, _ = strings.Cut(s, ":")
	return p, true
}

// String returns the promise as a call names it.
func (p Promise) String() string { return p.RunID + ":" + p.Role }

// Promised is an input of a plan whose bytes are not known yet. Such a plan is the identity of a run that waits; it is never executed.
type Promised struct {
	DestRelpath string `json:"dest_relpath"`
	Output      string `json:"output"` // run_…:role
}

// Unknown is the checksum of a promised input in such a plan.
var Unknown = strings.Repeat("0", 64)
