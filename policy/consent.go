package policy

import "slices"

// Consent selects the calls that need a person's approval of exactly that payload, and how long requests and
// approvals are valid.
type Consent struct {
	Tools []string `yaml:"tools" is:"tool" example:"photo_search"`
	// Seconds that an unanswered request is valid.
	RequestExpiresSecs int64 `yaml:"request_expires_seconds" default:"86400" min:"60" max:"2592000"`
	// Seconds that an approval is valid which names no other time.
	ApprovalExpiresSecs int64 `yaml:"approval_expires_seconds" default:"3600" min:"60" max:"2592000"`
}

// NeedsConsent reports whether each call of the tool needs an approval. The name is the tool name.
func (p *Policy) NeedsConsent(name string) bool { return slices.Contains(p.Consent.Tools, name) }
