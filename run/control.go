package run

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// The control files of an attempt, in <runs_dir>/<run_id>/a<n>/ctl. The container never sees this
// folder. A file that is not completely in its format is refused: readers check the first word, the version and
// every field.
//
//	claim          slurmgate-claim 1 job=1234 task=- restart=0 token=<32 hex> node=n1
//	               slurmgate-claim 1 void token=<32 hex>                (the gateway's: no job executes)
//	pinned.sha256  <64 hex>  <absolute image path>                       first line
//	               <64 hex>  in/<path>                                   one for each input; the absolute path of one that is not copied
//	               slurmgate-claim 1 job=1234 task=5 restart=0 …         of a task of the array 1234
//	limit          slurmgate-limit 1 token=<32 hex> seconds=7200         Slurm's limit, where it was raised after the job was sent
//	exit           slurmgate-exit 1 job=1234 task=- restart=0 code=0 reason=ok elapsed=12 user=3.1 sys=0.2 maxrss=2048 node=n1
//	                                                                     of a pipe that failed also program=2, which failed first;
//	                                                                     oom=0 where the job has a cgroup (v2) that counts OOM kills
//	manifest       slurmgate-manifest 1 job=1234 task=- restart=0
//	               file <64 hex> <bytes> out/<path>                      a regular file
//	               oversize <bytes> out/<path>                           more than the outputs together may have: not hashed
//	               directory <files> <bytes> out/<path>                  a folder; the file lines of all that is in it follow at once
//	               crowded out/<path>                                    a folder with too many files: not hashed
//	               missing out/<path>                                    nothing there
//	               irregular out/<path>                                  a link, folder, pipe, a file with another name, or unreadable
//	               end
const (
	ClaimFile    = "claim"
	PinnedFile   = "pinned.sha256"
	ScriptFile   = "script"
	ProgramFile  = "program" // the script that a plan of the kind script executes
	LimitFile    = "limit"
	ExitFile     = "exit"
	ManifestFile = "manifest"
	JobLogFile   = "job.log" // sbatch --output and --error: what the script itself prints
	StdoutFile   = "stdout"  // the program's standard output
	StderrFile   = "stderr"
)

// SendFile returns the name of the k-th send's file: its standard output (the receipt) or standard error.
func SendFile(k int, stream string) string { return fmt.Sprintf("send.%d.%s", k, stream) }

// jobNameDigits is the number of the token's digits in a job's name.
const jobNameDigits = 12

// JobName returns the job's name, which is the key: sg-<run_id>-a<n>-<first 12 hex of the token>.
func JobName(runID string, n int, token string) string {
	return fmt.Sprintf("sg-%s-a%d-%s", runID, n, token[:jobNameDigits])
}

// RunOf returns the run id in a job's name, empty if the name is not a gateway's.
func RunOf(jobName string) string {
	rest, ok := strings.CutPrefix(jobName, "sg-")
	id, _, found := strings.Cut(rest, "-a")
	if !ok || !found {
		return ""
	}
	return id
}

// Exit codes of the job script itself; the exit file's reason is authoritative.
const (
	ExitClaimNotOurs      = 90
	ExitImageMismatch     = 91
	ExitInputMismatch     = 92
	ExitRuntimeMissing    = 93
	ExitControlUnwritable = 94
	ExitRunsDirMissing    = 95
	ExitRunsDirFull       = 96
)

// Holder identifies the execution that wrote a control file.
type Holder struct {
	Job     string // of a task ARRAY_TASK, as Slurm's commands write it
	Task    string // "-" outside arrays
	Restart int
}

// Claim is the parsed claim file.
type Claim struct {
	Void   bool // taken by the gateway
	Holder Holder
	Token  string
	Node   string
}

// VoidClaim returns the content of the gateway's own claim.
func VoidClaim(token string) []byte {
	return []byte("slurmgate-claim 1 void token=" + token + "\n")
}

