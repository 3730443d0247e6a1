package rest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// aJob is a short record of slurmctld.
const aJob = `{"job_id":7,"name":"sg-a","user_name":"lab","job_state":["RUNNING"],"nodes":"n1","submit_time":{"set":true,"number":5}}`

func queue(records ...string) string {
	return `{"jobs":[` + strings.Join(records, ",") + `],"meta":{},"errors":[],"warnings":[]}`
}

// An answer that does not cover all jobs is an error, for any HTTP status.
func TestNoAnswer(t *testing.T) {
	whole := queue(aJob)
	for name, c := range map[string]struct {
		status int
		body   string
		empty  bool // an answer without jobs
	}{
		"no jobs at all":      {200, queue(), true},
		"nothing has changed": {200, `{"jobs":[],"errors":[],"warnings":[{"description":"no change since update_time"}]}`, false},
		"a cluster without jobs": {200, `{"jobs":[],"last_update":{"set":true,"number":1795387700},"errors":[],` +
			`"warnings":[{"description":"Zero jobs to dump"}]}`, true},
		"no list to dump": {200, `{"jobs":[],"last_update":{"set":true,"number":0},"errors":[],"warnings":[{"description":"Zero jobs to dump"}]}`,
			false},
		"no list":                  {200, `{"meta":{},"errors":[],"warnings":[]}`, false},
		"another kind of list":     {200, `{"jobs":{},"errors":[]}`, false},
		"two lists":                {200, `{"jobs":[` + aJob + `],"jobs":[],"errors":[]}`, false},
		"an error with status 200": {200, `{"jobs":[` + aJob + `],"errors":[{"error_number":1007,"error":"Protocol authentication error"}]}`, false},
		"an error before the list": {200, `{"errors":[{"error_number":1007}],"jobs":[` + aJob + `]}`, false},
		"an error with status 500": {500, `{"jobs":[],"errors":[{"error_number":2,"description":"Unable to contact slurm controller"}]}`, false},
		"status 500 alone":         {500, queue(), false},
		"text after the answer":    {200, whole + "{}", false},
		"another answer":           {200, "[]", false},
		"only what is no record":   {200, queue("1", "null", `"sg-a"`), false},
		"records of no name":       {200, queue(`{"job_id":7}`, `{"name":{},"job_id":8}`), false},
		"depth":                    {200, `{"jobs":[{"name":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			jobs, err := says(t, "v0.0.42", c.status, c.body).Jobs(t.Context(), nil)
			if c.empty && (err != nil || len(jobs) > 0) || !c.empty && !fault.Is(err, fault.Transport) {
				t.Errorf("Jobs gives %v %v, want no jobs and no error: %v, else a transport fault", jobs, err, c.empty)
			}
			if !c.empty && jobs != nil {
				t.Errorf("Jobs gives %v with the error, want no jobs", jobs)
			}
		})
	}
	for n := range len(whole) {
		if jobs, err := says(t, "v0.0.42", 200, whole[:n]).Jobs(t.Context(), nil); !fault.Is(err, fault.Transport) {
			t.Errorf("the first %d bytes were accepted as an answer: %v", n, jobs)
		}
	}
}

// An empty answer is accepted if slurmdbd has no record of the user, and refused with any other warning or error.
func TestNoRecords(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		answer bool
	}{
		"a warning": {200, `{"jobs":[],"errors":[],"warnings":[{"description":"slurmdb_jobs_get() found nothing","source":"_dump_jobs"}]}`,
			true},
		"an error":        {200, `{"errors":[{"description":"Nothing found","error_number":9003,"source":"slurmdb_jobs_get"}],"jobs":[]}`, true},
		"another warning": {200, `{"jobs":[],"errors":[],"warnings":[{"description":"slurmdbd is slow"}]}`, false},
		"two errors":      {200, `{"errors":[{"error_number":9003},{"error_number":7000}],"jobs":[]}`, false},
		"no slurmdbd":     {500, `{"jobs":[],"errors":[{"error_number":7000,"error":"Unable to connect to database"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := says(t, "v0.0.42", c.status, c.body)
			jobs, err := s.Records(t.Context(), time.Unix(0, 0))
			used, err2 := s.Usage(t.Context(), time.Unix(0, 0))
			for _, err := range []error{err, err2} {
				if c.answer != (err == nil) || err != nil && !fault.Is(err, fault.Transport) {
					t.Error(err)
				}
			}
			if len(jobs)+len(used) > 0 {
				t.Errorf("the records are %v and the usage is %v, want nothing", jobs, used)
			}
		})
	}
}

// A slurmrestd without the calls for slurmdbd means a cluster without accounting.
func TestNoAccountingServed(t *testing.T) {
	s := serve(t, "v0.0.45", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "Unable to find requested URL endpoint.")
	})
	runtest.NoAccounting(t, s)
	if _, err := s.AllAccounts(t.Context()); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if s.client.version.known() == nil {
		t.Error("the version is negotiated again")
	}
}

