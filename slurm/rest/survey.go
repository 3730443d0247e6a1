package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
)

// What the calls of a survey cost in RPCs: at most what sdiag counted.
const (
	rpcLook  = 1
	rpcNodes = 2 // slurmrestd asks for the partitions too
)

// maxSurvey bounds an answer about all partitions, nodes or associations, in bytes.
const maxSurvey = 1 << 30

// NotShown is the code of the NotFound fault for what slurmrestd shows in no version.
const NotShown = "rest_not_shown"

func notShown(what, instead string) error {
	return fault.New(fault.NotFound, NotShown, "slurmrestd does not show "+what).WithNext(instead)
}

// value is a number in any of the versions' forms.
type value number

// UnmarshalJSON implements json.Unmarshaler.
func (v *value) UnmarshalJSON(text []byte) error {
	r := record{Decoder: newDecoder(bytes.NewReader(text))}
	n, err := r.number()
	if err == nil && r.why != "" {
		err = errors.New(r.why)
	}
	*v = value(n)
	return err
}

// limit is the number, nil for none.
func (v value) limit() *int {
	if !v.set || v.n < 0 || v.n > 1<<31 {
		return nil
	}
	return new(int(v.n))
}

// words are several words; up to v0.0.39 often one.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(text []byte) error {
	*w = nil
	if text[0] != '"' {
		return json.Unmarshal(text, (*[]string)(w))
	}
	var one string
	err := json.Unmarshal(text, &one)
	if one != "" {
		*w = strings.Split(one, ",")
	}
	return err
}

// partition is what the versions show of a partition, the first form of each the one since v0.0.40.
type partition struct {
	Name      string         `json:"name"`
	Flags     words          `json:"flags"` // v0.0.38 and since v0.0.45
	Nodes     jsontext.Value `json:"nodes"` // an object; before, the names
	Partition struct {
		State words `json:"state"`
	} `json:"partition"`
	Maximums struct {
		Time   value `json:"time"` // minutes
		Memory value `json:"partition_memory_per_node"`
	} `json:"maximums"`

	OldState  words `json:"state"`
	OldNodes  value `json:"total_nodes"`
	OldTime   value `json:"max_time_limit"`
	OldMemory value `json:"maximum_memory_per_node"`
}

func (p partition) state() string { return strings.Join(append(p.Partition.State, p.OldState...), "+") }

func (p partition) nodes() int {
	var of struct {
		Total value `json:"total"`
	}
	if p.Nodes.Kind() == '{' && json.Unmarshal(p.Nodes, &of) == nil {
		return int(of.Total.n)
	}
	return int(p.OldNodes.n)
}

// node is what the versions show of a node.
type node struct {
	Name       string `json:"name"`
	Partitions words  `json:"partitions"`
	State      words  `json:"state"`
	Flags      words  `json:"state_flags"` // up to v0.0.39
	Reason     string `json:"reason"`
	Arch       string `json:"architecture"`
	CPUs       value  `json:"cpus"`
	Memory     value  `json:"real_memory"` // MiB
	Gres       string `json:"gres"`
}

// sinfo is the node's state as sinfo writes it in its long form.
func (n node) sinfo() string {
	base, flags := "unknown", map[string]bool{}
	for _, w := range append(slices.Clone(n.State), n.Flags...) {
		switch w = strings.ToLower(w); w {
		case "unknown", "down", "idle", "allocated", "error", "mixed", "future":
			base = w
		default:
			flags[w] = true
		}
	}
	busy := base == "allocated" || base == "mixed"
	switch {
	case flags["drain"] && (busy || flags["completing"]):
		base = "draining"
	case flags["drain"]:
		base = "drained"
	case flags["fail"] && (busy || flags["completing"]):
		base = "failing"
	case flags["fail"]:
		base = "fail"
	case base == "down":
	case flags["invalid_reg"], flags["invalid"]:
		base = "inval"
	case flags["maintenance"]:
		base = "maint"
	case flags["reserved"] && base == "idle":
		base = "reserved"
	case flags["completing"]:
		base = "completing"
	case flags["planned"] && base == "idle":
		base = "planned"
	}
	for _, mark := range []struct{ flag, mark string }{{"not_responding", "*"}, {"powered_down", "~"}, {"powering_up", "#"},
		{"powering_down", "%"}, {"reboot_issued", "^"}, {"reboot_requested", "@"}} {
		if flags[mark.flag] {
			return base + mark.mark
		}
	}
	return base
}

