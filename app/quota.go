package app

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// Quotas limit what projects and callers store. The outputs of jobs count and are always stored; a project or caller
// over its quota gets no new imports and no new runs.
type Quotas struct {
	limits    site.Limits
	use       func(ctx context.Context, projectID string) (ledger.Use, error)
	caller    func(id string) bound // MiB that a caller may store
	callerUse func(ctx context.Context, id string) (ledger.CallerUse, error)

	mu      sync.Mutex
	imports map[run.Share]*imports // in progress: of each project, and of each caller in all projects
}

// imports counts the imports of a project or a caller that are in progress.
type imports struct {
	number  int // of them
	mu      sync.Mutex
	bytes   int64 // reserved by them
	counted int64 // artifacts reserved by them
}

// Quotas returns the gateway's quotas.
func (g *Gateway) Quotas() *Quotas {
	g.ready.Do(func() {
		g.quotas.limits, g.quotas.use = g.Site.Limits, g.Ledger.Use
		g.quotas.caller, g.quotas.callerUse = g.Caps().callerQuota, g.Ledger.CallerUse
	})
	return &g.quotas
}

// quotaOf returns the limits of a project; 0: no limit.
func (q *Quotas) quotaOf(projectID string) (bytes, imports int64) {
	bytes, imports = int64(q.limits.ProjectQuotaMB)<<20, int64(q.limits.ProjectImports)
	for _, p := range q.limits.Projects {
		if plan.ProjectOf(p.Project) == limitsOf(projectID) {
			bytes = int64(p.QuotaMB) << 20
			imports = cmp.Or(int64(p.Imports), imports)
		}
	}
	return bytes, imports
}

// Room refuses a new run whose project or caller is over its quota. It is [run.Parts.Room].
func (q *Quotas) Room(ctx context.Context, of run.Share) error {
	const what = "a new run"
	if limit, _ := q.quotaOf(of.Project); limit > 0 {
		use, err := q.use(ctx, of.Project)
		if err != nil {
			return err
		}
		if use.Bytes >= limit {
			return overQuota(use.Bytes, limit, what)
		}
	}
	quota := q.callerQuota(of.Caller)
	if quota.most == 0 {
		return nil
	}
	use, err := q.callerUse(ctx, of.Caller)
	if err == nil && use.Bytes >= quota.bytes() {
		err = callerOverQuota(use.Bytes, quota, what)
	}
	return err
}

func (q *Quotas) callerQuota(id string) bound {
	if id == "" || q.caller == nil {
		return bound{}
	}
	return q.caller(id)
}

// bytes returns a bound in MiB as bytes.
func (b bound) bytes() int64 { return int64(b.most) << 20 }

// importing begins an import; end ends it, when its artifact is recorded or the import has failed.
func (q *Quotas) importing(of run.Share) (a *allowance, end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a = &allowance{quotas: q, of: of, project: q.join(run.Share{Project: of.Project}), caller: q.join(run.Share{Caller: of.Caller})}
	return a, sync.OnceFunc(func() {
		q.leave(run.Share{Project: of.Project}, a.project, a)
		q.leave(run.Share{Caller: of.Caller}, a.caller, a)
	})
}

func (q *Quotas) join(of run.Share) *imports {
	one := q.imports[of]
	if one == nil {
		one = &imports{}
		if q.imports == nil {
			q.imports = map[run.Share]*imports{}
		}
		q.imports[of] = one
	}
	one.number++
	return one
}

func (q *Quotas) leave(of run.Share, one *imports, a *allowance) {
	one.mu.Lock()
	one.bytes -= a.bytes
	one.counted -= a.counted
	one.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.number--; one.number == 0 {
		delete(q.imports, of)
	}
}

// allowance limits the bytes of one import: an [artifact.Allowance].
type allowance struct {
	quotas          *Quotas
	of              run.Share
	project, caller *imports
	bytes, counted  int64 // reserved
}

// Take implements [artifact.Allowance].
func (a *allowance) Take(ctx context.Context, least, want int64) (int64, error) {
	a.project.mu.Lock() // always before the caller's
	defer a.project.mu.Unlock()
	a.caller.mu.Lock()
	defer a.caller.mu.Unlock()
	want, err := a.ofProject(ctx, least, want)
	if err == nil {
		want, err = a.ofCaller(ctx, least, want)
	}
	if err != nil {
		return 0, err
	}
	for _, one := range []*imports{a.project, a.caller} {
		one.bytes += want
		if a.counted == 0 {
			one.counted++
		}
	}
	a.bytes += want
	a.counted = 1
	return want, nil
}

// ofProject returns how much of what an import wants the project's quota allows.
func (a *allowance) ofProject(ctx context.Context, least, want int64) (int64, error) {
	use, err := a.quotas.use(ctx, a.of.Project)
	if err != nil {
		return 0, err
	}
	limit, imports := a.quotas.quotaOf(a.of.Project)
	if a.counted == 0 && imports > 0 && use.Imports+a.project.counted >= imports {
		return 0, fault.New(fault.Policy, "quota_exceeded",
			fmt.Sprintf("the project keeps %d imported artifacts of at most %d", use.Imports, imports)).WithNext(makeRoom)
	}
	if limit == 0 {
		return want, nil
	}
	used := use.Bytes + a.project.bytes
	if left := limit - used; left >= least && left >= 0 {
		return min(want, left), nil
	}
	return 0, overQuota(used, limit, more(least))
}

// ofCaller returns how much of that the caller's quota allows.
func (a *allowance) ofCaller(ctx context.Context, least, want int64) (int64, error) {
	quota := a.quotas.callerQuota(a.of.Caller)
	if quota.most == 0 {
		return want, nil
	}
	use, err := a.quotas.callerUse(ctx, a.of.Caller)
	if err != nil {
		return 0, err
	}
	used := use.Bytes + a.caller.bytes
	if left := quota.bytes() - used; left >= least && left >= 0 {
		return min(want, left), nil
	}
	return 0, callerOverQuota(used, quota, more(least))
}

func more(bytes int64) string { return fmt.Sprintf("an import of %d bytes more", bytes) }

const removeImports = "remove imports that no run uses (gc, retention.import_days in the site file), "

const makeRoom = removeImports + "use another project, or ask the administrator for more (limits in the site file)"

func overQuota(used, limit int64, what string) error {
	return fault.New(fault.Policy, "quota_exceeded",
		fmt.Sprintf("the project keeps %d of %d MiB, imports in progress included; there is no room for %s", used>>20, limit>>20, what)).
		WithNext(makeRoom)
}

func callerOverQuota(used int64, quota bound, what string) error {
	msg := fmt.Sprintf("the caller keeps %d of %d MiB in all projects, imports in progress included; there is no room for %s", used>>20,
		quota.most, what)
	return &fault.Error{Kind: fault.Policy, Code: "quota_exceeded", Msg: msg,
		Problems: []fault.Problem{{Code: "CAP-STORED-BYTES", Field: quota.field, Rule: fmt.Sprintf("at most %d MiB in artifacts", quota.most),
			Msg: fmt.Sprintf("the caller keeps %d MiB in artifacts", used>>20)}},
		Next: removeImports + "or ask the administrator to raise " + quota.field + " in the site file"}
}
