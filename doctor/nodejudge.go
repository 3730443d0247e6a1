package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/nss"
)

// Bounds of what is enough on a node.
const (
	tmpBytes   = 64 << 20 // free in /tmp
	enoughFile = 1 << 30  // bytes of a file that a job may write
	enoughOpen = 256      // open files of a process
	enoughProc = 64       // processes of the user
	enoughMem  = 4 << 30  // bytes of address space: Apptainer is a Go program
)

// said judges an answer that is "ok", or else describes the fault.
func said(question string, otherwise func(string, string, ...any) []Result, good, wrong string) func(*Exam, *Seen) []Result {
	return func(_ *Exam, n *Seen) []Result {
		if v := n.Value[question]; strings.TrimSpace(v) != "ok" {
			return otherwise("", wrong, v)
		}
		return ok("%s", good)
	}
}

// unlessSetuid judges an answer that does not matter where Apptainer is installed setuid.
func unlessSetuid(question, good, wrong string) func(*Exam, *Seen) []Result {
	return func(x *Exam, n *Seen) []Result {
		if n.Value["suid"] == "yes" && n.Value[question] != "ok" {
			return ok("not needed: Apptainer is installed setuid (%s)", n.Value[question])
		}
		return said(question, bad, good, wrong)(x, n)
	}
}

// room reads "blocks block-size inodes-free inodes"; inodes is 0 where a filesystem has no fixed number.
func room(answer string) (bytes, free, inodes int64, err error) {
	var blocks, size int64
	_, err = fmt.Sscan(answer, &blocks, &size, &free, &inodes)
	return blocks * size, free, inodes, err
}

func writes(x *Exam, n *Seen) []Result {
	bytes, free, inodes, err := room(n.Value["room"])
	switch need := int64(x.Cluster.Storage.ReserveMB) << 20; {
	case err != nil:
		return unknown("", "the free space cannot be read: %s", n.Value["room"])
	case bytes < need:
		return bad("", "storage.runs_dir has %d MiB free there; storage.reserve_mb is %d", bytes>>20, need>>20)
	case inodes > 0 && free < fewInodes:
		return bad("", "storage.runs_dir has only %d inodes free there", free)
	}
	return ok("a job wrote there; %d MiB are free", bytes>>20)
}

func nodeScratch(x *Exam, n *Seen) []Result {
	switch said, is := n.Value["scratch"]; {
	case !is:
		return unknown("", "the probe did not answer this (scratch)")
	case said == "none":
		return ok("no folder is set (slurm.scratch): /tmp of containers is in storage.runs_dir")
	case said != "ok":
		return bad("", "a job cannot write 64 KiB to %s: %s", x.Cluster.Slurm.Scratch, said)
	}
	return ok("a job wrote to %s", x.Cluster.Slurm.Scratch)
}

func nodeTmp(_ *Exam, n *Seen) []Result {
	if n.Value["tmp"] != "ok" {
		return bad("", "a job cannot write 64 KiB to /tmp: %s", n.Value["tmp"])
	}
	bytes, free, inodes, err := room(n.Value["tmp_room"])
	switch {
	case err != nil:
		return unknown("", "the free space of /tmp cannot be read: %s", n.Value["tmp_room"])
	case bytes < tmpBytes:
		return warning("", "/tmp has %d MiB free", bytes>>20)
	case inodes > 0 && free < fewInodes:
		return warning("", "/tmp has %d inodes free", free)
	}
	return ok("/tmp has %d MiB free", bytes>>20)
}

// claims: one link wins, and all nodes read the same.
func claims(_ *Exam, n *Seen) []Result {
	switch {
	case n.Value["claim"] == "":
		return bad("", "a job could make no link in storage.runs_dir")
	case n.Value["claim"] != n.Winner || n.Won > 1:
		return bad("", "job %s reads the claim of %s, another node reads that of %s", n.Job, n.Value["claim"], n.Winner)
	}
	return ok("the first link wins (%s)", n.Value["claim"])
}

func nodeImages(x *Exam, n *Seen) []Result {
	least := smallest(x.stored)
	switch {
	case n.Value["store"] != "ok":
		return bad("", "has no folder %s", x.Cluster.Storage.ImageStore)
	case n.Value["images"] != "":
		return bad("", "%s", n.Value["images"])
	case least.path == "":
		return unknown("", "no image was looked for, because the gateway has none")
	case n.Value["digest"] != least.digest():
		return bad("", "%s has other bytes than on the gateway's host: another image store is mounted there (%s)", least.path,
			fault.ClipTo(n.Value["digest"], 80))
	}
	return ok("has all %d images; the bytes of the smallest are the gateway's", len(x.stored))
}

