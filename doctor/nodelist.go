package doctor

import (
	"strings"
)

const (
	probeJob, sharedFiles, nodeWrites = "probe_job", "shared_filesystem", "node_runs_dir"
	nodeApptainer, nodeContainer      = "apptainer", "container"
)

// nodeChecks returns the checks of compute nodes, by a probe job. None of the remedies changes the node by itself.
func nodeChecks() []Check {
	list := append(nodeFileChecks(), nodeSystemChecks()...)
	list = append(list, containerChecks()...)
	for i := range list {
		list[i].Where, list[i].Cluster = Node, true
	}
	return list
}

// nodeFileChecks returns the checks of the folders that the gateway and nodes share.
func nodeFileChecks() []Check {
	return []Check{{
		Code: probeJob, Proves: "A probe job ran on a compute node, and the gateway read its answer.",
		Remedy: "see the reason that Slurm names for the job: squeue --me --states=all",
	}, {
		Code: "job_name", Proves: "Slurm keeps the names of jobs.",
		Remedy: "exempt jobs whose names begin with sg- from the job_submit plugin that rewrites names; until then the gateway finds " +
			"them by their working folders, and each run says job_renamed",
	}, {
		Code: sharedFiles, Proves: "A job on the node reads what the gateway wrote to storage.runs_dir.",
		Remedy: "mount the filesystem of storage.runs_dir on the node under the same path; compare with: findmnt --target RUNS_DIR",
		Judge:  func(*Exam, *Seen) []Result { return ok("reads what the gateway wrote") },
	}, {
		Code: nodeWrites, Proves: "The gateway reads what a job on the node wrote to storage.runs_dir, and there is room for more.",
		Remedy: "mount storage.runs_dir writable on the node, and free space or raise the quota of the service user; compare with: df -h -i " +
			"RUNS_DIR",
		Judge: writes, Asks: []string{"room"},
	}, {
		Code: "claim_link", Proves: "A link made on the node is exclusive for all nodes.",
		Remedy: "choose another filesystem for storage.runs_dir: link(2) must be exclusive across all nodes", Judge: claims,
		Asks: []string{"claim"},
	}, {
		Code: "node_programs", Proves: "A program that a job writes below storage.runs_dir can be executed there.",
		Remedy: "mount the filesystem of storage.runs_dir without noexec on the node: tools that build and start programs fail there",
		Judge:  said("programs", warning, "programs can be executed", "a program below storage.runs_dir cannot be executed: %s"),
		Asks:   []string{"programs"},
	}, {
		Code: "node_images", Proves: "The node has the images that tools name, with their sizes, readable for jobs, and the smallest with its " +
			"bytes.",
		Remedy: "mount storage.image_store on the node, readable for the service user; compare with: findmnt --target IMAGE_STORE",
		Judge:  nodeImages, Asks: []string{"store", "images"},
	}, {
		Code: "node_binds", Proves: "The node has every folder of apptainer.binds and storage.in_place, and storage.bind_artifacts.",
		Remedy: "correct apptainer.binds, or mount the folder on that node: without it no container starts there",
		Judge: func(_ *Exam, n *Seen) []Result {
			if n.Value["binds"] != "" {
				return bad("", "has no folder %s", n.Value["binds"])
			}
			return ok("all folders of apptainer.binds exist")
		}, Asks: []string{"binds"},
	}, {
		Code: "node_references", Proves: "Jobs on the node can read every reference in place.",
		Remedy: "mount the filesystem on that node, and let the user of jobs read the file or folder: runs that use the reference fail there",
		Judge:  nodeReferences, Asks: []string{"references"},
	}}
}

// nodeSystemChecks returns the checks of the node's system.
func nodeSystemChecks() []Check {
	return []Check{{
		Code: "node_user", Proves: "Jobs run as the gateway's user, which the node knows by the same name and group.",
		Remedy: "let the node find the user where the gateway's host does; compare with: getent passwd UID", Judge: nodeUser,
		Asks: []string{"user"},
	}, {
		Code: "node_clock", Proves: "The node's clock agrees with that of the gateway's host.",
		Remedy: "look at the time service of the node: chronyc tracking", Judge: nodeClock, Asks: []string{"time"},
	}, {
		Code: "node_tools", Proves: "The node has the programs that the job script uses.",
		Remedy: "install bash and coreutils on the node, in /usr/bin or /bin",
		Judge:  said("tools", bad, "all are there", "/usr/bin and /bin lack%s"), Asks: []string{"tools"},
	}, {
		Code: "node_tmp", Proves: "Jobs can write to /tmp of the node, and there is room.",
		Remedy: "free space or inodes of /tmp on the node, or raise the quota of the service user; look with: df -h -i /tmp",
		Judge:  nodeTmp, Asks: []string{"tmp", "tmp_room"},
	}, {
		Code: "node_scratch", Proves: "Jobs can write to the folder of slurm.scratch on the node.",
		Remedy: "make the folder on the node's own disk, with mode 1777, or correct slurm.scratch in the site file",
		Judge:  nodeScratch, Asks: []string{"scratch"},
	}, {
		Code: "node_limits", Proves: "The limits of a job's processes leave room for Apptainer and for outputs.",
		Remedy: "raise the limits of slurmd, which jobs inherit: systemctl show slurmd --property=LimitFSIZE,LimitNOFILE,LimitNPROC,LimitAS",
		Judge:  nodeLimits, Asks: []string{"limits"},
	}, {
		Code: "job_environment", Proves: "Jobs get no variables but Slurm's.",
		Remedy: "look for a prolog or a PAM module that sets them",
		Judge: func(_ *Exam, n *Seen) []Result {
			if n.Value["env"] != "0" {
				return warning("", "%s variables other than Slurm's reach jobs (but not containers)", n.Value["env"])
			}
			return ok("only Slurm's variables")
		}, Asks: []string{"env"},
	}, {
		Code: "node_seccomp", Proves: "The node has the seccomp profile of the site file, with the same bytes as the gateway's host.",
		Remedy: "copy the profile to the path of apptainer.seccomp on that node", Judge: nodeSeccomp,
	}}
}

