package access

// ClaimUsers maps a claim of a provider's tokens to users of the cluster. A token without the claim, with a list as
// its value, or with a value that is not in the table, has no user.
type ClaimUsers struct {
	Claim string
	Users map[string]string // value of the claim → Unix user
}

// of returns the user of a token with these claims. An email address that the provider has not verified is ignored:
// anyone could claim it.
func (t ClaimUsers) of(c claims) string {
	value, ok := c.all[t.Claim].(string)
	if !ok || value == "" || t.Claim == "email" && c.all["email_verified"] != any(true) {
		return ""
	}
	return t.Users[value]
}
