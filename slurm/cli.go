package slurm

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// CLI drives Slurm through its own commands, as the user the gateway runs as. It is safe for concurrent use.
type CLI struct {
	*Renderer
	cfg    Config
	home   string // HOME of sbatch and the queries
	runner Runner
	budget *budget

	queued atomic.Int64 // jobs to expect in the next answer of squeue

	fieldsMu sync.Mutex
	fields   []string // the columns asked of sacct, once known

	scancelMu sync.Mutex
	scancel   [2]int // release of scancel, once known

	timeoutMu sync.Mutex
	timeout   time.Duration // MessageTimeout, once known
}

var (
	_ run.Renderer   = (*Renderer)(nil)
	_ run.Submitter  = (*CLI)(nil)
	_ run.Queue      = (*CLI)(nil)
	_ run.Accounting = (*CLI)(nil)
	_ run.Canceller  = (*CLI)(nil)
)

// NewCLI makes the transport; every rule the configuration breaks is reported at once. The folder for locks is
// made when it is missing. Nothing is asked of Slurm.
func NewCLI(c Config) (*CLI, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	r, err := NewRenderer(c.Script)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.LocksDir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Internal, "slurm.NewCLI", "locks_dir", fmt.Sprintf("the lock folder %s cannot be created", c.LocksDir), err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return &CLI{Renderer: r, cfg: c, home: home, runner: processes{}, budget: newBudget(c.Budget)}, nil
}
