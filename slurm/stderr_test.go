package slurm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/run"
)

// harmlessLines do not affect an answer; failedCalls mean that it may be incomplete.
var (
	harmlessLines = []string{
		"PROGRAM: error: Ignoring obsolete SlurmctldTimeout=120 option. Please update your configuration.",
		`PROGRAM: error: _parse_next_key: Parsing error at unrecognized key: FastSchedule`,
		"ERROR: ld.so: object '/opt/socket/libconnect.so' from /etc/ld.so.preload cannot be preloaded (cannot open shared object file): ignored.",
		"krb5: error getting a ticket for uid 1001, continuing without one",
		"perl: warning: Setting locale failed.",
		"bash: /etc/profile.d/limits.sh: Permission denied",
		"Questions? Contact hpc@uni.example. Next connection to the new cluster: Monday",
		"warning: fatal_flaw is not a known spank option",
	}
	failedCalls = []string{
		"slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
		"slurm_load_partitions: Zero Bytes were transmitted or received",
		"Unable to contact slurm controller (connect failure)",
		"PROGRAM: error: Sending PersistInit msg: Connection refused",
		"PROGRAM: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: Connection timed out",
		"PROGRAM: error: Problem talking to the database: Connection refused",
		"PROGRAM: error: DBD_GET_JOBS_COND failure: Unspecified error",
		"PROGRAM: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory",
		"PROGRAM: error: Unable to establish configuration source",
		"PROGRAM: error: Socket timed out on send/recv operation",
		"PROGRAM: error: Failed to read all of the message",
		"PROGRAM: fatal: Could not establish a configuration source",
		"kinit: Cannot contact any KDC for realm 'UNI.EXAMPLE' while getting initial credentials",
		"ssh: connect to host login1 port 22: Connection timed out",
	}
)

func printedBy(program, line string) string {
	return strings.ReplaceAll(line, "PROGRAM", program) + "\n"
}

// A line of a failed call makes an answer an error. With any other line the shown jobs count, but none counts as absent
// until the line has come with the jobs of all open runs: then it is harmless for that command, for any numbers in it,
// and is reported once.
func TestLinesBesideAnswers(t *testing.T) {
	queue, fields := golden(t, "squeue-24.11.txt"), golden(t, "sacct-helpformat-24.11.txt")
	var noted []string
	ask := func(program, line string) (c *CLI, look func() ([]run.Job, error)) {
		c, r := fakeCLI(t)
		c.cfg.Harmless = func(said string) { noted = append(noted, said) }
		r.answer("sacct --helpformat", Output{Stdout: []byte(fields), Stderr: printedBy(program, line)})
		r.answer("sacct --dup", Output{Stdout: []byte(golden(t, "sacct-24.11.txt")), Stderr: printedBy(program, line)})
		r.answer("squeue", Output{Stdout: []byte(queue), Stderr: printedBy(program, line)})
		if program == "squeue" {
			return c, func() ([]run.Job, error) { return c.Jobs(t.Context(), nil) }
		}
		return c, func() ([]run.Job, error) { return c.Records(t.Context(), time.Unix(0, 0)) }
	}
	beside := func(jobs []run.Job) (why string) {
		if i := slices.IndexFunc(jobs, func(j run.Job) bool { return j.Beside && j.Class == run.ClassUnread && j.Name == "" }); i >= 0 {
			why = jobs[i].Why
		}
		return why
	}
	for _, program := range []string{"squeue", "sacct"} {
		for _, line := range harmlessLines {
			c, look := ask(program, line)
			first, err := look()
			why := beside(first)
			if err != nil || len(first) < 3 || !strings.HasPrefix(why, program+": ") {
				t.Errorf("%s with %q: %d jobs, %q, %v", program, line, len(first), why, err)
				continue
			}
			noted = nil
			c.Harmless(why)
			c.Harmless(strings.ReplaceAll(why, "1", "2")) // the same but for its numbers
			if jobs, err := look(); err != nil || beside(jobs) != "" || len(jobs) != len(first)-1 || len(noted) != 1 || noted[0] != why {
				t.Errorf("%s with %q, known as harmless: %d jobs, %q, %v, noted %q", program, line, len(jobs), beside(jobs), err, noted)
			}
			if other, err := c.Records(t.Context(), time.Unix(0, 0)); program == "squeue" && (err != nil || beside(other) == "") {
				t.Errorf("%q is harmless for squeue, and then for sacct too: %v", line, err)
			}
		}
		for _, line := range failedCalls {
			if _, look := ask(program, line); true {
				if jobs, err := look(); err == nil {
					t.Errorf("%s with %q: %d jobs", program, line, len(jobs))
				}
			}
		}
	}
}

// A line printed with the usage of all requested jobs is harmless too.
func TestLineBesideUsage(t *testing.T) {
	for _, all := range []bool{false, true} {
		c, r := fakeCLI(t)
		c.cfg.AllUsers = all
		r.answer("sacct", Output{Stdout: []byte("9|1795361949|60|01:00|1K|2\n"), Stderr: "krb5: error\n"})
		if all {
			r.answer("sacct", Output{Stdout: []byte("9|1795361949|60|01:00|1K|2|lab\n"), Stderr: "krb5: error\n"})
		}
		for _, c2 := range []struct {
			of    []run.JobKey
			known bool
		}{{nil, false}, {[]run.JobKey{{ID: "9"}, {ID: "10"}}, false}, {[]run.JobKey{{ID: "9"}}, true}} {
			if _, err := c.Usage(t.Context(), time.Unix(0, 0), c2.of...); err != nil || c.harmless.noise["sacct: krb0: error"] != c2.known {
				t.Errorf("after the use of %v the line is known: %v, %v", c2.of, c.harmless.noise, err)
			}
		}
	}
}

// Such a line does not fail other commands, and a line about a failed call fails all of them.
func TestLinesBesideOtherAnswers(t *testing.T) {
	type command struct {
		name string
		call func(*CLI) error
	}
	commands := []command{
		{"scontrol", func(c *CLI) error { _, err := c.ShowPartitions(t.Context()); return err }},
		{"sinfo", func(c *CLI) error { _, err := c.Nodes(t.Context()); return err }},
		{"sacctmgr", func(c *CLI) error { _, err := c.Accounts(t.Context(), "devcluster", "lab"); return err }},
		{"sacct", func(c *CLI) error { _, err := c.Usage(t.Context(), time.Unix(0, 0)); return err }},
		{"scancel", func(c *CLI) error { return c.Cancel(t.Context(), "28", "sg-run_x-a1-aabb", "") }},
	}
	for _, cmd := range commands {
		try := func(line string) error {
			c, r := fakeCLI(t)
			for _, program := range []string{"scontrol", "sinfo", "sacctmgr", "sacct"} {
				r.answer(program, Output{Stderr: printedBy(program, line)})
			}
			r.answer("scancel --ctld", Output{Stderr: printedBy("scancel", line)})
			r.answer("scancel --version", Output{Stdout: []byte("slurm 24.11.5\n"), Stderr: printedBy("scancel", line)})
			return cmd.call(c)
		}
		for _, line := range harmlessLines {
			if err := try(line); err != nil {
				t.Errorf("%s with %q: %v", cmd.name, line, err)
			}
		}
		for _, line := range failedCalls {
			if err := try(line); err == nil {
				t.Errorf("%s with %q counts as answered", cmd.name, line)
			}
		}
	}
}
