package rest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// optional encodes a number that may be missing, as slurmrestd does.
type optional struct {
	Set      bool  `json:"set"`
	Infinite bool  `json:"infinite"`
	Number   int64 `json:"number"`
}

// environment returns the whole environment of the job in the request. It is that of sbatch --export=NIL without the
// variables that only MPI starters read. Slurm takes the umask from it; it has no limits of processes, as with
// --propagate=NONE.
func environment(cpus string) []string {
	return []string{"SLURM_EXPORT_ENV=NIL", "SLURM_UMASK=0077", "SLURM_PRIO_PROCESS=0", "SLURM_SUBMIT_DIR=/", "SLURM_CPUS_PER_TASK=" + cpus,
		"SLURM_TRES_PER_TASK=cpu=" + cpus}
}

// options maps each option of sbatch that the renderer uses to a function that sets the members of a job. nil means
// that slurmrestd does so by default.
var options = map[string]func(j map[string]any, value string) error{
	"--parsable":       nil,
	"--export=NIL":     nil, // see environment
	"--propagate=NONE": nil,
	"--no-requeue": func(j map[string]any, _ string) error {
		j["requeue"] = false
		return nil
	},
	"--nodes": func(j map[string]any, s string) error {
		n, err := strconv.Atoi(s)
		j["minimum_nodes"], j["maximum_nodes"] = n, n
		return err
	},
	"--ntasks": whole("tasks"),
	"--cpus-per-task": func(j map[string]any, s string) (err error) {
		j["cpus_per_task"], err = strconv.Atoi(s)
		j["tres_per_task"] = "cpu=" + s
		return err
	},
	"--mem": func(j map[string]any, s string) error {
		return setNumber(j, "memory_per_node", strings.TrimSuffix(s, "M"))
	},
	"--time":       func(j map[string]any, s string) error { return setNumber(j, "time_limit", s) },
	"--job-name":   text("name"),
	"--comment":    text("comment"),
	"--partition":  text("partition"),
	"--account":    text("account"),
	"--qos":        text("qos"),
	"--constraint": text("constraints"),
	"--exclude":    list("excluded_nodes"),
	"--nodelist":   list("required_nodes"),
	"--gres": func(j map[string]any, s string) error {
		j["tres_per_node"] = "gres/" + s
		return nil
	},
	"--array":  text("array"),
	"--chdir":  text("current_working_directory"),
	"--output": text("standard_output"),
	"--error":  text("standard_error"),
	"--open-mode": func(j map[string]any, s string) error {
		j["open_mode"] = []string{strings.ToUpper(s)}
		return nil
	},
}

func text(member string) func(map[string]any, string) error {
	return func(j map[string]any, s string) error {
		j[member] = s
		return nil
	}
}

func list(member string) func(map[string]any, string) error {
	return func(j map[string]any, s string) error {
		j[member] = strings.Split(s, ",")
		return nil
	}
}

func whole(member string) func(map[string]any, string) error {
	return func(j map[string]any, s string) (err error) {
		j[member], err = strconv.Atoi(s)
		return err
	}
}

// setNumber sets a member of the type optional.
func setNumber(j map[string]any, member, s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	j[member] = optional{Set: true, Number: n}
	return err
}

// body encodes the request for the job that sbatch would create from these arguments, the last of which is the script's
// path. An unknown option is an error: no property of a job is ever left out.
func (v version) body(argv []string, script []byte) ([]byte, error) {
	last := len(argv) - 1
	j := map[string]any{"standard_input": "/dev/null", "argv": []string{argv[last]}}
	for _, arg := range argv[:last] {
		name, value, _ := strings.Cut(arg, "=")
		set, known := options[arg]
		if !known {
			set, known = options[name]
		}
		if !known {
			return nil, fmt.Errorf("slurmrestd has no counterpart of sbatch's option %s", name)
		}
		if set == nil {
			continue
		}
		if err := set(j, value); err != nil {
			return nil, fmt.Errorf("option %s: %w", name, err)
		}
	}
	if v.oomKill {
		j["oom_kill_step"] = 0xfffe // NO_VAL16; an omitted member would count as 0
	}
	j["environment"] = environment(fmt.Sprint(j["cpus_per_task"]))
	return json.Marshal(map[string]any{"job": j, "script": string(script)}, json.Deterministic(true), jsontext.EscapeForHTML(false))
}