// look asks slurmctld or slurmdbd for a list, which it decodes into to.
func look[T any](ctx context.Context, s *Slurm, rpcs int, path, member string, to *[]T) (answer, error) {
	if err := s.budget.Spend(ctx, rpcs); err != nil {
		return answer{}, err
	}
	*to = nil
	a, err := s.client.call(ctx, request{method: "GET", path: path, limit: maxSurvey, members: members{member: into(to)}})
	if err == nil && *to == nil {
		err = fault.New(fault.Transport, halfAnswer, "slurmrestd's answer has no list of "+member)
	}
	return a, err
}

// into decodes a list. Without one it leaves nil.
func into[T any](to *[]T) func(*jsontext.Decoder) error {
	return func(d *jsontext.Decoder) error {
		*to = []T{}
		return each(d, func(d *jsontext.Decoder) error {
			var one T
			err := json.UnmarshalDecode(d, &one)
			*to = append(*to, one)
			return err
		})
	}
}

func (s *Slurm) partitionsAndNodes(ctx context.Context) (parts []partition, nodes []node, err error) {
	if _, err = look(ctx, s, rpcLook, "/slurm/{v}/partitions/", "partitions", &parts); err == nil {
		_, err = look(ctx, s, rpcNodes, "/slurm/{v}/nodes/", "nodes", &nodes)
	}
	return parts, nodes, err
}

// Partitions asks for what a run must fit: three RPCs. Up to v0.0.44 slurmrestd does not show which partition is the default.
func (s *Slurm) Partitions(ctx context.Context) ([]run.Partition, error) {
	parts, nodes, err := s.partitionsAndNodes(ctx)
	list := []run.Partition{}
	for _, p := range parts {
		one := run.Partition{Name: p.Name, Default: slices.ContainsFunc(p.Flags, func(f string) bool { return strings.EqualFold(f, "default") }),
			Up: p.state() == "UP", MaxSeconds: 60 * max(0, p.Maximums.Time.n+p.OldTime.n)} // -1: no limit, up to v0.0.39
		most := int(p.Maximums.Memory.n + p.OldMemory.n)
		for _, n := range nodes {
			if !slices.Contains(n.Partitions, p.Name) {
				continue
			}
			mem := int(n.Memory.n)
			if most > 0 {
				mem = min(mem, most)
			}
			gpus, kinds := slurm.GPUs(n.Gres)
			one.CPUs, one.MemMB, one.GPUs = max(one.CPUs, int(n.CPUs.n)), max(one.MemMB, mem), max(one.GPUs, gpus)
			for _, kind := range kinds {
				if !slices.Contains(one.GPUTypes, kind) {
					one.GPUTypes = append(one.GPUTypes, kind)
				}
			}
		}
		list = append(list, one)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Nodes lists the nodes of all partitions, once for each partition they are in. It costs two RPCs.
func (s *Slurm) Nodes(ctx context.Context) (list []slurm.NodeIn, err error) {
	var nodes []node
	if _, err := look(ctx, s, rpcNodes, "/slurm/{v}/nodes/", "nodes", &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		for _, p := range n.Partitions {
			list = append(list, slurm.NodeIn{Node: n.Name, Partition: p, State: n.sinfo(), Reason: cmp.Or(n.Reason, "none")})
		}
	}
	return list, nil
}

// Archs are the architectures of the cluster's nodes, as [slurm.CLI.Archs] has them. It costs two RPCs.
func (s *Slurm) Archs(ctx context.Context) (list []string, err error) {
	var nodes []node
	if _, err := look(ctx, s, rpcNodes, "/slurm/{v}/nodes/", "nodes", &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if arch := slurm.Arch(n.Arch); arch != "" && !slices.Contains(list, arch) {
			list = append(list, arch)
		}
	}
	slices.Sort(list)
	return list, nil
}

// Condition asks for slurmctld's clock, the partitions and the nodes. Of the configuration slurmrestd shows next to nothing, so most values
// are missing.
func (s *Slurm) Condition(ctx context.Context) (c slurm.Condition, err error) {
	at, a, err := s.clock(ctx)
	if err != nil {
		return c, err
	}
	c.At, c.Values = at, map[string]string{}
	if a.storage != "" {
		c.Values["AccountingStorageType"] = a.storage
	}
	parts, nodes, err := s.partitionsAndNodes(ctx)
	for _, p := range parts {
		one := slurm.PartitionState{Name: p.Name, State: p.state(), Nodes: p.nodes(), States: map[string]int{}}
		for _, n := range nodes {
			if slices.Contains(n.Partitions, p.Name) {
				one.States[strings.TrimRight(n.sinfo(), "*~#!%$@^-+")]++
			}
		}
		c.Partitions = append(c.Partitions, one)
	}
	return c, err
}

// clock asks slurmctld for its time.
func (s *Slurm) clock(ctx context.Context) (time.Time, answer, error) {
	if err := s.budget.Spend(ctx, rpcLook); err != nil {
		return time.Time{}, answer{}, err
	}
	var of struct {
		At value `json:"req_time"`
	}
	a, err := s.client.call(ctx, request{method: "GET", path: "/slurm/{v}/diag/", members: members{
		"statistics": func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &of) }}})
	if !of.At.set || of.At.n <= 0 {
		return time.Time{}, a, err
	}
	return time.Unix(of.At.n, 0), a, err
}

