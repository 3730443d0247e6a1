package policy

import (
	"slices"

	"slurmgate/policy/yamldoc"
)

// Consent says which calls need a person's approval of exactly that payload, and how long requests and approvals are valid.
type Consent struct {
	Tools               []string `json:"tools"`                    // tool names; empty: no call needs approval
	RequestExpiresSecs  int64    `json:"request_expires_seconds"`  // of an unanswered request, 60..2592000; 86400 (a day) when absent
	ApprovalExpiresSecs int64    `json:"approval_expires_seconds"` // of an answer that names no other time, 60..2592000; 3600 when absent
}

const (
	minConsent      = 60
	maxConsent      = 30 * 24 * 3600
	defaultRequest  = 24 * 3600
	defaultApproval = 3600
)

func (c *Consent) read(v yamldoc.Value) {
	o := v.Object("tools", "request_expires_seconds", "approval_expires_seconds")
	c.Tools = append([]string{}, o.Opt("tools").Words("TOOL-NAME", toolNames, toolName.MatchString)...)
	c.RequestExpiresSecs = number(o.Opt("request_expires_seconds"), minConsent, maxConsent, defaultRequest)
	c.ApprovalExpiresSecs = number(o.Opt("approval_expires_seconds"), minConsent, maxConsent, defaultApproval)
}

// NeedsConsent reports whether each call of the tool needs an approval. The name is the tool name.
func (p *Policy) NeedsConsent(name string) bool { return slices.Contains(p.Consent.Tools, name) }
