package gate

import "context"

// Identity identifies a principal. The ledger gives each subject one id, and no id to two subjects. What belongs to a
// principal alone is bound to the id; the name is for people.
type Identity struct {
	ID      string // prn_…
	Method  string // peer, token or oidc
	Subject string // exactly: a user's id and name, a token's id, an issuer and its subject
	Name    string // as lists show it
	MadeBy  string // id of who created the token; "" for other methods, and where it is unknown
}

// Principals gives principals their ids.
type Principals interface {
	// Principals returns the identities with their ids. One that was never seen before gets a new id.
	Principals(ctx context.Context, who ...Identity) ([]Identity, error)
}

// ProjectUser is whose a user's own project is: a user of this host or, for a subject that is mapped to none, an OpenID subject.
type ProjectUser struct {
	Name        string // the login name, or the principal's name
	UID         int    // of the login name; negative: a subject has none
	PrincipalID string // of the principal that asks
}

// UserProjects returns the personal projects of users.
type UserProjects interface {
	// UserProject returns the id of a user's own project and creates it where the name has none yet. A project whose
	// user had another user id is an Auth fault with code user_project_taken, until an administrator has decided
	// whose it is.
	UserProject(ctx context.Context, u ProjectUser) (projectID string, err error)
}
