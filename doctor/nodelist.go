package doctor

import (
	"strings"
)

const probeJob, sharedFiles, nodeApptainer, nodeContainer = "probe_job", "shared_filesystem", "apptainer", "container"

// nodeChecks are the checks of compute nodes, by a probe job.
func nodeChecks() []Check {
	const profile = "copy site-configs/seccomp.json to a folder that all nodes see, and name it in apptainer.seccomp"
	in := []string{nodeContainer}
	return []Check{{
		Code: probeJob, Proves: "A probe job runs on compute nodes, and the gateway sees what it wrote.", Where: Node, Cluster: true,
		Remedy: "see the reason that Slurm names for the job: squeue --me",
	}, {
		Code: "job_name", Proves: "Slurm keeps the names of jobs.", Where: Node, Cluster: true,
		Remedy: "exempt slurmgate's jobs from the job-submit plugin that rewrites names: the gateway finds its jobs by name",
	}, {
		Code: sharedFiles, Proves: "The node sees what the gateway wrote to storage.runs_dir.", Where: Node, Cluster: true,
		Remedy: "mount the filesystem of storage.runs_dir on the node, under the same path", Judge: seesToken,
	}, {
		Code: "claim_link", Proves: "A link made on the node is exclusive for all nodes.", Where: Node, Cluster: true,
		Remedy: "choose another filesystem for storage.runs_dir: link(2) must be exclusive across all nodes", Judge: claims,
	}, {
		Code: "job_environment", Proves: "Jobs get no variables but Slurm's.", Where: Node, Cluster: true,
		Remedy: "look for a prolog or a PAM module that sets them",
		Judge: func(_ *Exam, n *Seen) []Result {
			if n.Value["env"] != "0" {
				return warning("", "%s variables other than Slurm's reach jobs (but not containers)", n.Value["env"])
			}
			return ok("only Slurm's variables")
		},
	}, {
		Code: "node_binds", Proves: "The node has every folder of apptainer.binds.", Where: Node, Cluster: true,
		Remedy: "correct apptainer.binds, or mount the folder on that node: without it no container starts there",
		Judge: func(_ *Exam, n *Seen) []Result {
			if n.Value["bind"] != "" {
				return bad("", "has no folder %s", n.Value["bind"])
			}
			return ok("all folders of apptainer.binds exist")
		},
	}, {
		Code: nodeApptainer, Proves: "The node has Apptainer where the site file says.", Where: Node, Cluster: true,
		Remedy: "install Apptainer on the node, or correct apptainer.path or apptainer.module",
		Judge: func(_ *Exam, n *Seen) []Result {
			if !strings.HasPrefix(n.Value["apptainer"], "apptainer version") {
				return bad("", "%s", n.Value["apptainer"])
			}
			return ok("%s", n.Value["apptainer"])
		},
	}, {
		Code: nodeContainer, Proves: "A container starts on the node without a network.", Where: Node, Cluster: true,
		Needs:  []string{nodeApptainer},
		Remedy: "run the command of the job script by hand on that node",
		Judge: func(x *Exam, n *Seen) []Result {
			switch {
			case x.Image == "":
				return unknown("", "no container was started, because there is no image to try")
			case n.Value["container"] != "ok":
				return bad("", "%s", n.Value["container"])
			}
			return ok("starts without a network")
		},
	}, {
		Code: "container_privileges", Proves: "A program in a container has no capabilities and can gain none.", Where: Node, Cluster: true,
		Needs:  in,
		Remedy: "run jobs as a user other than root; look for settings of apptainer.conf and capability.json that add capabilities",
		Judge:  wall(privileges),
	}, {
		Code: "container_network", Proves: "A program in a container sees no network but its own loopback.", Where: Node, Cluster: true,
		Needs:  in,
		Remedy: "find out why Apptainer does not obey --net --network none",
		Judge: wall(func(v map[string]string) []Result {
			if v["wall.net"] != "lo" {
				return bad("", "network interfaces %s", v["wall.net"])
			}
			return ok("none but its own loopback")
		}),
	}, {
		Code: "container_processes", Proves: "A program in a container sees only its own processes.", Where: Node, Cluster: true, Needs: in,
		Remedy: "set \"allow pid ns = yes\" in apptainer.conf",
		Judge: wall(func(v map[string]string) []Result {
			if n := v["wall.pids"]; n == "" || len(n) > 1 {
				return bad("", "sees %s processes", n)
			}
			return ok("sees only its own")
		}),
	}, {
		Code: "container_seccomp", Proves: "A seccomp profile is in force in a container.", Where: Node, Cluster: true, Needs: in,
		Remedy: profile,
		Judge: wall(func(v map[string]string) []Result {
			if v["wall.Seccomp"] != "2" {
				return warning("", "no seccomp profile: programs can make every system call")
			}
			return ok("a profile is in force")
		}),
	}, {
		Code: "container_namespaces", Proves: "A program in a container cannot make user namespaces.", Where: Node, Cluster: true, Needs: in,
		Remedy: profile,
		Judge: wall(func(v map[string]string) []Result {
			if v["wall.users"] == "possible" {
				return warning("", "possible: a program gets all capabilities in a namespace of its own, with which more of the kernel can be attacked")
			}
			return ok("%s", strings.TrimPrefix(v["wall.users"], "refused: "))
		}),
	}}
}

func seesToken(_ *Exam, n *Seen) []Result {
	if n.Value["token"] != n.Token {
		return bad("", "reads %s instead of what the gateway wrote", n.Value["token"])
	}
	return ok("sees the gateway's files")
}

// claims: the first node's link wins, and the others find it.
func claims(_ *Exam, n *Seen) []Result {
	if n.Value["claim"] == "" || (n.Value["claim"] == n.Job) != n.First {
		return bad("", "the claim reads %s", n.Value["claim"])
	}
	return ok("the first link wins (%s)", n.Value["claim"])
}

// wall judges what a program found in a container; without its whole answer that is unknown.
func wall(judge func(v map[string]string) []Result) func(*Exam, *Seen) []Result {
	return func(_ *Exam, n *Seen) []Result {
		if n.Value["wall.end"] == "" {
			return unknown("run the command of the job script by hand on that node, with /bin/cat /proc/self/status",
				"could not be examined: the node's bash does not run in a container")
		}
		return judge(n.Value)
	}
}

func privileges(v map[string]string) []Result {
	none := strings.Trim(v["wall.CapBnd"]+v["wall.CapEff"], "0") == ""
	if !none || v["wall.NoNewPrivs"] != "1" {
		return bad("", "capabilities %s (bounding set %s), no_new_privs %s", v["wall.CapEff"], v["wall.CapBnd"], v["wall.NoNewPrivs"])
	}
	return ok("no capabilities, and none to be gained (no_new_privs)")
}
