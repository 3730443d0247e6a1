package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
)

// Slurm cancels a job that must not be requeued if its Prolog fails on a node, and drains the node. Slurm then shows
// the same state as for a job that a person has cancelled, so the drain of the node distinguishes the two, and
// accounting if it names a person.

// nodesSeen holds the newest answer about nodes that accept no jobs.
type nodesSeen struct {
	mu    sync.Mutex
	asked time.Time // before Slurm was queried
	list  map[string]Unusable
}

// unusable returns the nodes that accept no jobs, by an answer not older than at: many jobs end on a node together, and
// one query serves them all.
func (e *Engine) unusable(ctx context.Context, at time.Time) (map[string]Unusable, error) {
	e.nodes.mu.Lock()
	defer e.nodes.mu.Unlock()
	if e.nodes.list != nil && !e.nodes.asked.Before(at) {
		return e.nodes.list, nil
	}
	asked := e.Now()
	list, err := e.Queue.Unusable(ctx)
	if err == nil {
		e.nodes.asked, e.nodes.list = asked, list
	}
	return list, err
}

// cancelledUnstarted judges a job that was cancelled in Slurm, not through slurmgate, and never took the claim, which
// the gateway has now. While Slurm does not answer about the node it returns an error, for as long as late files are
// waited for.
func (e *Engine) cancelledUnstarted(ctx context.Context, v View) (d verdict, err error) {
	d = verdict{ending: EndedCancelled, detail: "the job was cancelled in Slurm, not through slurmgate, before its script started"}
	a := v.Attempt
	if a.Node == "" || a.ObservedAt == nil {
		return d, nil
	}
	nodes, err := e.unusable(ctx, *a.ObservedAt)
	node, is := nodes[a.Node]
	switch {
	case fault.Is(err, fault.NotFound):
		d.detail += fmt.Sprintf(" on node %s, whose state cannot be seen here", a.Node)
		return d, nil
	case err != nil && e.waitedEnough(v):
		d.detail += fmt.Sprintf(" on node %s, which Slurm could not be asked about: %s", a.Node, fault.Prose(err))
		return d, nil
	case err != nil:
		return d, fault.Wrap(fault.Transport, fault.CodeOf(err), d.detail+", and whether its node "+a.Node+" is at fault is not known",
			err).WithNext("the gateway asks Slurm again by itself")
	case !is:
		d.detail += fmt.Sprintf(" on node %s, which Slurm has not drained", a.Node)
		return d, nil
	}
	says := fmt.Sprintf("node %s, which is %s in Slurm (%s)", a.Node, node.State, node.Why)
	if !node.failedProlog(a) {
		d.detail += " on " + says + ", not for a Prolog that failed for this job"
		return d, nil
	}
	if by := e.cancelledBy(ctx, v); !slices.Contains(slurmItself, by) {
		d.detail += " on " + says + "; accounting says that user " + by + " cancelled it"
		return d, nil
	}
	return verdict{ending: EndedProlog, detail: "Slurm's Prolog failed on " + says + "; the job's script never started"}, nil
}

// slurmItself lists the users that accounting names for a job whose Prolog failed; empty: accounting names none.
var slurmItself = []string{"", "0", "root"}

// drainSlack is how far the time of a drain may be from the job's start or end, which Slurm records separately.
const drainSlack = time.Minute

// failedProlog reports whether Slurm has drained the node for its Prolog while it started the job: an earlier drain
// would have kept the job from the node, and a later one is about another job.
func (n Unusable) failedProlog(a Attempt) bool {
	return strings.Contains(strings.ToLower(n.Why), "prolog") && strings.Contains(strings.ToLower(n.State), "drain") &&
		(n.Since == nil || (a.StartedAt == nil || n.Since.After(a.StartedAt.Add(-drainSlack))) &&
			(a.EndedAt == nil || n.Since.Before(a.EndedAt.Add(drainSlack))))
}

// cancelledBy returns the user who cancelled the run's job according to accounting; empty: accounting names none, or
// does not answer.
func (e *Engine) cancelledBy(ctx context.Context, v View) string {
	records, err := e.Accounting.Records(ctx, v.Submission.CreatedAt.Add(-time.Hour), keyOf(v))
	if err != nil {
		return ""
	}
	if j, one := pick(v, index(records).jobsOf(v, e.userOf(v.Run.ExecutedAs))); one {
		return j.By
	}
	return ""
}
