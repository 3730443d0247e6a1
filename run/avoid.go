package run

import (
	"regexp"
	"slices"
	"time"
)

// A node at which an attempt failed by the node's own fault is not used by the attempts that follow.

// Avoided is a node that an attempt does not use, and why.
type Avoided struct {
	Node    string    `json:"node"`
	Fault   Ending    `json:"fault"` // how the earlier attempt ended there
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
}

// Bounds of the list: the newest nodes are in it, as long as it is likely that they are still at fault.
const (
	mostAvoided = 8
	avoidFor    = 24 * time.Hour
)

// nodeName is the form of a node's name that is passed to Slurm. What a job's files say of it is not trusted.
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

// exclude are the names of the nodes an attempt does not use.
func (a Attempt) exclude() (names []string) {
	for _, n := range a.Avoid {
		names = append(names, n.Node)
	}
	return names
}

// noOtherNode are Slurm's codes for a job that none of the nodes left may run.
var noOtherNode = []string{"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
	"ESLURM_INVALID_NODE_NAME"}

// refusal is the verdict on an attempt whose job Slurm refused for good. Where that is because of the nodes that it avoids, the run ends
// with the fault of the last of them.
func refusal(a Attempt, res SendResult) verdict {
	d := verdict{ending: EndedRejected, reason: string(EndedRejected), detail: "Slurm refused the job (" + res.Code + "): " + res.Text}
	if n := len(a.Avoid); n > 0 && slices.Contains(noOtherNode, res.Code) {
		last := a.Avoid[n-1]
		d.reason, d.detail = string(last.Fault), explainedAt(last)+"; Slurm has no other node for the job. Repair the node, then retry the run"
	}
	return d
}

// explainedAt says of a node what was wrong there.
func explainedAt(a Avoided) string {
	return "node " + a.Node + ": " + string(a.Fault)
}
