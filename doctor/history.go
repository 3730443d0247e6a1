package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/site"
)

// NodeFault counts the runs that one fault of a node ended there.
type NodeFault struct {
	Node, Fault string
	Count       int
	Last        time.Time
	RunID       string // of the last one
}

// History reads from the ledger the faults of nodes that a cluster's runs met since a time; none where there is no ledger.
type History func(ctx context.Context, s *site.Site, since time.Time) ([]NodeFault, error)

// lately is the time that the check of the ledger covers, and mostNamed the number of nodes it names.
const (
	lately    = 24 * time.Hour
	mostNamed = 20
)

func historyChecks() []Check {
	return []Check{{
		Code: "node_history", Proves: "No run ended by a node's fault during the last 24 hours.", Where: Gateway, Cluster: true,
		Needs:  []string{ledgerCode},
		Remedy: "look at the node: " + command(fault.Do("doctor", "node", "NAME")), Look: history,
	}}
}

// history names the nodes, one result for each.
func history(ctx context.Context, x *Exam) (results []Result) {
	if x.NodeFaults == nil {
		return unknown("", "this program cannot read the ledger's attempts")
	}
	list, err := x.NodeFaults(ctx, x.Cluster, time.Now().Add(-lately))
	if err != nil {
		return failed("", err)
	}
	var order []string
	said := map[string][]string{}
	for _, f := range list {
		if said[f.Node] == nil {
			order = append(order, f.Node)
		}
		said[f.Node] = append(said[f.Node], fmt.Sprintf("%s %s, last at %s (%s)", plural(f.Count, "run"), f.Fault,
			f.Last.UTC().Format("15:04 MST"), f.RunID))
	}
	for i, node := range order {
		if i == mostNamed {
			return append(results, warning("", "%d more nodes", len(order)-i)...)
		}
		results = append(results, warning("look at the node: "+command(fault.Do("doctor", "node", node)), "node %s: %s", node,
			strings.Join(said[node], "; "))...)
	}
	if len(results) == 0 {
		return ok("no run ended by a node's fault")
	}
	return results
}
