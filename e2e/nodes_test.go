package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// nodeFault is a fault planted on one node: a bash line that runs among the files that the node's slurmd and jobs see.
// $1 is the site's folder, $2 the digest of the image, $3 a scratch folder of the node. A restart of the slurmd removes
// what it mounts.
type nodeFault struct {
	name  string
	plant string
	code  string // the check that names it
	found string // part of the check's finding
}

const starter = `$(apptainer buildcfg LIBEXECDIR)/apptainer/bin/starter`

// rounds lists the planted faults: each round plants those of its two lists on n1 and n2, and doctor checks both nodes
// once.
var rounds = [][2][]nodeFault{{{
	{"no Apptainer", `mount --bind /dev/null /usr/bin/apptainer`, "apptainer", "not there"},
	{"no timeout", `mount --bind /dev/null /usr/bin/timeout`, "node_tools", "timeout"},
	{"/tmp full", `mount -t tmpfs -o size=64k,mode=1777 t /tmp; head -c 1M /dev/zero >/tmp/fill || true`, "node_tmp", "No space left"},
	{"clock ahead", `printf '#!/bin/bash\necho $(( $(printf "%%(%%s)T") + 100 ))\n' >$3/date; chmod 755 $3/date
		mount --bind $3/date /usr/bin/date`,
		"node_clock", "ahead"},
	{"another seccomp profile", `echo '{}' >$3/profile; chmod 644 $3/profile; mount --bind $3/profile $1/seccomp.json`, "node_seccomp",
		"other bytes"},
}, {
	{"Apptainer too old", `printf '#!/bin/sh\necho apptainer version 1.0.3\n' >$3/old; chmod 755 $3/old
		mount --bind $3/old /usr/bin/apptainer`,
		"apptainer", "too old"},
	{"no image store", `mount -t tmpfs -o mode=755 t $1/images; mount -t tmpfs -o mode=700 t $1/images`, "node_images", "missing"},
	{"user unknown", `grep -v ^lab: /etc/passwd >$3/passwd; chmod 644 $3/passwd; mount --bind $3/passwd /etc/passwd`, "node_user",
		"knows no user"},
	{"no inodes in /tmp", `mount -t tmpfs -o nr_inodes=2,mode=1777 t /tmp; touch /tmp/a || true`, "node_tmp", "No space left"},
	{"files limited", `prlimit --pid "$(devd status | awk '$1 == "slurmd-n2" { print $3 }')" --fsize=4194304`, "node_limits", "max file size"},
}}, {{
	{"starter not executable", `touch $3/starter; mount --bind $3/starter ` + starter, "container", "permission denied"},
	{"another user of this uid", `sed s/^lab:/bal:/ /etc/passwd >$3/passwd; chmod 644 $3/passwd; mount --bind $3/passwd /etc/passwd`,
		"node_user",
		"is bal there"},
}, {
	{"apptainer.conf unreadable", `cp /etc/apptainer/apptainer.conf $3/conf; chmod 0 $3/conf
		mount --bind $3/conf /etc/apptainer/apptainer.conf`,
		"container", "configuration"},
	{"image unreadable", `cp $1/images/$2.sif $3/sif; chmod 0 $3/sif; mount --bind $3/sif $1/images/$2.sif`, "node_images", "cannot be read"},
	{"noexec", `mount --bind $1/runs $1/runs; mount -o remount,bind,noexec $1/runs`, "node_programs", "denied"},
	{"little room in /tmp", `mount -t tmpfs -o size=8m,mode=1777 t /tmp`, "node_tmp", "MiB free"},
}}, {{
	{"no FUSE", `touch $3/fuse; chmod 0 $3/fuse; mount --bind $3/fuse /dev/fuse`, "node_fuse", "denied"},
	{"clock behind", `printf '#!/bin/bash\necho $(( $(printf "%%(%%s)T") - 100 ))\n' >$3/date; chmod 755 $3/date
		mount --bind $3/date /usr/bin/date`,
		"node_clock", "behind"},
	{"another image store", `head -c "$(stat -c %s $1/images/$2.sif)" /dev/zero >$3/sif; chmod 644 $3/sif
		mount --bind $3/sif $1/images/$2.sif`,
		"node_images", "other bytes"},
}, {
	{"no user namespaces", `CHROOT`, "node_namespaces", "not permitted"},
}}, {{
	{"no bash", `mount --bind /dev/null /usr/bin/bash`, "node_tools", "bash"},
}, {
	{"another folder of the site's name", `mkdir $3/d; mount --bind $3/d $1/images; touch $1/images/$2.sif`, "node_images", "another size"},
}}, {{
	{"runs_dir read-only", `mount --bind $1/runs $1/runs; mount -o remount,bind,ro $1/runs`, "node_runs_dir", "cannot write"},
}, {
	{"runs_dir another filesystem", `mount -t tmpfs -o mode=755 t $1/runs`, "shared_filesystem", "another filesystem"},
}}, {{
	{"runs_dir missing", `mount -t tmpfs -o mode=755 t $1`, "shared_filesystem", "missing"},
}, {
	{"runs_dir stale", `mkdir -p $3/root; mksquashfs $3/root $3/empty.sqfs -quiet -no-progress >/dev/null
		squashfuse -f -o allow_other $3/empty.sqfs $1/runs &
		pid=$!; for n in {1..100}; do mountpoint -q $1/runs && break; sleep 0.05; done; kill -9 $pid`, "shared_filesystem", "cannot be reached"},
}}}

