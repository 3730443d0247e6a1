package run

import (
	"regexp"
	"slices"
	"time"
)

// An attempt does not use a node at which an earlier attempt failed by the node's own fault.

// Avoided is a node that an attempt does not use, and why.
type Avoided struct {
	Node    string    `json:"node"`
	Fault   Ending    `json:"fault"` // how the earlier attempt ended there
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
}

// Bounds of the list: it keeps the newest nodes, for as long as they are probably still at fault.
const (
	mostAvoided = 8
	avoidFor    = 24 * time.Hour
)

// nodeName matches names of nodes that are passed to Slurm. A name from a job's files is not trusted.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// avoidAfter lists the nodes that the attempt after old does not use.
func avoidAfter(old Attempt, now time.Time) []Avoided {
	if old.Ending == EndedRejected && len(old.Avoid) > 0 {
		return nil // Slurm has no other node: the same ones are tried again
	}
	list := slices.DeleteFunc(slices.Clone(old.Avoid), func(a Avoided) bool { return a.Node == old.Node || now.Sub(a.At) > avoidFor })
	if old.Ending.NodeFault() && old.SlurmState != "NODE_FAIL" && old.SlurmState != "BOOT_FAIL" && nodeName.MatchString(old.Node) {
		list = append(list, Avoided{Node: old.Node, Fault: old.Ending, Attempt: old.N, At: now.UTC().Truncate(time.Second)})
	}
	return slices.Clip(list[max(0, len(list)-mostAvoided):])
}

// exclude returns the names of the nodes that the attempt does not use.
func (a Attempt) exclude() (names []string) {
	for _, n := range a.Avoid {
		names = append(names, n.Node)
	}
	return names
}

// noOtherNode lists Slurm's error codes for a job that none of the remaining nodes may run.
var noOtherNode = []string{"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
	"ESLURM_INVALID_NODE_NAME"}

// refusal returns the verdict on an attempt whose job Slurm refused for good. If Slurm refused it because of the
// avoided nodes, the run ends with the fault of the newest of them.
func refusal(a Attempt, res SendResult) verdict {
	d := verdict{ending: EndedRejected, reason: string(EndedRejected), detail: "Slurm refused the job (" + res.Code + "): " + res.Text}
	if n := len(a.Avoid); n > 0 && slices.Contains(noOtherNode, res.Code) {
		last := a.Avoid[n-1]
		d.reason, d.detail = string(last.Fault), explainedAt(last)+"; Slurm has no other node for the job. Repair the node, then retry the run"
	}
	return d
}

// explainedAt describes what was wrong at a node.
func explainedAt(a Avoided) string {
	return "node " + a.Node + ": " + string(a.Fault)
}
