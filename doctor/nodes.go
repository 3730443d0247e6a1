package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// Bounds of one examination of nodes.
const (
	mostPartitions = 16               // jobs without --node and --all-nodes
	mostNodes      = 1000             // tasks of an array: MaxArraySize is 1001 unless it is set
	probeWait      = 90 * time.Second // for the answers; with many nodes a second more for each
	lateFile       = 15 * time.Second // how long a network filesystem may take to show the answer of a job that has ended
	leftover       = time.Hour        // a folder of an earlier doctor that was killed
)

// target is one place to check: any node of a partition, or one node.
type target struct {
	run.Node        // without a name: any of the partition
	job      string // id, with the task's number for a task of an array; empty: not sent
	seen     bool
}

// name returns the target's name in reports.
func (t target) name() string {
	return cmp.Or(t.Name, "partition "+t.Partition)
}

// answerFile returns the name under which its job leaves its answer.
func (t target) answerFile() string {
	id, task, _ := strings.Cut(t.job, "_")
	return "answer." + id + "_" + task
}

// Seen holds what a probe saw on a node.
type Seen struct {
	Node   string
	Job    string
	Read   time.Time         // when the gateway saw the answer
	Start  time.Time         // of the job by Slurm's clock, or when it was sent
	End    time.Time         // of the job by Slurm's clock; zero: not known
	Winner string            // the job whose link is the claim, as the first answer has it
	Won    int               // how many jobs believe that it is theirs
	Value  map[string]string // what the probe found, by question
}

// round is a set of probe jobs that share a folder.
type round struct {
	*Exam
	name, token string
	shared      shared    // the folder that the gateway and the probes share
	script      string    // as the host of sbatch sees it
	text        string    // of the script
	began       time.Time // before its first job was sent
	ids         []string  // of the jobs, to cancel
	targets     []*target
	seen        []*Seen
	images      []storedImage
}

// nodes sends probe jobs and judges what they saw.
func (x *Exam) nodes(ctx context.Context) {
	if why := x.missing(Check{Needs: []string{"record", runsDir, clusterName}}); why != "" {
		x.unseen("not checked, because " + why + " has to be ok first")
		return
	}
	r, err := x.newRound(ctx)
	if err != nil {
		x.unseen(err.Error())
		return
	}
	defer r.remove(context.WithoutCancel(ctx))
	defer r.cancel(context.WithoutCancel(ctx))
	if err = r.choose(ctx); err == nil {
		err = r.send(ctx)
	}
	if err != nil {
		x.report(probeJob, "", failed("", err))
	}
	r.wait(ctx)
	if x.args.Nodes == "" && !x.args.AllNodes {
		r.another(ctx)
	}
	r.checkName(ctx)
	r.judgeAll()
	x.unseen("no probe job looked at a node")
}

// newRound makes the folder that the gateway and the probes share.
func (x *Exam) newRound(ctx context.Context) (*round, error) {
	dir := ".doctor-" + token()
	r := &round{Exam: x, token: rand.Text(), name: "sg-doctor-" + strings.ToLower(rand.Text()[:12]), images: x.stored,
		script: path.Join(x.Cluster.LoginFolders().RunsDir, dir, "probe.sh"), began: time.Now()}
	inPlace, err := x.named(ctx, x.Cluster.Name)
	if err != nil {
		return nil, err
	}
	files, err := probeFiles(path.Join(x.Cluster.Storage.RunsDir, dir), r.token, x.Cluster, r.images, inPlace)
	if err != nil {
		return nil, err
	}
	r.text = files["probe.sh"]
	r.shared = x.runsFolder().shared(dir)
	r.shared.tidy(ctx)
	if err := r.shared.make(ctx, files); err != nil {
		r.remove(context.WithoutCancel(ctx))
		return nil, err
	}
	return r, nil
}

func (r *round) remove(ctx context.Context) {
	if err := r.shared.remove(ctx); err != nil {
		r.say("the folder of the probe jobs could not be removed: %v", err)
	}
}

// allowed returns the partitions of the nodes given that policy allows, the default one first.
func (x *Exam) allowed(all []run.Node) (names []string) {
	for _, n := range all {
		if ok := x.Policy == nil || x.Policy.Slurm.Partitions == nil || slices.Contains(*x.Policy.Slurm.Partitions, n.Partition); ok &&
			!slices.Contains(names, n.Partition) {
			names = append(names, n.Partition)
		}
	}
	first := x.Cluster.Slurm.DefaultPartition
	if i := slices.Index(names, first); i >= 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, first)
	} else {
		names = append([]string{first}, names...) // sbatch reports its fault
	}
	return names
}

