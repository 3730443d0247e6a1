package slurm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"slurmgate/run"
)

// An answer about the jobs of all users is a sheet: every record has the same number of bytes, because squeue and sacct
// pad and cut each field to the requested width. The position of a field depends on nothing that a user can choose, so
// no job name can forge or hide a record, even if the user has read the command line of this query.
//
//	1234    ␟RUNNING ␟…␟alice   ␟sg-run_…      ␟⏎       squeue: a gap behind each field
//	1234     RUNNING  …  alice    sg-run_…      ⏎       sacct: its gap is a space
//
// Names of users and jobs, and folders, that fill their field may have been cut. They match no user and no run.
//
// Text that is not part of a record, such as a banner, shifts what follows it. Then the reader searches for the next
// line with a record's shape. The text after a line feed that a user or a plugin wrote never has that shape: these
// fields come last and take less than half of a record, so at the position of that line feed such a record would need a
// field that has none (TestSheetShape).
type sheet struct {
	answer
	layout layout
	stray  bool // text up to the next line feed is skipped

	cut []run.Job // records of array tasks whose list does not fit its field, with the array's id

	wanted  map[run.JobKey]int // number of records of each wanted job; nil: all jobs with names of a gateway's jobs are wanted
	perUser map[string]int     // number of jobs of each user
	floods  []string           // users with more than maxUserJobs jobs
}

// Bounds of what users can make the gateway store from one answer.
const (
	maxUserJobs   = 50_000 // of one user, with names of a gateway's jobs
	maxJobRecords = 1000   // of one name, in accounting, where each requeue adds one; maxTasks for the name of an array
)

// field is a column of a sheet.
type field struct {
	name  string // as squeue or sacct calls it
	width int    // bytes
	col   column
	text  bool // may have a line feed: a name, a folder, or a reason that a plugin wrote
}

type layout struct {
	fields []field
	gap    byte // behind each field
}

// size returns the length of a record with its line feed, in bytes.
func (l layout) size() int {
	n := 1
	for _, f := range l.fields {
		n += f.width + 1
	}
	return n
}

// The widths of texts that users choose.
const (
	userWidth = 65
	nameWidth = 80 // names of a gateway's jobs have about 50 bytes
)

// mayBeCut holds the columns whose value is dropped where it fills the width.
var mayBeCut = []column{colDir, colPartition, colAccount}

// folderWidth returns the width of the working folders of runs below RunsDirOfAll.
func (c *CLI) folderWidth() int {
	return len(c.cfg.RunsDirOfAll) + userWidth + len("/run_0X8Z4D1X467KV94K4TXG0D9BXT/a123456789/ctl") + 1
}

// queueLayout returns the layout for squeue and the jobs of all users. Every squeue since 20.11 knows these fields.
func (c *CLI) queueLayout() layout {
	return layout{gap: sep[0], fields: []field{
		{"JobArrayID", 24, colID, false},
		{"State", 24, colState, false},
		{"RestartCnt", 8, colRestarts, false},
		{"NodeList", 64, colNode, false},
		{"exit_code", 10, colExit, false},
		{"SubmitTime", 12, colSubmit, false},
		{"StartTime", 12, colStart, false},
		{"EndTime", 12, colEnd, false},
		{"Cluster", 48, colCluster, false},
		{"Partition", 64, colPartition, false},
		{"TimeLimit", 16, colLimit, false},
		{"UserName", userWidth, colUser, false},
		{"Reason", 64, colReason, true},
		{"Account", 64, colAccount, true}, // any text, where Slurm does not enforce associations
		{"WorkDir", c.folderWidth(), colDir, true},
		{"Name", nameWidth, colName, true},
	}}.balanced()
}

// accountingLayout returns the layout for sacct, with the columns that this sacct knows.
func (c *CLI) accountingLayout(names []string, cols []column) layout {
	widths := map[column]int{colID: 24, colAccounted: 32, colReason: 64, colRestarts: 8, colNode: 64, colExit: 10, colSubmit: 12, colStart: 12,
		colEnd: 12, colCluster: 48, colSLUID: 24, colDir: c.folderWidth(), colName: nameWidth}
	l := layout{gap: ' '}
	for i, col := range cols {
		l.fields = append(l.fields, field{names[i], widths[col], col, col == colDir || col == colName})
	}
	l.fields = slices.Insert(l.fields, 1, field{"User", userWidth, colUser, false})
	return l.balanced()
}

// balanced widens the first field until the texts take less than half of a record.
func (l layout) balanced() layout {
	texts, rest := 0, 0
	for _, f := range l.fields {
		if f.text {
			texts += f.width + 1
		} else {
			rest += f.width + 1
		}
	}
	l.fields[0].width += max(0, texts+1-rest)
	return l
}

// formatQueue returns the value of squeue's --Format.
func (l layout) formatQueue() string {
	var words []string
	for _, f := range l.fields {
		words = append(words, fmt.Sprintf("%s:%d%c", f.name, f.width, l.gap))
	}
	return strings.Join(words, ",")
}

// formatAccounting returns the value of sacct's --format. A negative width aligns to the left.
func (l layout) formatAccounting() string {
	var words []string
	for _, f := range l.fields {
		words = append(words, fmt.Sprintf("%s%%-%d", f.name, f.width))
	}
	return strings.Join(words, ",")
}

