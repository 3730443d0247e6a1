package run

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Snapshot is the state of a cluster as Slurm's commands or slurmrestd show it. Each part has its own age.
type Snapshot struct {
	Config     Asked[ClusterConfig]
	Partitions Asked[[]Partition] // in Slurm's order
	Nodes      Asked[[]Node]
	QOS        Asked[[]QOS]
	Accounts   Asked[map[string]UserAccounts] // by user
}

// Asked is an answer, with when it was requested and when it arrived by this host's clock.
type Asked[T any] struct {
	Value        T
	At, Answered time.Time // zero: there is no answer
}

// Ask calls ask and records the times.
func Ask[T any](ctx context.Context, ask func(context.Context) (T, error)) (Asked[T], error) {
	at := time.Now()
	v, err := ask(ctx)
	if err != nil {
		return Asked[T]{}, err
	}
	return Asked[T]{v, at, time.Now()}, nil
}

// ClusterConfig is the configuration that slurmctld shows.
type ClusterConfig struct {
	Clock  time.Time         // slurmctld's time when it answered; zero: not shown
	Values map[string]string // by the names of slurm.conf(5); slurmrestd shows few
}

// Name returns the cluster's name; empty: it is not shown.
func (c ClusterConfig) Name() string { return c.Values["ClusterName"] }