// Exit is the parsed exit file.
type Exit struct {
	Holder  Holder
	Code    int
	Reason  string
	Elapsed float64 // seconds
	User    float64 // CPU seconds
	Sys     float64 // CPU seconds
	MaxRSS  int64   // KiB
	Node    string
	Program int // the program of a pipe that failed first, from 1; 0: not a pipe
	OOM     int // the job's processes that the kernel had killed for lack of memory when the program ended; -1: unknown
}

// ManifestEntry is one declared output as the job saw it.
type ManifestEntry struct {
	Kind    string      // "file", "directory", "oversize", "crowded", "missing", "irregular"
	SHA256  string      // hex, for a file
	Size    int64       // bytes, for the kinds file, directory and oversize
	Relpath string      // out/...
	Files   []tree.File // the files of a directory as the job listed them: neither sorted nor checked
}

// Manifest is the parsed manifest.
type Manifest struct {
	Holder  Holder
	Entries []ManifestEntry
}

// ParseClaim parses a claim file.
func ParseClaim(data []byte) (Claim, error) {
	f, err := header(data, "slurmgate-claim")
	if err != nil {
		return Claim{}, err
	}
	_, void := f["void"]
	c := Claim{Void: void, Token: f["token"], Node: f["node"]}
	if c.Token == "" {
		return Claim{}, broken("a claim must have a token")
	}
	if !void {
		if c.Holder, err = holder(f); err != nil {
			return Claim{}, err
		}
	}
	return c, nil
}

// ParseExit parses an exit file.
func ParseExit(data []byte) (Exit, error) {
	f, err := header(data, "slurmgate-exit")
	if err != nil {
		return Exit{}, err
	}
	e := Exit{Reason: f["reason"], Node: f["node"], OOM: -1}
	if e.Holder, err = holder(f); err != nil {
		return Exit{}, err
	}
	if e.Code, err = strconv.Atoi(f["code"]); err != nil || e.Code < 0 || e.Code > 255 || e.Reason == "" ||
		(e.Reason == "ok") != (e.Code == 0) {
		return Exit{}, broken("an exit must have a code 0..255 and a reason, which is ok only for 0")
	}
	// Usage is optional: a value that does not parse is dropped.
	e.Elapsed, _ = strconv.ParseFloat(f["elapsed"], 64)
	e.User, _ = strconv.ParseFloat(f["user"], 64)
	e.Sys, _ = strconv.ParseFloat(f["sys"], 64)
	e.Program, _ = strconv.Atoi(f["program"])
	e.MaxRSS, _ = strconv.ParseInt(f["maxrss"], 10, 64)
	if n, err := strconv.Atoi(f["oom"]); err == nil && n >= 0 {
		e.OOM = n
	}
	return e, nil
}

// stopped reports whether the program was stopped from outside, so that Slurm knows the reason.
func (x Exit) stopped() bool { return x.Reason == "terminated" || x.Reason == "killed" }

