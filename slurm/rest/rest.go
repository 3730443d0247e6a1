// Package rest uses Slurm through slurmrestd, for hosts without Slurm's commands. It implements the same ports as
// package slurm.
//
// A call is one HTTP request, and a connection has one at a time. A connection is a unix socket, TCP with TLS, or the
// pipes of a child that runs slurmrestd in inetd mode. Before a connection is used for Slurm it is proved to lead to
// the site's cluster.
//
// Answers are judged by Slurm's error numbers, not by the HTTP status, which differs between versions and is less
// precise. An answer counts only if it is whole: exactly one JSON object. After a POST, anything but a whole answer is
// doubt, unless the last byte of the request was certainly not sent. No request is ever repeated.
//
// The versions of the API differ in a few places, which [versions] lists as data. Published clients in Go have one
// package for each version, with hundreds of thousands of generated lines, and lack the versions that Slurm 26.05
// serves; the eight calls that are needed are written by hand here.
package rest

import (
	"context"
	"sync/atomic"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// Config holds a site's settings of slurmrestd. Package site has checked them and set the defaults.
type Config struct {
	URL     string   // unix:/path, https://host:port, or http://127.0.0.1:port; empty: Command
	Command []string // argv of a slurmrestd that speaks on its pipes
	User    string   // the owner of the jobs that are sent and queried

	TokenFile    string   // a file with a JWT, or the output of scontrol token; read again when it changes
	TokenCommand []string // argv of a program that prints a token; run again before the token ends
	CA           string   // PEM of the authorities that may sign the server's certificate; empty: the system's
	Version      string   // of the API; empty: the newest that both sides speak
	Cluster      string   // ClusterName of the only cluster that may be reached; empty: any

	Script slurm.ScriptConfig

	RPCPerMinute int          // to slurmctld and slurmdbd together, on average
	Shared       slurm.Shared // additional budget of all gateways of this host

	// Control reads a control file of an attempt: [run.Workspace.ReadControlFrom]. A send posts the script in that
	// file.
	Control func(ctx context.Context, runID string, n int, name string, from, limit int64) (run.Part, error)

	// Unread is called for each answer with records that could not be read, as slurm.Config.Unread is. May be nil.
	Unread func(program string, records int, why, example string)
}

// Slurm drives Slurm through slurmrestd. It is safe for concurrent use.
type Slurm struct {
	*slurm.Renderer
	cfg    Config
	client *client
	budget *slurm.Budget
	sends  sends

	accounts slurm.AccountBook // cache of what users may charge

	queued atomic.Int64 // jobs to expect in the next answer about the queue
}

// client makes calls to one slurmrestd.
type client struct {
	pool    *pool
	host    string // of requests
	user    string
	cluster string
	tokens  *tokens
	version negotiation
	budget  *slurm.Budget
	epoch   atomic.Int64 // of proofs; a change voids all of them
}

var (
	_ run.Renderer  = (*Slurm)(nil)
	_ run.Submitter = (*Slurm)(nil)
	_ run.Canceller = (*Slurm)(nil)
)

// New returns the transport. It does not connect yet.
func New(c Config) (*Slurm, error) {
	if c.User == "root" || c.User == "" {
		return nil, fault.Invalid("slurm.rest cannot be used", fault.Problem{Code: "SITE-REST-USER", Field: "slurm.rest.user",
			Msg: "jobs must belong to a user of their own, not to root"})
	}
	k, err := newClient(c)
	if err != nil {
		return nil, err
	}
	return &Slurm{Renderer: slurm.NewRenderer(c.Script), cfg: c, client: k, budget: k.budget}, nil
}

// Close ends the connections.
func (s *Slurm) Close() { s.client.pool.close() }

// Budget returns how much of the site's budget of RPCs is used.
func (s *Slurm) Budget() run.Budget { return s.budget.State() }

// Pace waits until the budget has the RPCs of a send left, and spends them; run.Parts has the contract.
func (s *Slurm) Pace(ctx context.Context, first bool) error { return s.budget.Pace(ctx, first) }