// onNode runs a bash line among the files of a node.
func onNode(t testing.TB, node, line string, args ...string) {
	t.Helper()
	shell(t, "root", `node=$1 line=$2; shift 2; devd on "slurmd-$node" bash -euc "$line" bash "$@"`, append([]string{node, line}, args...)...)
}

// heal resets the nodes' view of the files.
func heal(t testing.TB, nodes ...string) {
	t.Helper()
	// A slurmd that registers late would put a node back into service that a test takes out of it.
	shell(t, "root", `began=$(date +%s)
		for node; do devd restart "slurmd-$node"; done
		registered() {
			local node
			for node; do
				(($(date -d "$(scontrol show node "$node" | sed -n 's/.*SlurmdStartTime=\([^ ]*\).*/\1/p')" +%s) >= began)) || return
			done
			[[ $(sinfo -h -n n1,n2 -p main -o %T) == idle ]]
		}
		for n in {1..300}; do registered "$@" && exit; sleep 0.1; done; sinfo -N >&2; exit 1`, nodes...)
}

// plant plants a fault on a node.
func (s *site) plant(node string, f nodeFault) {
	s.t.Helper()
	if f.plant == "CHROOT" {
		shell(s.t, "root", `devd stop "slurmd-$1"; DEVD_CHROOT=yes devd start "slurmd-$1"
			for n in {1..300}; do [[ $(sinfo -h -n n1,n2 -p main -o %T) == idle ]] && exit; sleep 0.1; done; exit 1`, node)
		return
	}
	scratch := "/local/" + strings.ReplaceAll(strings.ReplaceAll(f.name, " ", "-"), "/", "")
	onNode(s.t, node, `mkdir -p $3; `+f.plant, s.dir, s.digest(), scratch)
}

// digest returns the digest of the only image in the site's store.
func (s *site) digest() string {
	entries := value(os.ReadDir(host(s.dir) + "/images"))(s.t)
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), ".sif"); is {
			return name
		}
	}
	s.t.Fatal("the site's store has no image")
	return ""
}

func (s *site) examineNodes(args ...string) examined {
	s.t.Helper()
	var e examined
	s.cli(append([]string{"doctor", "--json"}, args...)...).object(s.t, &e)
	return e
}