// A record that cannot be read is a job in an unknown state. One without a name may be any job.
func TestOddRecords(t *testing.T) {
	for name, c := range map[string]struct {
		record string
		unread bool // this job
		lost   bool // any job
	}{
		"another user's":                {`{"job_id":8,"name":"sg-b","user_name":"alice","job_state":["PENDING"]}`, false, false},
		"another user's without a name": {`{"job_id":8,"user_name":"alice"}`, false, false},
		"no name":                       {`{"job_id":8,"user_name":"lab","job_state":["PENDING"]}`, false, true},
		"no record":                     {`"sg-b"`, false, true},
		"no state":                      {`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":[]}`, true, false},
		"no id":                         {`{"name":"sg-b","user_name":"lab","job_state":["PENDING"]}`, true, false},
		"an id that is text":            {`{"job_id":"8","name":"sg-b","user_name":"lab","job_state":["PENDING"]}`, true, false},
		"a huge id":                     {`{"job_id":1e99,"name":"sg-b","user_name":"lab","job_state":["PENDING"]}`, true, false},
		"an id below zero":              {`{"job_id":-8,"name":"sg-b","user_name":"lab","job_state":["PENDING"]}`, true, false},
		"an id twice":                   {`{"job_id":8,"job_id":9,"name":"sg-b","user_name":"lab","job_state":["PENDING"]}`, true, false},
		"a name twice":                  {`{"job_id":8,"name":"x","name":"sg-b","user_name":"lab","job_state":["PENDING"]}`, true, false},
		"a time without its number":     {`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":["PENDING"],"start_time":{"set":true}}`, true, false},
		"a time before 1970":            {`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":["PENDING"],"start_time":-5}`, true, false},
		"an exit status of nobody":      {`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":["FAILED"],"exit_code":70000}`, true, false},
		"tasks that end in dots":        {`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":["PENDING"],"array_task_string":"1,3,..."}`, true, false},
		"tasks without end":             {`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":["PENDING"],"array_task_string":"0-4000000"}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := says(t, "v0.0.42", 200, queue(c.record, aJob))
			unread := 0
			s.cfg.Unread = func(_ string, records int, _, _ string) { unread += records }
			jobs, err := s.Jobs(t.Context(), nil)
			must(t, err)
			var odd, lost, ours int
			for _, j := range jobs {
				switch {
				case j.Class == run.ClassUnread && j.Name == "":
					lost++
				case j.Class == run.ClassUnread && j.Name == "sg-b" && j.Why != "":
					odd++
				case j.Name == "sg-a" && j.Class == run.ClassRunning && j.ID == "7":
					ours++
				}
			}
			if ours != 1 || (odd == 1) != c.unread || (lost == 1) != c.lost || odd+lost+ours != len(jobs) || unread != odd+lost {
				t.Errorf("the answer is read as %+v, %d of them unread; want our job once, odd one: %v, lost one: %v",
					jobs, unread, c.unread, c.lost)
			}
		})
	}
}

// Tasks of an array that share one record are returned as separate jobs.
func TestTasks(t *testing.T) {
	s := says(t, "v0.0.42", 200, queue(`{"job_id":8,"array_job_id":{"set":true,"number":8},"name":"sg-b","user_name":"lab","job_state":["PENDING"],`+
		`"array_task_string":"1-2,7,20-29:4%2"}`))
	jobs, err := s.Jobs(t.Context(), nil)
	var tasks []string
	for _, j := range jobs {
		if j.Task != nil && j.ID == run.TaskID("8", *j.Task) && j.Class == run.ClassPending {
			tasks = append(tasks, fmt.Sprint(*j.Task))
		}
	}
	if got := strings.Join(tasks, " "); err != nil || got != "1 2 7 20 24 28" {
		t.Errorf("the pending tasks are %q %v, want 1 2 7 20 24 28", got, err)
	}
	// An ended record with an unreadable list of tasks is one job.
	s = says(t, "v0.0.42", 200, queue(`{"job_id":8,"array_job_id":{"set":true,"number":8},"name":"sg-b","user_name":"lab",`+
		`"job_state":["CANCELLED"],"array_task_string":"1,3,..."}`))
	if jobs, err = s.Jobs(t.Context(), nil); err != nil || len(jobs) != 1 || jobs[0].Task != nil || jobs[0].ID != "8" ||
		jobs[0].Class != run.ClassEnded {
		t.Errorf("of a shortened list of tasks the jobs are %+v %v, want the array as one that ended", jobs, err)
	}
}

// The states that the versions show, and how squeue prints them.
func TestStates(t *testing.T) {
	for words, want := range map[string]struct {
		state string
		class run.Class
	}{
		`["RUNNING"]`:                     {"RUNNING", run.ClassRunning},
		`["RUNNING","COMPLETING"]`:        {"COMPLETING", run.ClassCompleting},
		`["COMPLETED","COMPLETING"]`:      {"COMPLETING", run.ClassCompleting},
		`["COMPLETED","REQUEUED"]`:        {"REQUEUED", run.ClassPending},
		`["PENDING","REQUEUED"]`:          {"REQUEUED", run.ClassPending},
		`["PENDING","REQUEUE_HOLD"]`:      {"REQUEUE_HOLD", run.ClassPending},
		`["RUNNING","CONFIGURING"]`:       {"CONFIGURING", run.ClassRunning},
		`["FAILED","LAUNCH_FAILED"]`:      {"FAILED", run.ClassEnded},
		`["LAUNCH_FAILED","PENDING"]`:     {"PENDING", run.ClassPending},
		`["LAUNCH_FAILED"]`:               {"LAUNCH_FAILED", run.ClassEnded},
		`["RUNNING","POWER_UP_NODE"]`:     {"RUNNING", run.ClassRunning},
		`["COMPLETED","SOMETHING_NEW"]`:   {"SOMETHING_NEW", run.ClassUnknown},
		`["SPECIAL_EXIT","REQUEUE_HOLD"]`: {"REQUEUE_HOLD", run.ClassPending},
		`["COMPLETED","STAGE_OUT"]`:       {"STAGE_OUT", run.ClassCompleting},
		`["SUSPENDED","STOPPED"]`:         {"STOPPED", run.ClassRunning},
		`["PENDING","RESV_DEL_HOLD"]`:     {"RESV_DEL_HOLD", run.ClassPending},
		`["CANCELLED","REVOKED"]`:         {"REVOKED", run.ClassEnded},
	} {
		body := queue(`{"job_id":8,"name":"sg-b","user_name":"lab","job_state":` + words + `}`)
		jobs, err := says(t, "v0.0.42", 200, body).Jobs(t.Context(), nil)
		if err != nil || len(jobs) != 1 || jobs[0].State != want.state || jobs[0].Class != want.class {
			t.Errorf("the job in %s is %+v %v, want the state %s and the class %s", words, jobs, err, want.state, want.class)
		}
	}
}

// bigAnswer streams an answer with a number of jobs of others, each as long as a real one; one in a thousand is ours.
func bigAnswer(w io.Writer, record []byte, jobs int) error {
	other := bytes.Replace(record, []byte(`"user_name": "lab"`), []byte(`"user_name": "alice"`), 1)
	if _, err := io.WriteString(w, `{"jobs":[`); err != nil {
		return err
	}
	for n := range jobs {
		one := other
		if n%1000 == 0 {
			one = record
		}
		if n > 0 {
			io.WriteString(w, ",")
		}
		if _, err := w.Write(one); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, `],"errors":[],"warnings":[]}`)
	return err
}

// aRealRecord returns the bytes of a recorded record of a job of ours.
func aRealRecord(t testing.TB) []byte {
	body := recording(t, "jobs-24.11-v0.0.42.json.gz")
	at := bytes.Index(body, []byte(`"name": "sg-ok"`))
	start := bytes.LastIndex(body[:at], []byte("\n    {\n"))
	end := bytes.Index(body[at:], []byte("\n    }"))
	if at < 0 || start < 0 || end < 0 {
		t.Fatal("the recorded answer has no record of a job of ours")
	}
	return body[start : at+end+6]
}

// The memory for an answer is bounded by one record, not by the list.
//
// no race: each of its millions of steps is like the one before
func TestManyJobs(t *testing.T) {
	record := aRealRecord(t)
	var peak []uint64
	for _, jobs := range []int{1000, 10_000, 50_000} {
		s := serve(t, "v0.0.42", func(w http.ResponseWriter, _ *http.Request) { bigAnswer(w, record, jobs) })
		began := time.Now()
		most, stop := watchHeap()
		list, err := s.Jobs(t.Context(), nil)
		stop()
		if err != nil || len(list) != jobs/1000 {
			t.Fatalf("%d jobs of ours, %v", len(list), err)
		}
		peak = append(peak, *most)
		t.Logf("%d jobs, %d MB: %s, at most %d KB more in use", jobs, len(record)*jobs>>20, time.Since(began).Round(time.Millisecond), *most>>10)
	}
	if most := peak[len(peak)-1]; most > 24<<20 {
		t.Errorf("%d KB in use for 50,000 jobs", most>>10)
	}
}

// watchHeap measures the highest growth of the heap, in bytes, until stop.
func watchHeap() (most *uint64, stop func()) {
	most = new(uint64)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > before {
				*most = max(*most, m.HeapAlloc-before)
			}
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	return most, func() { close(end); <-ended }
}

// A malicious server cannot exhaust memory: no endless value is stored.
//
// no race: each of its millions of steps is like the one before
func TestLyingServer(t *testing.T) {
	endless := func(start, repeated string) func(io.Writer) {
		return func(w io.Writer) {
			io.WriteString(w, start)
			block := []byte(strings.Repeat(repeated, 1+(64<<10)/len(repeated)))
			for range (64 << 20) / len(block) {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}
	}
	for name, body := range map[string]func(io.Writer){
		"a name":            endless(`{"jobs":[{"user_name":"lab","name":"sg-`, "x"),
		"a skipped text":    endless(`{"jobs":[{"comment":"`, "x"),
		"a number":          endless(`{"jobs":[{"job_id":1`, "0"),
		"a member's name":   endless(`{"jobs":[{"`, "x"),
		"members":           endless(`{"jobs":[{"job_id":1`, `,"x":1`),
		"states":            endless(`{"jobs":[{"job_state":["RUNNING"`, `,"RUNNING"`),
		"errors":            endless(`{"errors":[{}`, `,{"description":"something went wrong"}`),
		"spaces":            endless(`{"jobs":[`, "        "),
		"other users":       endless(`{"jobs":[{}`, `,{"user_name":"alice","name":"sg-b"}`),
		"records of no one": endless(`{"jobs":[{}`, `,{"job_id":5,"comment":"`+strings.Repeat("x", 200)+`"}`),
		"depth":             endless(`{"jobs":[{"x":`, "[[[["),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "v0.0.42", func(w http.ResponseWriter, _ *http.Request) { body(w) })
			most, stop := watchHeap()
			jobs, err := s.Jobs(t.Context(), nil)
			stop()
			if !fault.Is(err, fault.Transport) || jobs != nil {
				t.Errorf("Jobs gives %d jobs, %v, want no jobs and a transport fault", len(jobs), err)
			}
			if *most > 32<<20 {
				t.Errorf("%d KB in use", *most>>10)
			}
		})
	}
}
