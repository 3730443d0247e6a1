package app

import (
	"context"

	"slurmgate/gate"
)

// unixUser is the Unix user whom the principal's jobs run as on a cluster; empty where they run as the gateway's own user.
func (g *Gateway) unixUser(ctx context.Context, site string, p gate.Principal) (string, error) {
	if g.UnixUser == nil {
		return "", nil
	}
	return g.UnixUser(ctx, site, p)
}
