package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
echo "env=$(env | grep -c -v -E '^(SLURM|PATH=|PWD=|OLDPWD=|SHLVL=|_=|LC_ALL=|TMPDIR=|HOSTNAME=|ENVIRONMENT=|CUDA_|GPU_|ROCR_|HYDRA_|I_MPI_|OMPI_MCA_|PRTE_MCA_)')"
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

// nodes sends one probe job and then another to a different node, and compares the results.
func (d *checks) nodes(ctx context.Context, s *site.Site, cli *slurm.CLI, image string) {
	dir, err := os.MkdirTemp(s.Storage.RunsDir, ".doctor-")
	if err != nil {
		d.check("probe folder", "", err, "")
		return
	}
	defer os.RemoveAll(dir)
	token := rand.Text()
	err = errors.Join(os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600),
		os.WriteFile(filepath.Join(dir, "probe.sh"), []byte(probeScript(s, dir, image)), 0o600))
	if err != nil {
		d.check("probe folder", "", err, "")
		return
	}
	first, saw := d.node(ctx, s, cli, dir, token, "", image != "")
	if !saw {
		return
	}
	d.say("sending a second probe job to a node other than %s", first)
	if _, saw = d.node(ctx, s, cli, dir, token, first, image != ""); !saw {
		d.add("warn", "second node", "no other node ran the probe job, so links between two nodes were not tested", "")
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

// node sends one probe, reads its findings, and returns the node it ran on.
func (d *checks) node(ctx context.Context, s *site.Site, cli *slurm.CLI, dir, token, exclude string, image bool) (string, bool) {
	what := "probe job"
	if exclude != "" {
		what = "second probe job"
	}
	name := "sg-doctor-" + strings.ToLower(rand.Text()[:12])
	out := filepath.Join(dir, name+".out")
	id, err := cli.SubmitProbe(ctx, slurm.NodeProbe{Name: name, Dir: dir, Script: filepath.Join(dir, "probe.sh"), Output: out,
		Partition: s.Slurm.DefaultPartition, Account: s.Slurm.DefaultAccount, QOS: s.Slurm.DefaultQOS, Exclude: exclude})
	if err != nil {
		if exclude == "" {
			d.add("fail", what, err.Error(), "check slurm.default_partition, default_account and default_qos")
		}
		return "", false
	}
	defer cli.Cancel(context.WithoutCancel(ctx), id, name)
	if got, err := cli.JobName(ctx, id); err == nil && got != name {
		d.add("fail", "job name", "this cluster changed the probe's name from "+name+" to "+got,
			"a job-submit plugin rewrites names; exempt slurmgate's jobs, because it finds them by name")
	}
	d.say("waiting for probe job %s", id)
	saw, text := waitForProbe(ctx, out, func() bool { return probeEnded(ctx, cli, name) })
	switch {
	case saw:
	case exclude != "":
		return "", false
	case probeEnded(ctx, cli, name):
		d.add("fail", what, "job "+id+" ended, but its output does not appear in "+dir+": "+firstLine(text),
			"storage.runs_dir must be the same folder on login and compute nodes")
		return "", false
	default:
		d.add("fail", what, "job "+id+" did not start within 90 s", "check whether the queue is full: squeue -j "+id)
		return "", false
	}
	v := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		k, val, _ := strings.Cut(line, "=")
		if k == "bind" && v[k] != "" {
			val = v[k] + ", " + val
		}
		v[k] = val
	}
	node := v["node"]
	report := func(ok bool, otherwise, check, good, bad, next string) {
		d.verdict(ok, otherwise, check, node+": "+good, node+": "+bad, next)
	}
	report(v["token"] == token, "fail", "shared filesystem", "sees the gateway's files", "reads "+v["token"],
		"storage.runs_dir must be the same folder on login and compute nodes")
	report(v["claim"] != "" && (v["claim"] == id) == (exclude == ""), "fail", "claim by link", "the first link wins ("+v["claim"]+")",
		"the claim reads "+v["claim"], "link(2) must be exclusive on storage.runs_dir across all nodes")
	report(v["env"] == "0", "warn", "job environment", "only Slurm's variables",
		v["env"]+" variables other than Slurm's reach jobs (but not containers)", "look for a prolog or a PAM module that sets them")
	if len(s.Apptainer.Binds) > 0 {
		report(v["bind"] == "", "fail", "binds", "all folders of apptainer.binds exist", "has no folder "+v["bind"],
			"correct apptainer.binds, or mount the folder on that node: without it no container starts there")
	}
	report(strings.HasPrefix(v["apptainer"], "apptainer version"), "fail", "apptainer", v["apptainer"], v["apptainer"],
		"set apptainer.path or apptainer.module")
	if _, tried := v["container"]; image && tried {
		report(v["container"] == "ok", "fail", "container", "starts without a network", v["container"],
			"run the command of the job script by hand on that node")
		if v["container"] == "ok" {
			walls(v, report)
		}
	}
	return node, true
}

// walls reports what a program in a container on the node can do, as it was found there.
func walls(v map[string]string, report func(ok bool, otherwise, check, good, bad, next string)) {
	if v["wall.end"] == "" {
		report(false, "warn", "container privileges", "", "could not be examined: the node's bash does not run in a container",
			"run the command of the job script by hand on that node, with /bin/cat /proc/self/status")
		return
	}
	none := strings.Trim(v["wall.CapBnd"]+v["wall.CapEff"], "0") == ""
	report(none && v["wall.NoNewPrivs"] == "1", "fail", "container privileges", "no capabilities, and none to be gained (no_new_privs)",
		fmt.Sprintf("capabilities %s (bounding set %s), no_new_privs %s", v["wall.CapEff"], v["wall.CapBnd"], v["wall.NoNewPrivs"]),
		"run jobs as a user other than root; look for settings of apptainer.conf and capability.json that add capabilities")
	report(v["wall.net"] == "lo", "fail", "container network", "none but its own loopback", "network interfaces "+v["wall.net"],
		"find out why Apptainer does not obey --net --network none")
	report(v["wall.pids"] != "" && len(v["wall.pids"]) < 2, "fail", "container processes", "sees only its own",
		"sees "+v["wall.pids"]+" processes",
		"set \"allow pid ns = yes\" in apptainer.conf")
	const profile = "copy site-configs/seccomp.json to a folder that all nodes see, and name it in apptainer.seccomp"
	report(v["wall.Seccomp"] == "2", "warn", "container seccomp", "a profile is in force",
		"no seccomp profile: programs can make every system call", profile)
	report(v["wall.users"] != "possible", "warn", "nested user namespaces", strings.TrimPrefix(v["wall.users"], "refused: "),
		"possible: a program gets all capabilities in a namespace of its own, with which more of the kernel can be attacked", profile)
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