// Probe is what slurmrestd says about itself and slurmctld. What it does not show is zero: MinJobAge, MessageTimeout, KillWait, and whether
// slurmctld limits RPCs.
func (s *Slurm) Probe(ctx context.Context) (p slurm.Probe, err error) {
	var pings []struct {
		Host       string `json:"hostname"`
		Pinged     string `json:"pinged"`
		Old        string `json:"ping"` // up to v0.0.39
		Responding bool   `json:"responding"`
		Mode       string `json:"mode"`
	}
	a, err := look(ctx, s, rpcLook, "/slurm/{v}/ping/", "pings", &pings)
	if err != nil {
		return p, err
	}
	p.Version, p.ClusterName, p.AccountingStorage, p.ExportNIL = "slurm "+a.release, a.cluster, a.storage, true
	major, rest, _ := strings.Cut(a.release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	for i, text := range []string{major, minor} {
		if p.Release[i], err = strconv.Atoi(text); err != nil {
			return p, fault.Wrap(fault.Transport, "version", "slurmrestd does not show the version of Slurm", err)
		}
	}
	var texts []string
	up := false
	for _, c := range pings {
		state := cmp.Or(c.Pinged, c.Old, map[bool]string{true: "UP", false: "DOWN"}[c.Responding])
		up = up || state == "UP"
		texts = append(texts, fmt.Sprintf("slurmctld at %s is %s", c.Host, state))
	}
	p.ControllerText = shown(strings.Join(texts, ", "))
	if !up {
		return p, fault.New(fault.Transport, run.Unreachable, "no slurmctld answers slurmrestd: "+p.ControllerText)
	}
	if p.ClusterName == "" {
		p.ClusterName = s.cfg.Cluster // each connection was proven to lead there
	}
	return p, nil
}

// SeesAll is nil: only the jobs of the token's user are looked at.
func (s *Slurm) SeesAll(context.Context) error { return nil }

// MessageTimeout is not shown; run.Queue has the contract.
func (s *Slurm) MessageTimeout(context.Context) (time.Duration, error) {
	return 0, notShown("MessageTimeout", "see it with: scontrol show config")
}

// Accepts cannot be asked: a job is posted or not.
func (s *Slurm) Accepts(context.Context, plan.Resources, plan.Placement) error {
	return notShown("whether Slurm would take a job", "try it on a host with Slurm's commands: sbatch --test-only")
}

// JobName asks slurmctld for the name it keeps for a job.
func (s *Slurm) JobName(ctx context.Context, id string) (string, error) {
	var found []struct {
		Name string `json:"name"`
	}
	if strings.Trim(id, "0123456789_") != "" || id == "" {
		return "", fault.New(fault.Internal, "job_id", "not a job id: "+fault.Clip(id))
	}
	_, err := look(ctx, s, rpcLook, "/slurm/{v}/job/"+id, "jobs", &found)
	if err == nil && len(found) == 0 {
		err = fault.New(fault.Transport, halfAnswer, "slurmrestd shows no job "+id)
	}
	if err != nil {
		return "", err
	}
	return found[0].Name, nil
}

// CheckCluster makes sure that slurmrestd is one of the cluster of the site file, as [slurm.CLI.CheckCluster] does.
func (s *Slurm) CheckCluster(ctx context.Context) error {
	_, err := s.Probe(ctx)
	return err
}
