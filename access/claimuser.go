package access

// ClaimUsers maps a claim of a provider's tokens to users of the cluster. A token without the claim, with a list in its place, or with a
// value that the table does not have, has no user.
type ClaimUsers struct {
	Claim string
	Users map[string]string // value of the claim → Unix user
}

// of is the user of a token that says these claims. An email address that the provider has not verified is anybody's.
func (t ClaimUsers) of(c claims) string {
	value, ok := c.all[t.Claim].(string)
	if !ok || value == "" || t.Claim == "email" && c.all["email_verified"] != any(true) {
		return ""
	}
	return t.Users[value]
}
