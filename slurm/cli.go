package slurm

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"slurmgate/fault"
	"slurmgate/run"
)

// CLI drives Slurm through its own commands, on this machine as the user the gateway runs as, or on a login
// node over SSH. It is safe for concurrent use.
type CLI struct {
	*Renderer
	cfg    Config
	home   string // HOME of sbatch and the queries
	runner Runner
	budget *Budget

	service *CLI // the service's transport where this is a user's, nil otherwise; see As

	identity identity
	accounts AccountBook // cache of what users may charge

	queued   atomic.Int64 // jobs to expect in the next answer of squeue
	harmless knownLines

	fields  known[[]string] // the columns that sacct has
	scancel known[[2]int]   // the release of scancel
	config  lastConfig

	farState struct {
		mu       sync.Mutex
		of, text string // the state of the deciding files on this host, and that state as far.sh prints it
	}
}

// known caches a value that Slurm is asked for once.
type known[T any] struct {
	mu    sync.Mutex
	value *T
}

// get returns the cached value, or asks for it. Errors are not cached.
func (k *known[T]) get(ask func() (T, error)) (v T, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.value != nil {
		return *k.value, nil
	}
	if v, err = ask(); err == nil {
		k.value = &v
	}
	return v, err
}

func (k *known[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.value = nil
}

var (
	_ run.Renderer   = (*Renderer)(nil)
	_ run.Submitter  = (*CLI)(nil)
	_ run.Queue      = (*CLI)(nil)
	_ run.Accounting = (*CLI)(nil)
	_ run.Canceller  = (*CLI)(nil)
)

// NewCLI returns the transport and, for commands on this machine, creates the folder for its locks. Without LocksDir
// they can only query. NewCLI itself asks Slurm nothing.
func NewCLI(c Config) (*CLI, error) {
	if c.Over != nil {
		return newFar(c)
	}
	if err := os.MkdirAll(c.LocksDir, 0o700); err != nil && c.LocksDir != "" {
		return nil, fault.Wrap(fault.Internal, "locks_dir", fmt.Sprintf("the lock folder %s cannot be created", c.LocksDir), err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return &CLI{Renderer: NewRenderer(c.Script), cfg: c, home: home, runner: processes{}, budget: NewBudget(c.RPCPerMinute, c.Shared)}, nil
}

// Budget returns how much of the site's budget of RPCs is used.
func (c *CLI) Budget() run.Budget { return c.budget.State() }
