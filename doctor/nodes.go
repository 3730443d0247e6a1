package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
)

// nodeScript checks a node: does it see what the gateway wrote, is a link made there exclusive, does Apptainer run there without a network.
const nodeScript = `#!/bin/bash
umask 077
export LC_ALL=C PATH=/usr/bin:/bin
set -- %[1]s
cd -- "$1" || exit 1
echo "node=${SLURMD_NODENAME:-$HOSTNAME}"
echo "token=$(cat -- token 2>&1)"
echo "env=$(env | grep -c -v -E '^(SLURM|PATH=|PWD=|OLDPWD=|SHLVL=|_=|LC_ALL=|TMPDIR=|HOSTNAME=|ENVIRONMENT=|HOME=|USER=|LOGNAME=|SHELL=|MAIL=|CUDA_|GPU_|ROCR_|HYDRA_|I_MPI_|OMPI_MCA_|PRTE_MCA_)')"
echo "$SLURM_JOB_ID" >".claim.$SLURM_JOB_ID" && sync ".claim.$SLURM_JOB_ID"; ln -T ".claim.$SLURM_JOB_ID" claim 2>/dev/null
echo "claim=$(cat -- claim)"
for bind in %[2]s; do [[ -d $bind ]] || echo "bind=$bind"; done
%[3]s
if [[ -x $apptainer ]]; then
  echo "apptainer=$("$apptainer" --version 2>&1 | head -1)"
  if [[ -n %[4]s ]]; then
    enter=(env -i PATH="$PATH" HOME="$1" "$apptainer" --quiet exec --containall --cleanenv --no-eval --no-privs --no-home --home /tmp --net --network none --no-mount hostfs,bind-paths,home,cwd%[5]s --pwd /)
    out=$("${enter[@]}" %[4]s /proc/self/nothing 2>&1)
    # The image may hold no program we know. That the program is what was not found shows that the container was set up.
    case $out in *" /proc/self/nothing: no such file"* | *" /proc/self/nothing: permission denied"*) echo "container=ok" ;; *) echo "container=${out//$'\n'/ }" ;; esac
    # What a program finds inside, told by the node's own bash and unshare over the image.
    over=()
    for d in /usr /bin /lib /lib64; do [[ ! -d $d ]] || over+=(--bind "$d:$d:ro"); done
    "${enter[@]}" "${over[@]}" %[4]s /bin/bash -c '
      while read -r k v; do case $k in NoNewPrivs: | CapBnd: | CapEff: | Seccomp:) echo "wall.${k%%:}=$v" ;; esac; done </proc/self/status
      net=""; while read -r n _; do case $n in *:) net="$net ${n%%:*}" ;; esac; done </proc/net/dev
      echo "wall.net=${net# }"
      if ! why=$(unshare --user /bin/true 2>&1); then echo "wall.users=refused: $why"; else echo wall.users=possible; fi
      pids=(/proc/[0-9]*); echo "wall.pids=${#pids[@]}"
      echo wall.end=yes' 2>/dev/null </dev/null
  fi
else
  echo "apptainer=missing ${apptainer}"
fi
echo end
`

// Seen is what a probe saw on a node.
type Seen struct {
	Node  string
	Job   string
	Token string            // what the gateway wrote for the probe to read
	First bool              // no other probe ran before
	Value map[string]string // what the script printed, by name
}

// nodes sends one probe job and then another to a different node, and judges what they saw.
func (x *Exam) nodes(ctx context.Context) {
	if why := x.missing(Check{Needs: []string{"record", runsDir, slurmController}}); why != "" {
		x.unseen("not checked, because " + why + " has to be ok first")
		return
	}
	dir, err := os.MkdirTemp(x.Cluster.Storage.RunsDir, ".doctor-")
	if err != nil {
		x.unseen(err.Error())
		return
	}
	defer os.RemoveAll(dir)
	token := rand.Text()
	err = errors.Join(os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600),
		os.WriteFile(filepath.Join(dir, "probe.sh"), []byte(probeScript(x.Cluster, dir, x.Image)), 0o600))
	if err != nil {
		x.unseen(err.Error())
		return
	}
	first := x.probe(ctx, dir, token, "")
	if first == "" {
		x.unseen("no probe job ran")
		return
	}
	x.say("sending a second probe job to a node other than %s", first)
	x.probe(ctx, dir, token, first)
}

// unseen reports that no node was looked at.
func (x *Exam) unseen(why string) {
	for _, k := range nodeChecks() {
		if x.worst[k.Code] == "" {
			x.Report(k, "", unknown("", "%s", why))
		}
	}
}

