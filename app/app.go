// Package app has the gateway's own operations: the tools of the registry that come from no toolpack, and the tools
// of toolpacks over the lifecycle. Each is called through the gate only.
package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/secrets"
	"slurmgate/site"
	"slurmgate/toolpack"
	"slurmgate/worker"
)

// Gateway holds what the operations work on. The command fills it in while it opens the parts, then calls
// [Gateway.OpenGate].
type Gateway struct {
	Site     *site.Site
	Domain   *toolpack.Domain
	Policy   *policy.Policy
	Ledger   *ledger.Ledger
	Store    *artifact.Store
	Importer *artifact.Importer
	Pictures *artifact.Pictures
	Sites    *run.Sites
	Workers  *worker.Client
	Log      *slog.Logger
	Secrets  *secrets.Scanner // with the site's own patterns; nil: without
	Host     Host             // what the operations on files need; a gateway does not need it

	Script  string                                                               // version of the job script that plans are for
	Journal func(next gate.Journal, known func(toolID string) bool) gate.Journal // between the gate and the ledger; nil: nothing
	Spill   string                                                               // folder of records for the ledger; "": no folder
	Words   gate.Words                                                           // of the gate
	Entry   func(*gate.Gate, gate.Tool) any                                      // what lists of tools show of one tool

	// Associations returns what a user of this host may charge on a cluster by the associations in Slurm. It is
	// called only where slurm.accounts is associations. If Slurm's answer is not known the error is a retryable
	// Transport fault.
	Associations func(ctx context.Context, site, user string) (run.UserAccounts, error)

	// UnixUser returns the Unix user whom the principal's jobs run as on a cluster; empty where they run as the
	// gateway's own user. A nil UnixUser: jobs run as the gateway's own user everywhere. Errors: those of
	// [access.UnixUsers.Of].
	UnixUser func(ctx context.Context, site string, p gate.Principal) (string, error)

	// ReadAs opens files with the rights of a Unix user on a cluster, over that user's login, until f returns. It is
	// called only where UnixUser names a user.
	ReadAs func(ctx context.Context, site, user string, f func(artifact.OpenAs) error) error

	// FindAs searches folders for files whose name contains a text, as [artifact.Importer.Find] does, with the rights
	// of a Unix user on a cluster, over that user's login. It is called only where UnixUser names a user.
	FindAs func(ctx context.Context, site, user string, folders []string, part string) (found []artifact.Found, whole bool, err error)

	LastBackup func() *time.Time // returns the time of the last backup; nil: not known

	PlaceScript []byte    // hashes files and directories in place, in jobs
	FarPlaces   FarPlaces // reads files in place on clusters whose filesystem is not here

	// ProjectUser finds a user of this host who has a project for that user alone. Errors: those of
	// [access.Access.ProjectUser].
	ProjectUser func(ctx context.Context, name string) (gate.ProjectUser, error)

	// Person returns the Unix user to whom a principal is mapped, or an empty text. A nil Person maps none. Errors:
	// as [access.Access.Person].
	Person func(ctx context.Context, p gate.Principal) (string, error)

	Revoked func(gate.Principal) // is called with the principal of a revoked token; may be nil

	// Again returns a principal with its current rights, for rows of a batch that it asked for earlier. A nil Again:
	// the rights that it had then. Errors: those of [access.Access.Again].
	Again func(ctx context.Context, p gate.Principal) (gate.Principal, error)

	Gate *gate.Gate // set by OpenGate

	fileKey   []byte // of handles
	handles   handles
	inPlace   map[string]*artifact.Importer // the folders of files in place, by site whose filesystem is here
	offered   string                        // hash of all that lists of tools show
	sweeping  sync.Mutex                    // held by the running gc
	draining  sync.Mutex                    // held while sites are drained or resumed
	verifying sync.Mutex                    // held while all artifacts are verified
	supposed  supposed
	transfers transfers
	loop      loop
	quotas    Quotas
	caps      *Caps
	capsRead  sync.Once
	ready     sync.Once // quotas are
}