// Seconds parses a value such as "300 sec"; 0 for anything else.
func (c ClusterConfig) Seconds(name string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSuffix(c.Values[name], " sec"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// Database reports whether the cluster has slurmdbd.
func (c ClusterConfig) Database() bool {
	return strings.HasSuffix(c.Values["AccountingStorageType"], "/slurmdbd")
}

// Enforces reports whether jobs need an association.
func (c ClusterConfig) Enforces() bool {
	return strings.Contains(c.Values["AccountingStorageEnforce"], "associations")
}

// Partition is a partition as the site's Slurm shows it. The fields about nodes are 0 before [AddNodes].
type Partition struct {
	Name           string
	Default        bool
	State          string   // UP, DOWN, DRAIN or INACTIVE
	Hidden         bool     // also true for partitions of root alone
	MaxSeconds     int64    // of a job; 0: no limit
	MaxMemMB       int      // MiB that a job may have on a node; 0: no limit
	Accounts       []string // the only ones that jobs may charge; nil: any
	DeniedAccounts []string
	Groups         []string // the only ones whose members may use it; none: any

	Nodes    int
	States   map[string]int // nodes by state, without the marks of Slurm: idle, mixed, down, drained, …
	CPUs     int            // of its largest node
	MemMB    int            // MiB, of its largest node; less where the partition allows less
	GPUs     int            // of the node that has most
	GPUTypes []string
}

// Up reports whether jobs of the partition start.
func (p Partition) Up() bool { return p.State == "UP" }

// Open reports whether jobs that charge the account may use the partition. It ignores Groups.
func (p Partition) Open(account string) bool {
	return (p.Accounts == nil || slices.Contains(p.Accounts, account)) && !slices.Contains(p.DeniedAccounts, account)
}

// Usable returns the number of nodes that are neither down nor drained.
func (p Partition) Usable() int {
	return p.Nodes - p.In("down", "drained", "draining", "drain", "fail", "failing", "error", "unknown", "inval", "future")
}

// In returns the number of nodes in the states.
func (p Partition) In(states ...string) (n int) {
	for _, state := range states {
		n += p.States[state]
	}
	return n
}

// Node is a node as a member of one of its partitions.
type Node struct {
	Name      string
	Partition string
	State     string     // sinfo's long form, e.g. idle, mixed, drained*
	Reason    string     // why it is down or drained; "none"
	Since     *time.Time // when the reason was given; nil: unknown
	CPUs      int
	MemMB     int // MiB
	GPUs      int
	GPUTypes  []string
	Arch      string // in Go's spelling, e.g. amd64; empty: unknown, as from sinfo, which does not show it
}

// PlainState returns the node's state without Slurm's marks.
func (n Node) PlainState() string { return strings.TrimRight(n.State, "*~#!%$@^-+") }

// Takes reports whether the node accepts jobs now, or will when there is room.
func (n Node) Takes() bool {
	return !strings.HasSuffix(n.State, "*") && slices.Contains([]string{"idle", "mixed", "allocated", "completing", "planned"}, n.PlainState())
}

// UnusableNodes returns the nodes of the list that are drained or down, by name.
func UnusableNodes(list []Node) map[string]Unusable {
	unusable := map[string]Unusable{}
	for _, n := range list {
		state := n.PlainState()
		if strings.HasPrefix(state, "drain") || strings.HasPrefix(state, "fail") || state == "down" {
			unusable[n.Name] = Unusable{State: n.State, Why: n.Reason, Since: n.Since}
		}
	}
	return unusable
}

// AddNodes returns the partitions with the figures of their nodes.
func AddNodes(list []Partition, nodes []Node) []Partition {
	list = slices.Clone(list)
	for i := range list {
		p := &list[i]
		p.States = map[string]int{}
		for _, n := range nodes {
			if n.Partition != p.Name {
				continue
			}
			mem := n.MemMB
			if p.MaxMemMB > 0 {
				mem = min(mem, p.MaxMemMB)
			}
			p.Nodes++
			p.States[n.PlainState()]++
			p.CPUs, p.MemMB, p.GPUs = max(p.CPUs, n.CPUs), max(p.MemMB, mem), max(p.GPUs, n.GPUs)
			for _, kind := range n.GPUTypes {
				if !slices.Contains(p.GPUTypes, kind) {
					p.GPUTypes = append(p.GPUTypes, kind)
				}
			}
		}
	}
	return list
}

// QOS is a quality of service, with the least of its limits on jobs that one user may have queued or running.
type QOS struct {
	Name   string
	Submit *int // nil: no limit
}

// UserAccounts has the accounts that one user may charge on a cluster, by associations in Slurm.
type UserAccounts struct {
	Default  string    // the account of jobs that name none; empty: the user has none
	Accounts []Account // the default first; none: the user has no association
}

// Account is an account that a user may charge.
type Account struct {
	Name       string
	Partitions []string // the only ones; nil: in all of them
	QOS        []string
	Submit     *int // jobs that may be queued or running; nil: no limit
}

// Account returns the account of that name; nil: the user may not charge it.
func (u UserAccounts) Account(name string) *Account {
	i := slices.IndexFunc(u.Accounts, func(a Account) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &u.Accounts[i]
}

// Association is one row of Slurm's accounting database: an account may have several for a user, one for each partition.
type Association struct {
	User, Account string
	Default       bool     // the account is the user's default
	Partition     string   // the only one; empty: all
	QOS           []string // those it may use
	Submit        *int     // jobs that may be queued or running; nil: no limit
}

// ByUser collects the accounts of each user. It ignores rows without a user or an account.
func ByUser(rows []Association) map[string]UserAccounts {
	users := map[string]UserAccounts{}
	for _, r := range rows {
		if r.User == "" || r.Account == "" {
			continue
		}
		u := users[r.User]
		u.add(r)
		users[r.User] = u
	}
	return users
}

func (u *UserAccounts) add(r Association) {
	a := u.Account(r.Account)
	switch {
	case a != nil:
	case r.Default:
		u.Default = r.Account
		u.Accounts = slices.Insert(u.Accounts, 0, Account{Name: r.Account, Partitions: []string{}})
		a = &u.Accounts[0]
	default:
		u.Accounts = append(u.Accounts, Account{Name: r.Account, Partitions: []string{}})
		a = &u.Accounts[len(u.Accounts)-1]
	}
	switch {
	case r.Partition == "":
		a.Partitions = nil // applies to all partitions
	case a.Partitions != nil:
		a.Partitions = append(a.Partitions, r.Partition)
	}
	for _, q := range r.QOS {
		if q != "" && !slices.Contains(a.QOS, q) {
			a.QOS = append(a.QOS, q)
		}
	}
	a.Submit = Least(a.Submit, r.Submit)
}

// Least returns the smallest limit; nil means no limit.
func Least(limits ...*int) (n *int) {
	for _, l := range limits {
		if l != nil && (n == nil || *l < *n) {
			n = l
		}
	}
	return n
}
