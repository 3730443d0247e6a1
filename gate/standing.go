package gate

import "slurmgate/plan"

// standing returns the principal's rights as text, to compare a later one with.
func (p Principal) standing() string {
	doc, _ := plan.Of(standing{p.Rights, p.Accounts, p.UnixUser}) // lists and maps of texts
	return string(doc.Bytes)
}

type standing struct {
	Rights   Rights            `json:"rights"`
	Accounts map[string]string `json:"accounts"`
	UnixUser string            `json:"unix_user,omitzero"`
}

// has reports whether the principal has all rights of an earlier standing. "" was never recorded and requires
// nothing.
func (p Principal) has(earlier string) bool {
	if earlier == "" || earlier == p.standing() {
		return true
	}
	var then standing
	if plan.Decode([]byte(earlier), &then) != nil || then.UnixUser != "" && then.UnixUser != p.UnixUser {
		return false
	}
	for _, g := range then.Rights {
		for _, project := range g.Projects {
			if !p.CanAll(g.Capabilities, project) {
				return false
			}
		}
	}
	before := Principal{Accounts: then.Accounts}
	for project, account := range p.Accounts { // an account that jobs must charge is a right less, unless it had to be charged then too
		if before.Account(project) != account {
			return false
		}
	}
	return true
}