// Each fault planted on a node is named by its check, with a remedy, and never passed as ok; healthy nodes have none.
// The test is not parallel: others use the same nodes.
//
// proves OPS-02
func TestFaultsOfNodes(t *testing.T) {
	s := newSite(t, "probing", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
	s.ok(nil, "image", "add", "probe", world.dir+"/probe.sif")
	s.seccomp()
	t.Cleanup(func() { heal(t, "n1", "n2") })
	healthy := func(when string) {
		e := s.examineNodes("--all-nodes")
		looked := map[string]bool{}
		for _, f := range e.Findings {
			if f.Where != "node" {
				continue
			}
			looked[f.Node] = true
			if f.Status != "ok" && f.Node != "big1" {
				t.Errorf("%s the faults doctor finds %+v on a healthy node, want ok", when, f)
			}
		}
		if !looked["n1"] || !looked["n2"] {
			t.Errorf("%s: looked at %v", when, looked)
		}
	}
	healthy("before")
	var table strings.Builder
	for _, nodes := range rounds {
		for i, faults := range nodes {
			for _, f := range faults {
				s.plant(fmt.Sprintf("n%d", i+1), f)
			}
		}
		e := s.examineNodes("--node", "n[1-2]")
		for i, faults := range nodes {
			for _, f := range faults {
				node, named := fmt.Sprintf("n%d", i+1), false
				for _, x := range e.Findings {
					if x.Node != node || x.Code != f.code {
						continue
					}
					if x.Status == "ok" {
						t.Errorf("%s on %s: %s is ok: %s", f.name, node, x.Code, x.Found)
					}
					if strings.Contains(x.Found, f.found) && x.Remedy != "" {
						named = true
						fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", f.name, x.Code, x.Status, x.Found, x.Remedy)
					}
				}
				if !named {
					t.Errorf("%s on %s is not named by %s, but doctor finds %+v", f.name, node, f.code,
						ofNode(e, node))
				}
			}
		}
		if left := shell(t, "lab", `ls -A "$1/runs" | grep ^.doctor || true; squeue -h --me -o '%j %i' | grep ^sg-doctor || true`, s.dir); left != "" {
			t.Errorf("doctor left %s", left)
		}
		heal(t, "n1", "n2")
	}
	// Drained and not down: a slurmd that registers puts a node that is down back into service (ReturnToService).
	shell(t, "root", `scontrol update nodename=n2 state=drain reason=broken`)
	e := s.examineNodes("--node", "n2,n7")
	shell(t, "root", `scontrol update nodename=n2 state=resume`)
	for node, found := range map[string]string{"n2": "broken", "n7": "no node of this name"} {
		status := ""
		for _, f := range e.Findings {
			if f.Node == node && f.Code == "probe_job" && strings.Contains(f.Found, found) {
				status = f.Status
			}
		}
		if status != "unknown" && status != "fault" {
			t.Errorf("doctor of %s finds %+v, want probe_job unknown or a fault, with %q", node, ofNode(e, node),
				found)
		}
	}
	heal(t, "n2")
	healthy("after")
	t.Logf("\n| fault | check | status | found | remedy |\n|---|---|---|---|---|\n%s", table.String())
}

// ofNode returns the results about a node that are not ok.
func ofNode(e examined, node string) (list []string) {
	for _, f := range e.Findings {
		if f.Status != "ok" && f.Where == "node" && (f.Node == node || f.Node == "") {
			list = append(list, f.Node+" "+f.Code+" "+f.Status+": "+f.Found)
		}
	}
	return list
}

// ^C ends doctor at once: its jobs are cancelled, and nothing is left in runs_dir. A node that is busy meanwhile is not passed as ok.
func TestDoctorInterrupted(t *testing.T) {
	s := newSite(t, "genomics")
	job := shell(t, "lab", `sbatch --parsable --exclusive --nodes=2 --partition=main --mem=0 --output=/dev/null --wrap "sleep 600"`)
	defer shell(t, "lab", `scancel "$1"`, job)
	until(t, "busy nodes", func() bool { return shell(t, "lab", `squeue -h -j "$1" -o %T`, job) == "RUNNING" })
	c, out, done := s.background("doctor", "--all-nodes", "--json")
	until(t, "probe jobs", func() bool { return strings.Contains(shell(t, "lab", `squeue -h --me -r -o "%j %T"`), "sg-doctor") })
	must(t, c.Process.Signal(syscall.SIGINT))
	<-done // of the way into the cluster; doctor itself gets TERM with it
	until(t, "end without traces", func() bool {
		return shell(t, "lab", `ls -A "$1/runs" | grep ^.doctor || true; squeue -h --me -o %j | grep doctor || true`, s.dir) == ""
	})
	if strings.Contains(out.String(), `"code":"container","where":"node","node":"n1","status":"ok"`) {
		t.Errorf("doctor, interrupted while the nodes were busy, reports n1's container as ok: %s", out)
	}
}
