package gate

import "context"

// Identity is who a principal is. The ledger gives each subject one id, and no id to two subjects. What belongs to a principal alone is
// bound to the id; the name is for people.
type Identity struct {
	ID      string // prn_…
	Method  string // peer, token or oidc
	Subject string // exactly: a user's id and name, a token's id, an issuer and its subject
	Name    string // as lists show it
	MadeBy  string // id of who created the token; "" for other methods, and where it is unknown
	Former  string // the name that an older ledger has for the principal; "" for none. In a question, the name it would have there
}

// Principals gives principals their ids.
type Principals interface {
	// Principals returns the identities with their ids. One that was never seen before gets a new id.
	Principals(ctx context.Context, who ...Identity) ([]Identity, error)
}