// choose lists the places to check, and reports those that no job can reach.
func (r *round) choose(ctx context.Context) error {
	if err := r.askNodes(ctx); err != nil {
		return err
	}
	all := r.Snapshot.Nodes.Value
	partitions := r.allowed(all)
	if r.args.Nodes == "" && !r.args.AllNodes {
		for i, p := range partitions {
			in := slices.DeleteFunc(slices.Clone(all), func(n run.Node) bool { return n.Partition != p })
			switch {
			case i >= mostPartitions:
				r.report(probeJob, "", warning("look at a node of it: "+command(fault.Do("doctor", "node", "NAME")),
					"partition %s was not looked at: doctor looks at %d partitions", p, mostPartitions))
			case len(in) > 0 && !slices.ContainsFunc(in, run.Node.Takes):
				r.report(probeJob, "", warning("see the reasons with: sinfo --list-reasons",
					"partition %s was not looked at: none of its nodes takes jobs "+
						"(%s: %s, %s)", p, in[0].Name, in[0].State, in[0].Reason))
			default:
				r.targets = append(r.targets, &target{Node: run.Node{Partition: p}})
			}
		}
		return nil
	}
	var want []string
	if r.args.Nodes != "" {
		var err error
		if want, err = r.Slurm.Hostnames(ctx, r.args.Nodes); err != nil {
			return err
		}
	} else {
		for _, n := range all {
			if slices.Contains(partitions, n.Partition) {
				want = append(want, n.Name)
			}
		}
	}
	slices.Sort(want)
	for i, node := range slices.Compact(want) {
		if i >= mostNodes {
			r.report(probeJob, node, unknown("name it with --node", "not looked at: doctor looks at %d nodes at a time", mostNodes))
			continue
		}
		r.chooseNode(node, partitions, all)
	}
	return nil
}

// chooseNode adds one node to the places to check.
func (r *round) chooseNode(node string, partitions []string, all []run.Node) {
	var in []run.Node
	for _, p := range partitions {
		for _, n := range all {
			if n.Name == node && n.Partition == p {
				in = append(in, n)
			}
		}
	}
	known := slices.ContainsFunc(all, func(n run.Node) bool { return n.Name == node })
	switch {
	case !known:
		r.report(probeJob, node, bad("list the nodes with: sinfo --Node", "Slurm has no node of this name"))
	case len(in) == 0:
		r.report(probeJob, node, unknown("allow one of its partitions in policies.yaml, or leave the node out",
			"not looked at: it is in no partition "+
				"that policy allows"))
	case !in[0].Takes():
		status := unknown // the caller asked for this node
		if r.args.AllNodes {
			status = warning
		}
		r.report(probeJob, node, status("see the reasons with: sinfo --list-reasons", "not looked at: Slurm says it is %s (%s)", in[0].State,
			in[0].Reason))
	default:
		r.targets = append(r.targets, &target{Node: in[0]})
	}
}

// send sends a job for each partition, or one array whose tasks are bound to their nodes; slurmrestd gets a job for each node.
func (r *round) send(ctx context.Context) error {
	s := r.Cluster.Slurm
	probe := slurm.NodeProbe{Name: r.name, Script: r.script, Text: r.text, Account: s.DefaultAccount, QOS: s.DefaultQOS}
	if r.args.Nodes == "" && !r.args.AllNodes {
		for _, t := range r.targets {
			probe.Partitions = []string{t.Partition}
			r.sendOne(ctx, t, probe)
		}
		return nil
	}
	if len(r.targets) == 0 {
		return nil
	}
	binder, is := r.Slurm.(*slurm.CLI) // which can bind each task of an array to its node
	if !is {
		for _, t := range r.targets {
			probe.Partitions, probe.Node = []string{t.Partition}, t.Name
			r.sendOne(ctx, t, probe)
		}
		return nil
	}
	var at []run.Node
	for _, t := range r.targets {
		at = append(at, t.Node)
		if !slices.Contains(probe.Partitions, t.Partition) {
			probe.Partitions = append(probe.Partitions, t.Partition)
		}
	}
	probe.Tasks = len(at)
	id, err := r.Slurm.SubmitProbe(ctx, probe)
	if err != nil {
		return err
	}
	r.ids = append(r.ids, id)
	r.say("sent an array of %d probe jobs, %s; binding each to its node", len(at), id)
	refused, err := binder.BindTasks(ctx, id, at)
	for i, t := range r.targets {
		if why, is := refused[i]; is {
			r.report(probeJob, t.Name, unknown("", "not looked at: Slurm does not send a job there: %s", why))
			t.seen = true
			continue
		}
		t.job = fmt.Sprintf("%s_%d", id, i)
	}
	return err
}