// containerChecks returns the checks of Apptainer and of what a program in a container can do.
func containerChecks() []Check {
	const profile = "copy site-configs/seccomp.json to a folder that all nodes see, and name it in apptainer.seccomp"
	in := []string{nodeContainer}
	return []Check{{
		Code: nodeApptainer, Proves: "The node has an Apptainer that runs, 1.2 or newer, where the site file says.",
		Remedy: "install Apptainer 1.2 or newer on the node, or correct apptainer.path or apptainer.module", Judge: nodeVersion,
		Asks: []string{"apptainer"},
	}, {
		Code: "node_namespaces", Proves: "A job can make a user namespace, or Apptainer is installed setuid.", Needs: []string{nodeApptainer},
		Remedy: "allow user namespaces on the node; look with: sysctl user.max_user_namespaces kernel.unprivileged_userns_clone " +
			"kernel.apparmor_restrict_unprivileged_userns",
		Judge: unlessSetuid("namespaces", "user namespaces can be made", "a job cannot make a user namespace: %s"),
		Asks:  []string{"namespaces", "suid"},
	}, {
		Code: "node_fuse", Proves: "A job can open /dev/fuse, by which Apptainer mounts images, or Apptainer is installed setuid.",
		Needs:  []string{nodeApptainer},
		Remedy: "load the kernel module fuse on the node and let all users open /dev/fuse; look with: ls -l /dev/fuse",
		Judge:  unlessSetuid("fuse", "/dev/fuse can be opened", "a job cannot open /dev/fuse: %s"), Asks: []string{"fuse", "suid"},
	}, {
		Code: nodeContainer, Proves: "A container starts on the node without a network.", Needs: []string{nodeApptainer},
		Remedy: "run the command of the job script by hand on that node",
		Judge: func(x *Exam, n *Seen) []Result {
			said, is := n.Value["container"]
			switch {
			case len(x.stored) == 0:
				return unknown("", "no container was started, because there is no image to try")
			case !is:
				return unknown("", "the probe did not try to start a container")
			case said != "ok":
				return bad("", "%s", said)
			}
			return ok("starts without a network")
		},
	}, {
		Code: "container_privileges", Proves: "A program in a container has no capabilities and can gain none.", Needs: in,
		Remedy: "run jobs as a user other than root; look for settings of apptainer.conf and capability.json that add capabilities",
		Judge:  inContainer(privileges),
	}, {
		Code: "container_network", Proves: "A program in a container sees no network but its own loopback.", Needs: in,
		Remedy: "find out why Apptainer does not obey --net --network none",
		Judge: inContainer(func(v map[string]string) []Result {
			if v["wall.net"] != "lo" {
				return bad("", "network interfaces %s", v["wall.net"])
			}
			return ok("none but its own loopback")
		}),
	}, {
		Code: "container_processes", Proves: "A program in a container sees only its own processes.", Needs: in,
		Remedy: "set \"allow pid ns = yes\" in apptainer.conf",
		Judge: inContainer(func(v map[string]string) []Result {
			if n := v["wall.pids"]; n == "" || len(n) > 1 {
				return bad("", "sees %s processes", n)
			}
			return ok("sees only its own")
		}),
	}, {
		Code: "container_seccomp", Proves: "A seccomp profile is in force in a container.", Needs: in,
		Remedy: profile,
		Judge: inContainer(func(v map[string]string) []Result {
			if v["wall.Seccomp"] != "2" {
				return warning("", "no seccomp profile: programs can make every system call")
			}
			return ok("a profile is in force")
		}),
	}, {
		Code: "container_namespaces", Proves: "A program in a container cannot make user namespaces.", Needs: in,
		Remedy: profile,
		Judge: inContainer(func(v map[string]string) []Result {
			if !strings.HasPrefix(v["wall.users"], "refused: ") {
				return warning("", "possible: a program gets all capabilities in a separate namespace, with which more of the kernel can be attacked")
			}
			return ok("%s", strings.TrimPrefix(v["wall.users"], "refused: "))
		}),
	}}
}
