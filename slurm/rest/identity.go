package rest

import (
	"context"
	"fmt"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// proof marks a connection on which slurmctld accepted the token and was of the site's cluster. It is void after a
// change of the token, and after any call was refused or had no answer: the name of a controller's host may then have
// moved to another cluster.
type proof struct {
	token string
	epoch int64
}

// prove makes sure that a connection may be used for requests that change something. It sends a read-only request on
// that connection: another server at the same address would answer on another connection. Only slurmctld checks tokens,
// slurmrestd does not.
func (c *client) prove(ctx context.Context, k *conn, v *version, token string) error {
	now := proof{token, 1 + c.epoch.Load()} // never equals the zero epoch of a new connection
	if v == nil || k.proven == now {        // without a version only the versions are asked for
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

// compare returns a Transport fault unless name is the cluster of the site file.
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
