package app

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/site"
)

// Quotas bound what projects keep. What a job makes counts and is always kept; a project over its quota gets no new imports and no new
// runs.
type Quotas struct {
	limits site.Limits
	use    func(ctx context.Context, projectID string) (ledger.Use, error)

	mu       sync.Mutex
	projects map[string]*projectImports // those with imports in progress
}

// projectImports are a project's imports in progress.
type projectImports struct {
	imports int // of them
	mu      sync.Mutex
	bytes   int64 // that they have taken
	counted int64 // artifacts that they have taken
}

// Quotas are the gateway's.
func (g *Gateway) Quotas() *Quotas {
	g.ready.Do(func() { g.quotas.limits, g.quotas.use = g.Site.Limits, g.Ledger.Use })
	return &g.quotas
}

// quotaOf are the limits of a project; 0: none.
func (q *Quotas) quotaOf(projectID string) (bytes, imports int64) {
	bytes, imports = int64(q.limits.ProjectQuotaMB)<<20, int64(q.limits.ProjectImports)
	for _, p := range q.limits.Projects {
		if plan.ProjectOf(p.Project) == projectID {
			bytes = int64(p.QuotaMB) << 20
			imports = cmp.Or(int64(p.Imports), imports)
		}
	}
	return bytes, imports
}

// Room refuses a new run of a project that is over its quota.
func (q *Quotas) Room(ctx context.Context, projectID string) error {
	limit, _ := q.quotaOf(projectID)
	if limit == 0 {
		return nil
	}
	use, err := q.use(ctx, projectID)
	if err == nil && use.Bytes >= limit {
		err = overQuota(use, limit, "a new run")
	}
	return err
}

// importing begins an import into a project; end ends it, when its artifact is recorded or given up.
func (q *Quotas) importing(projectID string) (a *allowance, end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.projects[projectID]
	if p == nil {
		p = &projectImports{}
		if q.projects == nil {
			q.projects = map[string]*projectImports{}
		}
		q.projects[projectID] = p
	}
	p.imports++
	a = &allowance{quotas: q, project: projectID, all: p}
	return a, sync.OnceFunc(func() {
		p.mu.Lock()
		p.bytes -= a.bytes
		p.counted -= a.counted
		p.mu.Unlock()
		q.mu.Lock()
		defer q.mu.Unlock()
		if p.imports--; p.imports == 0 {
			delete(q.projects, projectID)
		}
	})
}

// allowance is what one import may take: an [artifact.Allowance].
type allowance struct {
	quotas         *Quotas
	project        string
	all            *projectImports
	bytes, counted int64 // taken
}

// Take implements [artifact.Allowance].
func (a *allowance) Take(ctx context.Context, least, want int64) (int64, error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	use, err := a.quotas.use(ctx, a.project)
	if err != nil {
		return 0, err
	}
	limit, imports := a.quotas.quotaOf(a.project)
	if a.counted == 0 {
		if imports > 0 && use.Imports+a.all.counted >= imports {
			return 0, fault.New(fault.Policy, "artifact.import", "quota_exceeded",
				fmt.Sprintf("the project keeps %d imported artifacts of at most %d", use.Imports, imports)).WithNext(makeRoom)
		}
		a.counted++
		a.all.counted++
	}
	if limit > 0 {
		left := limit - use.Bytes - a.all.bytes
		if left < least || left < 0 {
			use.Bytes += a.all.bytes
			return 0, overQuota(use, limit, fmt.Sprintf("an import of %d bytes more", least))
		}
		want = min(want, left)
	}
	a.bytes += want
	a.all.bytes += want
	return want, nil
}

const makeRoom = "remove imports that no run uses (gc, retention.import_days in the site file), use another project, or ask the " +
	"administrator " +
	"for more (limits in the site file)"

func overQuota(use ledger.Use, limit int64, what string) error {
	return fault.New(fault.Policy, "quota", "quota_exceeded",
		fmt.Sprintf("the project keeps %d of %d MiB, imports in progress included; there is no room for %s", use.Bytes>>20, limit>>20, what)).
		WithNext(makeRoom)
}
