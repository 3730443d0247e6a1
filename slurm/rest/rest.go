// Package rest is Slurm as slurmgate uses it through slurmrestd: the same ports as slurm's commands, for hosts without these commands.
//
// A call is one HTTP request, and a connection has one at a time. A connection is a unix socket, TCP with TLS, or the pipes of a child that
// runs slurmrestd in inetd mode. Each is proven to lead to the site's cluster before anything is asked of Slurm on it.
//
// Answers are judged by Slurm's error numbers, never by their status, which differs between versions and says less. An answer is whole or
// none: it is one JSON object to its end. After a POST, whatever is not a whole answer is doubt, unless the last byte of the request
// certainly stayed here; no request is ever repeated.
//
// The versions of the API differ in a few places; [versions] has them as data. The clients in Go that others publish are one package for
// each version, hundreds of thousands of generated lines, and end before the versions that Slurm 26.05 serves; the eight calls that are
// needed are written by hand here.
package rest

import (
	"context"
	"sync/atomic"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// Config is what a site says about its slurmrestd; package site has checked it and knows the defaults.
type Config struct {
	URL     string   // unix:/path, https://host:port, or http://127.0.0.1:port; empty: Command
	Command []string // argv of a slurmrestd that speaks on its pipes
	User    string   // whose jobs are sent and asked about

	TokenFile    string   // a JWT, or what scontrol token prints; read again when it changes
	TokenCommand []string // argv that prints one; run again before the token ends
	CA           string   // PEM of the authorities that may sign the server's certificate; empty: the system's
	Version      string   // of the API; empty: the newest that both sides speak
	Cluster      string   // ClusterName of the only cluster that may be reached; empty: any

	Script slurm.ScriptConfig

	RPCPerMinute int          // to slurmctld and slurmdbd together, on average
	Shared       slurm.Shared // a budget of all gateways of this host, besides

	// Control reads a control file of an attempt: [run.Workspace.ReadControlFrom]. A send posts the script that is there.
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

	accounts slurm.AccountBook // what users may charge

	queued atomic.Int64 // jobs to expect in the next answer about the queue
}

// client makes calls.
type client struct {
	pool    *pool
	host    string // of requests
	user    string
	cluster string
	tokens  *tokens
	version negotiation
	budget  *slurm.Budget
	epoch   atomic.Int64 // of proofs
}

var (
	_ run.Renderer  = (*Slurm)(nil)
	_ run.Submitter = (*Slurm)(nil)
	_ run.Canceller = (*Slurm)(nil)
)

// New makes the transport. Nothing is connected yet.
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

// Budget is how much of the site's budget of RPCs is used.
func (s *Slurm) Budget() run.Budget { return s.budget.State() }

// Pace waits until the budget has the RPCs of a send left, and takes them; run.Parts has the contract.
func (s *Slurm) Pace(ctx context.Context, first bool) error { return s.budget.Pace(ctx, first) }