// ParseManifest parses a manifest. It refuses one without its closing line, and one that names a path twice.
func ParseManifest(data []byte) (Manifest, error) {
	f, err := header(data, "slurmgate-manifest")
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if m.Holder, err = holder(f); err != nil {
		return Manifest{}, err
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")[1:]
	end := len(lines) - 1
	if end < 0 || slices.Index(lines, "end") != end {
		return Manifest{}, broken("the last line must be the end line")
	}
	seen := map[string]bool{}
	for lines = lines[:end]; len(lines) > 0; {
		e, err := manifestEntry(lines[0])
		lines = lines[1:]
		if err == nil && e.Kind == "directory" {
			lines, err = e.takeFiles(lines)
		}
		switch {
		case err != nil:
			return Manifest{}, err
		case seen[e.Relpath]:
			return Manifest{}, broken("each path may appear only once")
		}
		seen[e.Relpath] = true
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}

func manifestEntry(line string) (e ManifestEntry, err error) {
	e.Kind, e.Relpath, _ = strings.Cut(line, " ")
	if e.Kind == "file" {
		e.SHA256, e.Relpath, _ = strings.Cut(e.Relpath, " ")
	}
	switch e.Kind {
	case "missing", "irregular", "crowded":
	case "directory":
		var count, size string
		count, size, _ = strings.Cut(e.Relpath, " ")
		size, e.Relpath, _ = strings.Cut(size, " ")
		files, ferr := strconv.Atoi(count)
		if e.Size, err = strconv.ParseInt(size, 10, 64); err != nil || ferr != nil || e.Size < 0 || files < 0 || files > tree.MaxFiles {
			return e, broken("a directory line must have how many files it has, and their size")
		}
		e.Files = make([]tree.File, files)
	case "file", "oversize":
		var size string
		size, e.Relpath, _ = strings.Cut(e.Relpath, " ")
		if e.Size, err = strconv.ParseInt(size, 10, 64); err != nil || e.Size < 0 || e.Kind == "file" && !plan.IsSHA256(e.SHA256) {
			return e, broken("a file line must have a checksum and a size, an oversize line a size")
		}
	default:
		return e, broken("a line must be file, directory, oversize, crowded, missing, irregular or end")
	}
	if len(line) > 4<<10 || plan.CheckRelPath(e.Relpath, "out") != "" {
		return e, broken("a path must be below out/")
	}
	return e, nil
}

// takeFiles parses the lines of a directory's files and returns the lines after them.
func (e *ManifestEntry) takeFiles(lines []string) ([]string, error) {
	if len(lines) < len(e.Files) {
		return nil, broken("a line must follow for each file of a directory")
	}
	left := e.Size
	for i := range e.Files {
		kind, rest, _ := strings.Cut(lines[i], " ")
		sum, rest, _ := strings.Cut(rest, " ")
		size, rel, _ := strings.Cut(rest, " ")
		name, below := strings.CutPrefix(rel, e.Relpath+"/")
		n, err := strconv.ParseInt(size, 10, 64)
		if kind != "file" || !below || !plan.IsSHA256(sum) || err != nil || n < 0 || n > left {
			return nil, broken("after a directory line, each of its files must have a line with a checksum, a size and a path below it")
		}
		left -= n
		e.Files[i] = tree.File{SHA256: sum, Size: n, Path: name}
	}
	if left != 0 {
		return nil, broken("a directory must have the size of its files")
	}
	return lines[len(e.Files):], nil
}

// header parses the first line of a control file: its keyword, the version 1, and fields key=value; void may be a field
// without a value.
func header(data []byte, word string) (map[string]string, error) {
	line, _, whole := strings.Cut(string(data), "\n")
	rest, ok := strings.CutPrefix(line, word+" 1 ")
	if !whole || !ok || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return nil, broken("the first line is \"" + word + " 1 …\"")
	}
	f := map[string]string{}
	for i, w := range strings.Split(rest, " ") {
		k, v, ok := strings.Cut(w, "=")
		_, twice := f[k]
		if void := i == 0 && w == "void" && word == "slurmgate-claim"; void == ok || k == "void" && !void || twice {
			return nil, broken("each field must be key=value and appear only once")
		}
		f[k] = v
	}
	return f, nil
}

func holder(f map[string]string) (Holder, error) {
	h := Holder{Job: f["job"], Task: f["task"]}
	var err error
	if h.Restart, err = strconv.Atoi(f["restart"]); err != nil || h.Restart < 0 || h.Job == "" || h.Task == "" {
		return Holder{}, broken("job, task and restart must name the execution")
	}
	if h.Task != "-" {
		h.Job += "_" + h.Task
	}
	return h, nil
}

func broken(rule string) error {
	return fault.Invalid("a control file has the wrong format", fault.Problem{Code: "CTL-FORMAT", Rule: rule,
		Msg: "wrong format"})
}