func newSheet(l layout, about int) *sheet {
	s := &sheet{layout: l, perUser: map[string]int{}, answer: answer{jobs: make([]run.Job, 0, about), words: map[string]string{}}}
	for _, f := range l.fields {
		s.cols = append(s.cols, f.col)
	}
	return s
}

// Write takes the next part of the answer. It never fails.
func (s *sheet) Write(p []byte) (int, error) {
	n, size := len(p), s.layout.size()
	for len(p) > 0 {
		if s.stray {
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				break
			}
			s.stray, p = false, p[i+1:]
			continue
		}
		take := min(size-len(s.rest), len(p))
		s.rest, p = append(s.rest, p[:take]...), p[take:]
		for len(s.rest) == size {
			s.take()
		}
	}
	return n, nil
}

// take reads the record in rest, or drops from rest what is not part of a record.
func (s *sheet) take() {
	if s.fits(s.rest) {
		s.record(s.rest)
		s.rest = s.rest[:0]
		return
	}
	i := bytes.IndexByte(s.rest, '\n')
	if i < 0 {
		s.loses("no record", s.rest)
		s.rest, s.stray = s.rest[:0], true
		return
	}
	s.loses("no record", s.rest[:i+1])
	s.rest = append(s.rest[:0], s.rest[i+1:]...)
}

// fits reports whether a text of a record's length has its shape.
func (s *sheet) fits(text []byte) bool {
	at := 0
	for _, f := range s.layout.fields {
		end := at + f.width
		if text[end] != s.layout.gap {
			return false
		}
		if !f.text && bytes.IndexByte(text[at:end], '\n') >= 0 {
			return false
		}
		at = end + 1
	}
	return text[at] == '\n'
}

// record reads a record of the right shape.
func (s *sheet) record(text []byte) {
	s.read++
	s.fields = s.fields[:0]
	at := 0
	for _, f := range s.layout.fields {
		value := bytes.TrimRight(text[at:at+f.width], " ")
		if at += f.width + 1; slices.Contains(mayBeCut, f.col) && len(value) == f.width {
			value = nil
		}
		s.fields = append(s.fields, value)
	}
	last := len(s.fields) - 1
	name, owner := s.fields[last], s.fields[slices.Index(s.cols, colUser)]
	sought, dir := len(s.sought) > 0 && s.sought[string(s.fields[0])], s.renamed(name)
	if len(owner) == 0 || len(owner) == userWidth || dir == "" && (len(name) == nameWidth || !jobName.Match(name) && !sought) {
		return
	}
	key := run.JobKey{Name: string(name), User: s.word(owner)}
	id, tasks, cut := unfold(s.fields[0])
	s.fields[0] = id
	if !s.room(key, len(tasks)) {
		return
	}
	job, err := s.job()
	job.WorkDir = dir
	switch {
	case err != nil:
		s.cannotRead(err.Error(), text)
		s.jobs = append(s.jobs, run.Job{ID: job.ID, Task: job.Task, Name: key.Name, WorkDir: dir, User: key.User, Class: run.ClassUnread,
			Why: err.Error()})
	case !cut:
		s.jobs = append(s.jobs, split(job, tasks)...)
	case s.wanted == nil && len(s.cut) < maxLists:
		s.cut = append(s.cut, job)
	default:
		s.cannotRead(noTasks, text)
		s.jobs = append(s.jobs, someTasks(job))
	}
}

// maxLists is how many arrays Slurm is asked about once more, because the lists of their tasks do not fit the sheet.
const maxLists = 100

// room reports whether the job is wanted and n more jobs of it may be stored. Above a bound only the user or the name
// concerned is affected.
func (s *sheet) room(key run.JobKey, n int) bool {
	if s.wanted == nil {
		before := s.perUser[key.User]
		if s.perUser[key.User] += n; before <= maxUserJobs && before+n > maxUserJobs {
			s.floods = append(s.floods, key.User)
		}
		return before+n <= maxUserJobs
	}
	before, wanted := s.wanted[key]
	if !wanted {
		return false
	}
	most := maxJobRecords
	if run.IsArrayName(key.Name) {
		most = maxTasks
	}
	if s.wanted[key] += n; before <= most && before+n > most {
		s.jobs = append(s.jobs, run.Job{Name: key.Name, User: key.User, Class: run.ClassUnread,
			Why: fmt.Sprintf("accounting has more than %d records of it", most)})
	}
	return before+n <= most
}

// whole returns the jobs of a complete answer, as answer.whole does. A user with too many jobs makes only that user's
// jobs unreadable.
func (s *sheet) whole() ([]run.Job, error) {
	if s.stray {
		return nil, fmt.Errorf("the answer breaks off: %s", s.example)
	}
	jobs, err := s.answer.whole()
	for _, user := range s.floods {
		if err == nil {
			jobs = append(jobs, run.Job{User: user, Class: run.ClassUnread,
				Why: fmt.Sprintf("the user has more than %d jobs with names of a gateway's", maxUserJobs)})
		}
	}
	return jobs, err
}