func nodeUser(x *Exam, n *Seen) []Result {
	me, err, whose := x.there, error(nil), "the login node"
	switch {
	case x.Login != nil:
	case x.Data != nil:
		whose = "the SFTP server"
	default:
		me, err = (nss.Host{}).UserOf(context.Background(), os.Geteuid())
		whose = "the gateway's host"
	}
	f := strings.Fields(n.Value["user"])
	switch {
	case err != nil || me.Name == "" || len(f) != 3:
		return unknown("", "the users cannot be compared: %v, %s", err, n.Value["user"])
	case f[0] != fmt.Sprint(me.UID):
		return bad("", "jobs run as uid %s, the gateway as %s", f[0], fmt.Sprint(me.UID))
	case f[1] == "-":
		return bad("", "the node knows no user with uid %s, which is %s on %s", f[0], me.Name, whose)
	case f[1] != me.Name:
		return bad("", "uid %s is %s there and %s on %s", f[0], f[1], me.Name, whose)
	case f[2] != fmt.Sprint(me.GID):
		return warning("", "the group of %s is %s there and %s on %s", f[1], f[2], fmt.Sprint(me.GID), whose)
	}
	return ok("%s (uid %s)", f[1], f[0])
}

// nodeClock judges the node's clock. The probe read it between the start and the end of its job by Slurm's clock, and before the gateway
// read the answer, which may be much later.
func nodeClock(_ *Exam, n *Seen) []Result {
	seconds, err := strconv.ParseInt(n.Value["time"], 10, 64)
	if err != nil {
		return unknown("", "the node's time cannot be read: %s", n.Value["time"])
	}
	after := n.Read
	if !n.End.IsZero() && n.End.Before(after) {
		after = n.End
	}
	return skew("the node", time.Unix(seconds, 0), n.Start.Add(-time.Second), after.Add(time.Second)) // all are whole seconds
}

// nodeLimits reads lines of /proc/self/limits: name, soft limit, hard limit, unit.
func nodeLimits(_ *Exam, n *Seen) []Result {
	least := map[string]int64{"Max file size": enoughFile, "Max processes": enoughProc, "Max open files": enoughOpen,
		"Max address space": enoughMem}
	found := 0
	for line := range strings.SplitSeq(n.Value["limits"], ";") {
		for name, need := range least {
			rest, is := strings.CutPrefix(strings.TrimSpace(line), name+" ")
			if !is {
				continue
			}
			found++
			soft, _, _ := strings.Cut(rest, " ")
			if have, err := strconv.ParseInt(soft, 10, 64); err == nil && have < need {
				return bad("", "%s of a job is %d, which is less than %d", strings.ToLower(name), have, need)
			}
		}
	}
	if found != len(least) {
		return unknown("", "the limits cannot be read: %s", n.Value["limits"])
	}
	return ok("files, processes and memory of a job are not limited too closely")
}

func nodeSeccomp(x *Exam, n *Seen) []Result {
	path := x.Cluster.Apptainer.Seccomp
	if path == "" {
		return ok("no profile is set (apptainer.seccomp)")
	}
	there, is := n.Value["seccomp"]
	if !is {
		return unknown("", "the probe did not answer this (seccomp)")
	}
	if len(there) != 2*sha256.Size {
		return bad("", "a job cannot read %s", path)
	}
	if x.Data != nil {
		return ok("a job can read %s", path)
	}
	here, err := os.ReadFile(path)
	sum := sha256.Sum256(here)
	switch {
	case err != nil:
		return ok("a job can read %s, which this host does not have", path)
	case hex.EncodeToString(sum[:]) != there:
		return bad("", "%s has other bytes there than on the gateway's host", path)
	}
	return ok("%s", path)
}

// leastApptainer is the oldest version with the options of a job.
var leastApptainer = [2]int{1, 2}

func nodeVersion(_ *Exam, n *Seen) []Result {
	said := n.Value["apptainer"]
	version, is := strings.CutPrefix(said, "apptainer version ")
	var have [2]int
	_, err := fmt.Sscanf(version, "%d.%d", &have[0], &have[1])
	switch {
	case strings.HasPrefix(said, "missing"):
		return bad("", "%s is not there, or cannot be executed", strings.TrimSpace(strings.TrimPrefix(said, "missing")))
	case !is || err != nil:
		return bad("", "apptainer --version %s", fault.ClipTo(said, 300))
	case have[0] < leastApptainer[0] || have[0] == leastApptainer[0] && have[1] < leastApptainer[1]:
		return bad("", "version %s is too old: jobs need %d.%d", version, leastApptainer[0], leastApptainer[1])
	}
	return ok("%s", said)
}

// inContainer judges what a program found in a container. Where the node's bash does not run in the image, the container was
// not examined; it has started, and runs are not concerned.
func inContainer(judge func(v map[string]string) []Result) func(*Exam, *Seen) []Result {
	return func(_ *Exam, n *Seen) []Result {
		switch why, failed := n.Value["wall.failed"]; {
		case n.Value["wall.end"] != "":
			return judge(n.Value)
		case failed:
			return warning("look with a tool of your own whose image has a shell",
				"not seen, because the node's bash does not run in the image that was tried (exit status %s)", why)
		}
		return n.answered([]string{"wall.end"})
	}
}

func privileges(v map[string]string) []Result {
	none := v["wall.CapBnd"] != "" && v["wall.CapEff"] != "" && strings.Trim(v["wall.CapBnd"]+v["wall.CapEff"], "0") == ""
	if !none || v["wall.NoNewPrivs"] != "1" {
		return bad("", "capabilities %s (bounding set %s), no_new_privs %s", v["wall.CapEff"], v["wall.CapBnd"], v["wall.NoNewPrivs"])
	}
	return ok("no capabilities, and none to be gained (no_new_privs)")
}
