package run

import (
	"bytes"
	"cmp"
	"context"
	"path"
	"strconv"

	"slurmgate/fault"
	"slurmgate/plan"
)

// A job is sent with a working folder (sbatch --chdir) that no other job has, and Slurm shows it as it was given: WorkDir in squeue and
// sacct, current_working_directory in slurmrestd. By it a job is found whose name a plugin of the site, or a person, has changed.
//
//	<run folder>/a1        the job of attempt 1
//	<run folder>/a1/ctl    the array that attempt 1 leads; an attempt leads one accepted array at most

// controlFolder is the folder with an attempt's control files.
const controlFolder = "ctl"

// WorkDir returns the job's working folder.
func (j JobSpec) WorkDir() string { return workDir(j.AttemptDir(), j.Array != nil) }

func workDir(attemptDir string, array bool) string {
	if array {
		return path.Join(attemptDir, controlFolder)
	}
	return attemptDir
}

// folder is a parsed path of a working folder of a gateway's job.
type folder struct {
	run   []byte // the run's id
	n     []byte // the attempt's number, in digits
	array bool
}

// folderOf parses the path of a working folder. It allocates nothing: it is called for every job in Slurm's answer.
func folderOf(dir []byte) (f folder, ok bool) {
	up, last := splitPath(dir)
	if f.array = string(last) == controlFolder; f.array {
		up, last = splitPath(up)
	}
	number, isAttempt := bytes.CutPrefix(last, []byte("a"))
	_, f.run = splitPath(up)
	f.n = number
	digits := len(number) > 0 && len(number) < 10 && number[0] != '0' && len(bytes.Trim(number, "0123456789")) == 0
	return f, isAttempt && digits && plan.IsRunID(string(f.run))
}

func splitPath(p []byte) (up, last []byte) {
	i := bytes.LastIndexByte(p, '/')
	return p[:max(i, 0)], p[i+1:]
}

// Renamed reports whether a job with this working folder belongs to an attempt, or an array, of a gateway and has a
// name that no gateway sends it with: another name, or one with a prefix or suffix.
func Renamed(name, workDir []byte) bool {
	f, ok := folderOf(workDir)
	if !ok {
		return false
	}
	parts, digits := [][]byte{[]byte("sg-"), f.run, []byte("-a"), f.n, []byte("-")}, jobNameDigits
	if f.array {
		parts, digits = [][]byte{[]byte(arrayPrefix)}, arrayNameDigits
	}
	for _, part := range parts {
		if name, ok = bytes.CutPrefix(name, part); !ok {
			return true
		}
	}
	return len(name) != digits || len(bytes.Trim(name, "0123456789abcdef")) > 0
}

// sentAs returns the name under which the job was sent, as far as is known.
func (j *Job) sentAs() string { return cmp.Or(j.Attempt, j.Name) }

// shows reports whether a job with the name or folder of an attempt is the attempt's job, whose id is jobID as far as
// is known. Another job may have been sent from that folder: while it is there the attempt's job is not taken for
// absent, and its end proves nothing.
func (j *Job) shows(jobID string) bool {
	return j.Attempt == "" || j.Class != ClassEnded || j.ID == jobID
}

// fromFolder is what was sent from a working folder.
type fromFolder struct {
	job   string      // the name of the attempt's job; "": this ledger has none
	array *knownArray // instead: all tasks of an array
}

// sentFrom finds what this gateway sent from a working folder.
func (n *taskNames) sentFrom(ctx context.Context, dir string) (fromFolder, error) {
	n.mu.Lock()
	s, known := n.folders[dir]
	n.mu.Unlock()
	f, ok := folderOf([]byte(dir))
	if known || !ok {
		return s, nil
	}
	runID := string(f.run)
	number, err := strconv.Atoi(string(f.n))
	if err != nil || dir != workDir(JobSpec{RunDir: n.runDir(runID), N: number}.AttemptDir(), f.array) {
		return s, err // of another gateway, or of no run
	}
	job, array, err := n.index.SentAs(ctx, runID, number)
	switch {
	case fault.Is(err, fault.NotFound):
		return s, nil
	case err == nil && f.array && array != "":
		s.array, err = n.row(ctx, array)
	case err == nil && !f.array:
		s.job = job
	}
	if err != nil || s == (fromFolder{}) {
		return s, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.folders == nil || len(n.folders) >= foldersKnown {
		n.folders = map[string]fromFolder{}
	}
	n.folders[dir] = s
	return s, nil
}

// foldersKnown bounds how many folders are cached.
const foldersKnown = 100_000
