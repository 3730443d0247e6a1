package access

import (
	"context"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Again is a principal with the rights that it has now, for what a request of it left to do: an Auth fault if it has none any more. Of a
// user of this host the site file and the groups are asked anew. What a provider's token said of its subject holds until the token ends,
// while the site accepts tokens of that provider. Tokens of the gateway change only by being revoked, which the ledger knows. A project of
// the principal's own must still be its own.
func (a *Access) Again(ctx context.Context, p gate.Principal) (gate.Principal, error) {
	switch {
	case p.Owner:
	case p.Method == gate.ByPeer:
		now, err := a.peer(ctx, p.PeerUID)
		if err == nil && now.ID != p.ID {
			err = fault.New(fault.Auth, "unauthenticated", fmt.Sprintf("user id %d is %s now, not %s", p.PeerUID, now.Name, p.Name))
		}
		return now, err
	case p.Method == gate.ByOIDC:
		for _, issuer := range a.Issuers() {
			if strings.HasPrefix(p.Name, "oidc:"+issuer+"#") {
				return p, a.sameUserProject(ctx, p)
			}
		}
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "this gateway no longer accepts tokens of the provider of "+p.Name)
	}
	return p, a.sameUserProject(ctx, p)
}
