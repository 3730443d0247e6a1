package rest

import (
	"net/http"
	"strings"
	"testing"

	"slurmgate/fault"
)

// Cancel succeeds only if the answer proves that nothing is left to cancel.
func TestAnswersOfACancel(t *testing.T) {
	status := func(code, message string) string {
		return `{"status":[{"error":{"code":` + code + `,"string":"x","message":"` + message + `"}}],` + testMeta + `,"errors":[]}`
	}
	for name, c := range map[string]struct {
		answer []byte
		fine   bool
	}{
		"done":            {said(200, `{"status":[],"errors":[]}`), true},
		"already over":    {said(200, status("2021", "Job/step already completing or completed")), true},
		"unknown":         {said(200, status("2017", "Invalid job id specified")), true},
		"another name":    {said(200, status("2172", "Job name other != filter name sg-x: Cannot signal job")), true},
		"another user":    {said(200, status("2172", "Job user id 1 != filter user id 2: Cannot signal job")), true},
		"cannot":          {said(200, status("2172", "Cannot signal job")), false},
		"denied":          {said(200, status("2002", "Access/permission denied")), false},
		"refused":         {said(500, `{"errors":[{"error_number":2002}]}`), false},
		"refused as gone": {said(404, `{"errors":[{"error_number":2017}]}`), true},
		"an outage":       {said(502, `{"errors":[{"error_number":1800}]}`), false},
		"half":            {said(200, `{"status":[]`), false},
		"HTML":            {plainly(502, "<html>"), false},
		"nothing":         {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var sent string
			f := newFake(t, "v0.0.42", func(r *http.Request, body []byte) []byte {
				sent = r.Method + " " + r.URL.Path + " " + string(body)
				return c.answer
			})
			err := f.client(t).Cancel(t.Context(), "7", "sg-x", "")
			if (err == nil) != c.fine || err != nil && !fault.Is(err, fault.Transport) {
				t.Error(err)
			}
			if sent != `DELETE /slurm/v0.0.42/jobs/ {"job_name":"sg-x","jobs":["7"],"signal":"KILL","user_name":"lab"}` {
				t.Errorf("the request is %s, want a DELETE of the job 7 with its name and user", sent)
			}
		})
	}
	if err := newFake(t, "v0.0.42", nil).client(t).Cancel(t.Context(), "7", "other", ""); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
}

// Tasks of an array take one request; before Slurm 24.05 each task is read and cancelled separately.
func TestCancelsTasks(t *testing.T) {
	for version, want := range map[string]string{
		"v0.0.42": `DELETE /slurm/v0.0.42/jobs/ {"job_name":"sg-x","jobs":["7_0","7_2"],"signal":"KILL","user_name":"lab"}`,
		"v0.0.40": "GET /slurm/v0.0.40/job/7_0 ,GET /slurm/v0.0.40/job/7_2 "} {
		var sent []string
		f := newFake(t, version, func(r *http.Request, body []byte) []byte {
			sent = append(sent, r.Method+" "+r.URL.Path+" "+string(body))
			return said(200, `{"status":[],"jobs":[],"errors":[]}`)
		})
		err := f.client(t).Cancel(t.Context(), "7_[0,2]", "sg-x", "")
		if got := strings.Join(sent, ","); err != nil || got != want {
			t.Errorf("Cancel of two tasks by %s sends %s %v, want %s", version, got, err, want)
		}
	}
}

// Before Slurm 24.05 the job is read first, and only a job of ours is cancelled.
func TestOldCancel(t *testing.T) {
	for job, want := range map[string]string{
		`{"name":"sg-x","user_name":"lab"}`: "GET /slurm/v0.0.40/job/7,DELETE /slurm/v0.0.40/job/7",
		`{"name":"sg-y","user_name":"lab"}`: "GET /slurm/v0.0.40/job/7", `{"name":"sg-x","user_name":"bob"}`: "GET /slurm/v0.0.40/job/7",
		``: "GET /slurm/v0.0.40/job/7",
	} {
		var sent []string
		f := newFake(t, "v0.0.40", func(r *http.Request, _ []byte) []byte {
			sent = append(sent, r.Method+" "+r.URL.Path)
			if r.Method == "GET" {
				return said(200, `{"jobs":[`+job+`]}`)
			}
			return said(200, `{"errors":[]}`)
		})
		err := f.client(t).Cancel(t.Context(), "7", "sg-x", "")
		if got := strings.Join(sent, ","); err != nil || got != want {
			t.Errorf("Cancel of the job %s sends %s %v, want %s", job, got, err, want)
		}
	}
}
