package e2e

// plantedInSlurm returns faults of Slurm, of its commands, and of where jobs may go.
func plantedInSlurm() []planted {
	add := func(value string) [][2]string {
		return [][2]string{{"  transport: cli\n", "  transport: cli\n  " + value + "\n"}}
	}
	byDefault := func(kind, from, to string) [][2]string {
		return [][2]string{{"default_" + kind + ": " + from, "default_" + kind + ": " + to}}
	}
	partitions := func(list string) [][2]string {
		return [][2]string{{"partitions_allowlist: [main, short]", "partitions_allowlist: [" + list + "]"}}
	}
	return []planted{
		{name: "Slurm's commands are elsewhere", code: "slurm_commands", status: "fault", found: "cannot be opened",
			edit: add("bin_dir: /opt/nothing")},
		{name: "slurm.conf is not there", code: "slurm_commands", status: "fault", found: "/etc/nothing.conf",
			edit: add("conf: /etc/nothing.conf")},
		{name: "slurmctld does not answer", code: "slurm_controller", status: "fault", found: "scontrol", plant: func(s *site) {
			shell(s.t, "lab", `sed 's/^SlurmctldHost=.*/&\nSlurmctldPort=6999/; s/^MessageTimeout=.*/MessageTimeout=2/' /etc/slurm/slurm.conf >"$1/slurm.conf"`, s.dir)
			s.replace("site.yaml", "  transport: cli\n", "  transport: cli\n  conf: "+s.dir+"/slurm.conf\n")
		}},
		{name: "it is another cluster", code: "cluster_name", status: "fault", found: "slurm.cluster is other", edit: add("cluster: other"),
			serve: "other"},
		{name: "Slurm is too old", code: "slurm_version", status: "fault", found: "19.05", plant: func(s *site) {
			s.wrapped("sbatch", `[[ $1 == --version ]] && echo "slurm 19.05.8" || exec /usr/bin/sbatch "$@"`)
		}},
		{name: "ended jobs leave squeue at once", code: "min_job_age", status: "warning", found: "2s", plant: config("MinJobAge", "2 sec")},
		{name: "slurmctld hides its timeout", code: "message_timeout", status: "fault", found: "MessageTimeout", plant: config("MessageTimeout",
			"none")},
		{name: "killed jobs have no time for their exit file", code: "kill_wait", status: "warning", found: "KillWait",
			edit: [][2]string{{"grace_seconds: 2", "grace_seconds: 60"}}},
		{name: "slurmctld's clock is wrong", code: "clock_slurmctld", status: "fault", found: "behind", plant: func(s *site) {
			s.wrapped("scontrol", `/usr/bin/scontrol "$@" | sed "s/^Configuration data as of .*/Configuration data as of $(($(date +%s) - 600))/"`)
		}},
		{name: "slurmctld's clock is a little ahead", code: "clock_slurmctld", status: "warning", found: "ahead", plant: func(s *site) {
			s.wrapped("scontrol", `/usr/bin/scontrol "$@" | sed "s/^Configuration data as of .*/Configuration data as of $(($(date +%s) + 20))/"`)
		}},
		{name: "Slurm takes few jobs", code: "max_job_count", status: "warning", found: "MaxJobCount is 50", plant: config("MaxJobCount", "50")},
		{name: "arrays are too small", code: "max_array_size", status: "warning", found: "MaxArraySize is 1", plant: config("MaxArraySize", "1")},
		{name: "accounting is required and off", code: "accounting", status: "fault", found: "disabled", plant: func(s *site) {
			s.wrapped("sacct", `echo "Slurm accounting storage is disabled" >&2; exit 1`)
		}},
		{name: "sacct fails, and accounting is not required", code: "accounting", status: "warning", found: "exit files", plant: func(s *site) {
			s.replace("site.yaml", "accounting: required", "accounting: auto")
			s.wrapped("sacct", `echo "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection" >&2; exit 1`)
		}},
		{name: "squeue answers in part", code: "squeue", status: "fault", found: "squeue", plant: func(s *site) {
			s.wrapped("squeue", `echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1`)
		}},
		{name: "sinfo is missing", code: "slurm_condition", status: "fault", found: "sinfo", plant: func(s *site) {
			s.wrapped("sinfo", `exit 127`)
		}},
		{name: "no such default partition", code: "partitions", status: "fault", found: "no partition nothing",
			edit: byDefault("partition", "main", "nothing"), also: []string{"default_placement"}},
		{name: "policy allows a partition that is not there", code: "partitions", status: "fault", found: "no partition gone",
			rules: partitions("main, short, gone")},
		{name: "the default partition is down", code: "partitions", status: "fault", found: "is DOWN", edit: byDefault("partition", "main",
			"planted"),
			rules: partitions("main, short, planted"), front: func(s *site) func() {
				shell(s.t, "root", `scontrol create PartitionName=planted Nodes=n1 State=DOWN MaxTime=60`)
				return func() { shell(s.t, "root", `scontrol delete PartitionName=planted`) }
			}},
		{name: "all nodes of an allowed partition are down", code: "partitions", status: "warning", found: "none of the 1 node of partition big",
			rules: partitions("main, short, big")},
		{name: "all nodes of the default partition are down", code: "partitions", status: "fault", found: "partition big",
			edit: byDefault("partition", "main", "big"), rules: partitions("main, short, big")},
		{name: "no such account", code: "accounts", status: "fault", found: "may not charge account nothing", edit: byDefault("account",
			"research", "nothing"),
			rules: [][2]string{{"accounts_allowlist: [research]", "accounts_allowlist: [research, nothing]"}}},
		{name: "policy allows an account that the service may not charge", code: "accounts", status: "fault", found: "account others",
			rules: [][2]string{{"accounts_allowlist: [research]", "accounts_allowlist: [research, others]"}}},
		{name: "no such QOS", code: "accounts", status: "fault", found: "no QOS nothing",
			edit: [][2]string{{"  default_account: research\n", "  default_account: research\n  default_qos: nothing\n"}}},
		{name: "the QOS takes two jobs", code: "submit_limits", status: "warning", found: "QOS tiny takes at most 2 jobs",
			edit: [][2]string{{"  default_account: research\n", "  default_account: research\n  default_qos: tiny\n"}}},
		{name: "the account takes no job", code: "submit_limits", status: "fault", found: "takes no job",
			edit:  byDefault("account", "research", "planted"),
			rules: [][2]string{{"accounts_allowlist: [research]", "accounts_allowlist: [research, planted]"}}, also: []string{"tool_jobs"},
			front: func(s *site) func() {
				shell(s.t, "root", `sacctmgr -i add account planted cluster=devcluster
					sacctmgr -i add user lab account=planted cluster=devcluster MaxSubmitJobs=0`)
				until(s.t, "association", func() bool { // slurmctld learns of it from slurmdbd
					return shell(s.t, "root", `scontrol show assoc_mgr users=lab flags=assoc | grep -c Account=planted || true`) != "0"
				})
				return func() { shell(s.t, "root", `sacctmgr -i delete account planted cluster=devcluster`) }
			}},
		{name: "the default partition is too short for the tools", code: "tool_jobs", status: "fault", found: "time limit",
			edit: byDefault("partition", "main", "short")},
	}
}
