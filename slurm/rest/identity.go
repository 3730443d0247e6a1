package rest

import (
	"context"
	"fmt"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// prove makes sure that a connection leads to a slurmrestd of the site's cluster. It is asked once on each connection, on that connection:
// whatever answers at the same address later does so on another one.
func (c *client) prove(ctx context.Context, k *conn, token string) error {
	v := c.version.known()
	if c.cluster == "" || k.proven || v == nil { // nothing but the versions is asked before there is one
		return nil
	}
	name, err := c.askCluster(ctx, k, *v, token)
	if err != nil {
		return err
	}
	if err := c.compare(name); err != nil {
		return err
	}
	k.proven = true
	return nil
}

func (c *client) askCluster(ctx context.Context, k *conn, v version, token string) (string, error) {
	a, err := c.exchange(ctx, k, request{method: "GET", path: "/slurm/" + v.name + "/ping/"}, token)
	return a.cluster, err
}

// compare holds the name of a cluster against the site file.
func (c *client) compare(name string) error {
	switch {
	case name == "":
		return fault.New(fault.Transport, "cluster_unknown", "slurmrestd at "+c.pool.name+" does not name its cluster")
	case !slurm.SameCluster(name, c.cluster):
		return fault.New(fault.Transport, run.WrongCluster, fmt.Sprintf(
			"slurmrestd at %s is one of the cluster %s, but slurm.cluster is %s; nothing is sent to it", c.pool.name, fault.Clip(name),
			c.cluster)).WithNext("correct slurm.rest.url or slurm.cluster in the site file").WithSteps(fault.Do("doctor"))
	}
	return nil
}
