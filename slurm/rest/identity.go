package rest

import (
	"context"
	"fmt"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// proof is what was shown on a connection: that slurmctld accepts the token and belongs to the site's cluster. It ends with the token, and
// when any call is refused or has no answer: then the name of a controller's host may have moved to another cluster.
type proof struct {
	token string
	epoch int64
}

// prove makes sure that a connection may be used for requests that change something, with a request that does not, on that connection:
// whatever answers at the same address later does so on another one. slurmrestd itself does not look at tokens, only slurmctld does.
func (c *client) prove(ctx context.Context, k *conn, v *version, token string) error {
	now := proof{token, 1 + c.epoch.Load()} // never that of a new connection
	if v == nil || k.proven == now {        // nothing but the versions is asked before there is one
		return nil
	}
	if err := c.budget.Spend(ctx, 1); err != nil {
		return err
	}
	a, err := c.exchange(ctx, k, request{method: "GET", path: "/slurm/" + v.name + "/licenses"}, token)
	switch {
	case refusedWith(err, protocolAuth):
		return fault.Wrap(fault.Transport, AuthFault, fmt.Sprintf("slurmctld does not accept the gateway as %s", c.user), err).WithNext(
			"check slurm.rest.user and the token in the site file, and the clocks of both hosts")
	case err != nil && fault.CodeOf(err) == Refused:
		return fault.Wrap(fault.Transport, run.Unreachable, "Slurm did not answer slurmrestd at "+c.pool.name, err)
	case err != nil:
		return err
	case !a.reusable:
		return fault.New(fault.Transport, run.Unreachable, "slurmrestd at "+c.pool.name+" ends each connection after one answer").WithNext(
			"let the proxy in front of it keep connections open")
	}
	if c.cluster != "" {
		if err := c.compare(a.cluster); err != nil {
			return err
		}
	}
	k.proven = now
	return nil
}

// refusedWith reports whether Slurm refused a call with this number.
func refusedWith(err error, number int) bool {
	for _, p := range problemsOf(err) {
		if p.Number == number {
			return true
		}
	}
	return false
}

// compare holds the name of a cluster against the site file.
func (c *client) compare(name string) error {
	switch {
	case name == "":
		return fault.New(fault.Transport, "cluster_unknown", "slurmrestd at "+c.pool.name+" does not name its cluster").WithNext(
			"upgrade Slurm to 24.05 or later, or remove slurm.cluster from the site file: then any cluster is accepted")
	case !slurm.SameCluster(name, c.cluster):
		return fault.New(fault.Transport, run.WrongCluster, fmt.Sprintf(
			"slurmrestd at %s belongs to the cluster %s, but slurm.cluster is %s; nothing is sent to it", c.pool.name, fault.Clip(name),
			c.cluster)).WithNext("correct slurm.rest.url or slurm.cluster in the site file").WithSteps(fault.Do("doctor"))
	}
	return nil
}