func probeScript(s *site.Site, dir, image string) string {
	find := "apptainer=" + slurm.Quote(s.Apptainer.Path)
	if m := s.Apptainer.Module; m != nil {
		find = "source " + slurm.Quote(m.Init) + " && module load"
		for _, l := range m.Load {
			find += " " + slurm.Quote(l)
		}
		find += "\napptainer=$(type -P apptainer)"
	}
	binds := ""
	for _, b := range s.Apptainer.Binds {
		binds += slurm.Quote(b.Source) + " "
	}
	security := ""
	if s.Apptainer.Seccomp != "" {
		security = " --security " + slurm.Quote("seccomp:"+s.Apptainer.Seccomp)
	}
	return fmt.Sprintf(nodeScript, slurm.Quote(dir), binds, find, slurm.Quote(image), security)
}

// probe sends one probe, judges what it saw, and returns the node it ran on; empty: it did not run.
func (x *Exam) probe(ctx context.Context, dir, token, exclude string) string {
	s, cli := x.Cluster, x.Slurm
	report := func(code string, results []Result) {
		for _, k := range nodeChecks() {
			if k.Code == code {
				x.Report(k, "", results)
			}
		}
	}
	name := "sg-doctor-" + strings.ToLower(rand.Text()[:12])
	out := filepath.Join(dir, name+".out")
	id, err := cli.SubmitProbe(ctx, slurm.NodeProbe{Name: name, Dir: dir, Script: filepath.Join(dir, "probe.sh"), Output: out,
		Partition: s.Slurm.DefaultPartition, Account: s.Slurm.DefaultAccount, QOS: s.Slurm.DefaultQOS, Exclude: exclude})
	if err != nil {
		if exclude == "" {
			report(probeJob, bad("check slurm.default_partition, default_account and default_qos", "%v", err))
		} else {
			report(probeJob, warning("", "no other node takes a probe job, so links between two nodes were not tested: %v", err))
		}
		return ""
	}
	defer cli.Cancel(context.WithoutCancel(ctx), id, name)
	if got, err := cli.JobName(ctx, id); err == nil && got != name {
		report("job_name", bad("", "this cluster changed the probe's name from %s to %s", name, got))
	} else if err == nil {
		report("job_name", ok("%s", name))
	}
	x.say("waiting for probe job %s", id)
	saw, text := waitForProbe(ctx, out, func() bool { return probeEnded(ctx, cli, name) })
	switch {
	case saw:
	case exclude != "":
		report(probeJob, unknown("", "job %s did not run on another node, so links between two nodes were not tested", id))
		return ""
	case probeEnded(ctx, cli, name):
		report(probeJob, bad("storage.runs_dir must be the same folder on login and compute nodes", "job %s ended, but its output does not "+
			"appear in %s: %s", id, dir, firstLine(text)))
		return ""
	default:
		report(probeJob, unknown("check whether the queue is full: squeue -j "+id, "job %s did not start within 90 s", id))
		return ""
	}
	seen := &Seen{Job: id, Token: token, First: exclude == "", Value: map[string]string{}}
	for line := range strings.SplitSeq(text, "\n") {
		k, val, _ := strings.Cut(line, "=")
		if k == "bind" && seen.Value[k] != "" {
			val = seen.Value[k] + ", " + val
		}
		seen.Value[k] = val
	}
	seen.Node = seen.Value["node"]
	report(probeJob, ok("job %s ran on %s", id, seen.Node))
	x.judge(seen)
	return seen.Node
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
			results = k.Judge(&on, seen)
		}
		on.Report(k, seen.Node, results)
		if on.worst[k.Code].Worse(x.worst[k.Code]) {
			x.worst[k.Code] = on.worst[k.Code]
		}
	}
}

// probeEnded asks Slurm whether the probe has ended; no answer means no.
func probeEnded(ctx context.Context, cli *slurm.CLI, name string) bool {
	jobs, err := cli.Jobs(ctx, nil)
	for _, j := range jobs {
		if err == nil && j.Name == name && j.Class == run.ClassEnded {
			return true
		}
	}
	return false
}

// waitForProbe waits for the probe's last line: 90 s for its start, and after its end as long as a network filesystem may take to show a
// file.
func waitForProbe(ctx context.Context, path string, ended func() bool) (bool, string) {
	text := ""
	deadline, ask := time.Now().Add(90*time.Second), time.Now().Add(5*time.Second)
	for over := false; time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
		data, _ := os.ReadFile(path) // usually the file does not exist yet
		if text = string(data); strings.HasSuffix(text, "\nend\n") {
			return true, text
		}
		if now := time.Now(); !over && now.After(ask) {
			if ask = now.Add(5 * time.Second); ended() {
				over, deadline = true, now.Add(15*time.Second)
			}
		}
	}
	return false, text
}