func (r *round) sendOne(ctx context.Context, t *target, probe slurm.NodeProbe) {
	id, err := r.Slurm.SubmitProbe(ctx, probe)
	if err != nil {
		t.seen = true
		remedy := "check slurm.default_account and default_qos, and who may use the partition: scontrol show partition " + t.Partition
		if t.Partition == r.Cluster.Slurm.DefaultPartition {
			remedy = "check slurm.default_partition, default_account and default_qos"
		}
		r.report(probeJob, "", bad(remedy, "%s: %v", t.name(), err))
		return
	}
	t.job = id
	r.ids = append(r.ids, id)
	r.say("sent probe job %s to %s", id, t.name())
}

// another checks a second node where all answers came from one, so that a link is tested between two.
func (r *round) another(ctx context.Context) {
	var nodes []string
	for _, s := range r.seen {
		nodes = append(nodes, s.Node)
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) != 1 || ctx.Err() != nil {
		return
	}
	s := r.Cluster.Slurm
	t := &target{Node: run.Node{Partition: s.DefaultPartition}}
	id, err := r.Slurm.SubmitProbe(ctx, slurm.NodeProbe{Name: r.name, Script: r.script, Text: r.text, Partitions: []string{t.Partition},
		Account: s.DefaultAccount, QOS: s.DefaultQOS, Exclude: nodes})
	if err != nil {
		r.report("claim_link", "", warning("", "links between two nodes were not tested: no node but %s takes a probe job: %v", nodes[0], err))
		return
	}
	r.say("sent probe job %s to a node other than %s", id, nodes[0])
	r.ids, t.job, r.targets = append(r.ids, id), id, append(r.targets, t)
	r.wait(ctx)
	if !t.seen {
		r.report("claim_link", "", warning("", "links between two nodes were not tested: only %s was looked at", nodes[0]))
	}
}

// cancel ends what is left of the jobs.
func (r *round) cancel(ctx context.Context) {
	for _, id := range r.ids {
		if err := r.Slurm.Cancel(ctx, id, r.name, ""); err != nil {
			r.say("probe job %s could not be cancelled: %v", id, err)
		}
	}
}

// checkName compares the name that Slurm has for a job with the one it was sent under.
func (r *round) checkName(ctx context.Context) {
	if len(r.ids) == 0 || ctx.Err() != nil {
		return
	}
	switch got, err := r.Slurm.JobName(ctx, r.ids[0]); {
	case err != nil:
		r.report("job_name", "", failed("", err))
	case got != r.name:
		r.report("job_name", "", warning("", "this cluster changed the probe's name from %s to %s", r.name, got))
	default:
		r.report("job_name", "", ok("%s", r.name))
	}
}

// judgeAll makes the checks of each examined node once, even if jobs of several partitions ran there.
func (r *round) judgeAll() {
	done := map[string]bool{}
	for _, s := range r.seen {
		s.Winner = r.seen[0].Value["claim"]
		for _, other := range r.seen {
			if other.Value["claim"] == other.Job {
				s.Won++
			}
		}
		if done[s.Node] {
			r.report("claim_link", s.Node, claims(r.Exam, s))
			continue
		}
		done[s.Node] = true
		r.judge(s)
	}
}

// judge makes the checks of a node.
func (x *Exam) judge(seen *Seen) {
	on := *x // what one node lacks does not matter to the next
	on.worst = maps.Clone(x.worst)
	for _, k := range nodeChecks() {
		if k.Judge == nil {
			continue
		}
		delete(on.worst, k.Code)
		results := unknown("", "not checked, because "+on.missing(k)+" has to be ok first")
		if on.missing(k) == "" {
			results = seen.answered(k.Asks)
		}
		if results == nil {
			results = k.Judge(&on, seen)
		}
		on.Report(k, seen.Node, results)
		if on.worst[k.Code].Worse(x.worst[k.Code]) {
			x.worst[k.Code] = on.worst[k.Code]
		}
	}
}

// answered returns nil if the probe answered the questions.
func (n *Seen) answered(questions []string) []Result {
	for _, q := range questions {
		if _, is := n.Value[q]; !is {
			return unknown("", "the probe did not answer this (%s)", q)
		}
	}
	return nil
}
