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

// Costs of the calls of a survey in RPCs, at most what sdiag counted.
const (
	rpcLook  = 1
	rpcNodes = 2 // slurmrestd asks for the partitions too
)

// maxSurvey bounds an answer about all partitions, nodes or associations, in bytes.
const maxSurvey = 1 << 30

// NotShown is the code of the NotFound fault for data that slurmrestd shows in no version.
const NotShown = "rest_not_shown"

func notShown(what, instead string) error {
	return fault.New(fault.NotFound, NotShown, "slurmrestd does not show "+what).WithNext(instead)
}

// value is a number in either form: plain, or an object.
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

// limit returns the number, or nil if it is not set or no possible limit.
func (v value) limit() *int {
	if !v.set || v.n < 0 || v.n > 1<<31 {
		return nil
	}
	return new(int(v.n))
}

// partition decodes a partition from slurmrestd.
type partition struct {
	Name      string   `json:"name"`
	Flags     []string `json:"flags"` // since v0.0.45
	Partition struct {
		State []string `json:"state"`
	} `json:"partition"`
	Maximums struct {
		Time   value `json:"time"` // minutes
		Memory value `json:"partition_memory_per_node"`
	} `json:"maximums"`
}

// node decodes a node from slurmrestd.
type node struct {
	Name       string   `json:"name"`
	Partitions []string `json:"partitions"`
	State      []string `json:"state"`
	Reason     string   `json:"reason"`
	Since      value    `json:"reason_changed_at"`
	Arch       string   `json:"architecture"`
	CPUs       value    `json:"cpus"`
	Memory     value    `json:"real_memory"` // MiB
	Gres       string   `json:"gres"`
}

// sinfo returns the node's state in the long form of sinfo.
func (n node) sinfo() string {
	base, flags := "unknown", map[string]bool{}
	for _, w := range n.State {
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

// since returns when the reason was given; nil: never.
func (n node) since() *time.Time {
	if n.Since.n <= 0 {
		return nil
	}
	return new(time.Unix(n.Since.n, 0).UTC())
}

// look asks slurmctld or slurmdbd for a list, and decodes it into to.
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

// into returns a decoder of a list. If the answer has no list, to stays nil.
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

// ShowPartitions implements [slurm.Source]. Up to v0.0.44 slurmrestd does not show which partition is the default. No
// version shows which are hidden or who may use them.
func (s *Slurm) ShowPartitions(ctx context.Context) (list []run.Partition, err error) {
	var parts []partition
	if _, err := look(ctx, s, rpcLook, "/slurm/{v}/partitions/", "partitions", &parts); err != nil {
		return nil, err
	}
	for _, p := range parts {
		list = append(list, run.Partition{Name: p.Name, State: strings.Join(p.Partition.State, "+"),
			Default:    slices.ContainsFunc(p.Flags, func(f string) bool { return strings.EqualFold(f, "default") }),
			MaxSeconds: 60 * max(0, p.Maximums.Time.n), MaxMemMB: int(p.Maximums.Memory.n)})
	}
	return list, nil
}

// Nodes implements [slurm.Source].
func (s *Slurm) Nodes(ctx context.Context) (list []run.Node, err error) {
	var nodes []node
	if _, err := look(ctx, s, rpcNodes, "/slurm/{v}/nodes/", "nodes", &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		one := run.Node{Name: n.Name, State: n.sinfo(), Reason: cmp.Or(n.Reason, "none"), Since: n.since(), CPUs: int(n.CPUs.n),
			MemMB: int(n.Memory.n), Arch: slurm.Arch(n.Arch)}
		one.GPUs, one.GPUTypes = slurm.GPUs(n.Gres)
		for _, one.Partition = range n.Partitions {
			list = append(list, one)
		}
	}
	return list, nil
}

// Unusable returns the nodes that take no jobs; run.Queue has the contract.
func (s *Slurm) Unusable(ctx context.Context) (map[string]run.Unusable, error) {
	list, err := s.Nodes(ctx)
	return run.UnusableNodes(list), err
}

// Archs returns the architectures of the cluster's nodes, as [slurm.CLI.Archs] does. It costs two RPCs.
func (s *Slurm) Archs(ctx context.Context) (list []string, err error) {
	nodes, err := s.Nodes(ctx)
	for _, n := range nodes {
		if n.Arch != "" && !slices.Contains(list, n.Arch) {
			list = append(list, n.Arch)
		}
	}
	slices.Sort(list)
	return list, err
}

// Config asks slurmctld for its clock. Of the configuration slurmrestd shows only the names of the cluster and of its
// accounting storage.
func (s *Slurm) Config(ctx context.Context, _ time.Duration) (c run.ClusterConfig, err error) {
	if err := s.budget.Spend(ctx, rpcLook); err != nil {
		return c, err
	}
	var of struct {
		At value `json:"req_time"`
	}
	a, err := s.client.call(ctx, request{method: "GET", path: "/slurm/{v}/diag/", members: members{
		"statistics": func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &of) }}})
	if of.At.set && of.At.n > 0 {
		c.Clock = time.Unix(of.At.n, 0)
	}
	c.Values = map[string]string{"ClusterName": cmp.Or(a.cluster, s.cfg.Cluster)} // each connection was proved to lead there
	if a.storage != "" {
		c.Values["AccountingStorageType"] = a.storage
	}
	return c, err
}

// Probe asks slurmrestd about itself and slurmctld.
func (s *Slurm) Probe(ctx context.Context) (p slurm.Probe, err error) {
	if p, err = s.ping(ctx); err != nil {
		return p, err
	}
	p.Config, err = run.Ask(ctx, func(ctx context.Context) (run.ClusterConfig, error) { return s.Config(ctx, 0) })
	return p, err
}

// ping asks slurmrestd whether a slurmctld answers.
func (s *Slurm) ping(ctx context.Context) (p slurm.Probe, err error) {
	var pings []struct {
		Host       string `json:"hostname"`
		Pinged     string `json:"pinged"`
		Responding bool   `json:"responding"`
		Mode       string `json:"mode"`
	}
	a, err := look(ctx, s, rpcLook, "/slurm/{v}/ping/", "pings", &pings)
	if err != nil {
		return p, err
	}
	p.Version, p.ExportNIL = "slurm "+a.release, true
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
		state := cmp.Or(c.Pinged, map[bool]string{true: "UP", false: "DOWN"}[c.Responding])
		up = up || state == "UP"
		texts = append(texts, fmt.Sprintf("slurmctld at %s is %s", c.Host, state))
	}
	p.ControllerText = shown(strings.Join(texts, ", "))
	if !up {
		return p, fault.New(fault.Transport, run.Unreachable, "no slurmctld answers slurmrestd: "+p.ControllerText)
	}
	return p, nil
}

// Harmless does nothing: slurmrestd prints no lines beyond its answer.
func (s *Slurm) Harmless(string) {}

// SeesAll returns nil: only the jobs of the token's user are queried.
func (s *Slurm) SeesAll(context.Context) error { return nil }

// MessageTimeout returns a NotFound fault; run.Queue has the contract.
func (s *Slurm) MessageTimeout(context.Context) (time.Duration, error) {
	return 0, notShown("MessageTimeout", "see it with: scontrol show config")
}

// Accepts returns a NotFound fault: slurmrestd has no dry run of a job.
func (s *Slurm) Accepts(context.Context, plan.Resources, plan.Placement) error {
	return notShown("whether Slurm would take a job", "try it on a host with Slurm's commands: sbatch --test-only")
}

// JobName asks slurmctld for the name of a job.
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
	_, err := s.ping(ctx)
	return err
}
