package access

import (
	"context"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Again returns a principal with its current rights, for the remaining work of an earlier request: an Auth fault if
// it has none. For a user of this host the site file and the groups are read again. The claims of a provider's token
// hold until the token ends, while the site accepts tokens of that provider. Tokens of the gateway change only by
// being revoked, which the ledger knows. The principal's own project must still belong to it.
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
