package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

var update = flag.Bool("update", false, "write the golden files")

func oneScript(_ context.Context, _ string, _ int, name string, _ int64, _ bool) ([]byte, error) {
	if name != run.ScriptFile {
		return nil, fault.New(fault.NotFound, "", "no "+name)
	}
	return []byte("#!/bin/bash\necho \"$1\" >&2 # <&> ü\n"), nil
}

// The body of a post, for each version: the properties are those of sbatch's arguments.
func TestBodies(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			var got []byte
			f := newFake(t, v.name, func(r *http.Request, body []byte) []byte {
				if r.URL.Path != "/slurm/"+v.name+"/job/submit" || r.Method != "POST" {
					return plainly(404, "")
				}
				got = body
				return said(200, `{"job_id":7,`+testMeta+`}`)
			})
			s := f.client(t, func(c *Config) {
				if !v.cluster {
					c.Cluster = ""
				}
			})
			if res := s.Send(t.Context(), testJob(), 1); res.Outcome != run.SendAccepted || res.JobID != "7" {
				t.Fatalf("%+v", res)
			}
			value := jsontext.Value(got)
			if err := value.Indent(); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "submit-"+v.name+".json")
			if *update {
				if err := os.WriteFile(golden, append(value, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(value)+"\n"); d != "" {
				t.Error(d)
			}
		})
	}
}

// An option of sbatch without a counterpart is never left out.
func TestUnknownOption(t *testing.T) {
	for _, v := range versions {
		if _, err := v.body([]string{"--cpus-per-task=1", "--nice=5", "/script"}, nil); err == nil || !strings.Contains(err.Error(), "--nice") {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// What each answer proves.
func TestAnswersOfAPost(t *testing.T) {
	const accepted, no, later, doubt, notRun = run.SendAccepted, run.SendRejected, run.SendDeferred, run.SendDoubt, run.SendNotRun
	refusal := func(number int) string {
		return fmt.Sprintf(`{"errors":[{"error_number":%d,"error":"x","description":"Batch job submission failed"}],`+testMeta+`}`, number)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, `{"job_id":7}`)
	z.Close()
	for name, c := range map[string]struct {
		answer  []byte
		outcome run.SendOutcome
		code    string
	}{
		"a job":                      {said(200, `{"job_id":7,`+testMeta+`,"errors":[],"warnings":[]}`), accepted, ""},
		"a job with warnings":        {said(200, `{"job_id":7,"warnings":[{"description":"non-zero return code"}]}`), accepted, ""},
		"a job with errors":          {said(200, `{"job_id":7,"errors":[{"error_code":2068}]}`), accepted, ""},
		"a job with a refusal":       {said(500, `{"job_id":7,"errors":[{"error_number":2000}]}`), accepted, ""},
		"a job with a bad status":    {said(500, `{"job_id":7}`), accepted, ""},
		"a job of v0.0.40":           {said(200, `{"result":{"job_id":7,"error_code":0},"job_id":7}`), accepted, ""},
		"two jobs":                   {said(200, `{"result":{"job_id":7},"job_id":8}`), doubt, "several_receipts"},
		"job 0":                      {said(200, `{"job_id":0,"errors":[]}`), doubt, noReceipt},
		"job null":                   {said(200, `{"job_id":null}`), doubt, noReceipt},
		"a job that is text":         {said(200, `{"job_id":"7"}`), doubt, Unread},
		"a job of another cluster":   {said(200, `{"job_id":7,"meta":{"slurm":{"cluster":"beta"}}}`), doubt, run.WrongCluster},
		"refused with 500":           {said(500, refusal(2000)), no, "ESLURM_INVALID_PARTITION_NAME"},
		"refused with 422":           {said(422, refusal(2045)), no, "ESLURM_INVALID_ACCOUNT"},
		"refused with 200":           {said(200, refusal(2066)), no, "ESLURM_INVALID_QOS"},
		"refused as v0.0.38 does":    {said(500, `{"errors":[{"error_code":2051,"error":"x"},{"error_code":-1}]}`), doubt, noReceipt},
		"refused, number and code":   {said(500, `{"errors":[{"error_number":-1,"error_code":2051}]}`), no, "ESLURM_INVALID_TIME_LIMIT"},
		"refused for a limit":        {said(500, refusal(2050)), later, "ESLURM_ACCOUNTING_POLICY"},
		"no connection to slurmctld": {said(502, refusal(1800)), later, run.Unreachable},
		"too many jobs":              {said(500, refusal(11)), later, "EAGAIN"},
		"slurmctld did not answer":   {said(504, refusal(5004)), doubt, noReceipt},
		"authentication":             {said(511, refusal(1007)), doubt, noReceipt},
		"an unknown number":          {said(500, refusal(4711)), doubt, noReceipt},
		"no number":                  {said(500, `{"errors":[{"description":"x"}]}`), doubt, noReceipt},
		"a refusal and an unknown":   {said(500, `{"errors":[{"error_number":2000},{"error_number":5004}]}`), doubt, noReceipt},
		"nothing":                    {said(200, `{}`), doubt, noReceipt},
		"nothing with 500":           {said(500, `{}`), doubt, noReceipt},
		"an empty body":              {said(200, ``), doubt, Unread},
		"no content":                 {[]byte("HTTP/1.1 204 NO CONTENT\r\n\r\n"), doubt, Unread},
		"HTML":                       {plainly(502, "<html>Bad Gateway</html>"), doubt, Unread},
		"an array":                   {said(200, `[{"job_id":7}]`), doubt, Unread},
		"text after the answer":      {said(200, `{"job_id":7}{}`), doubt, Unread},
		"the job and another":        {said(200, `{"job_id":7,"job_id":8}`), doubt, "several_receipts"},
		"no HTTP":                    {[]byte("SSH-2.0-OpenSSH\r\n"), doubt, run.Unreachable},
		"an endless header":          {endless("HTTP/1.1 200 OK\r\nX: x"), doubt, run.Unreachable},
		"an endless answer":          {endless("HTTP/1.1 200 OK\r\n\r\n{ "), doubt, Unread},
		"a longer length":            {bytes.Replace(said(200, `{"job_id":7}`), []byte("Length: 12"), []byte("Length: 13"), 1), doubt, Unread},
		"a redirect":                 {[]byte("HTTP/1.1 307 TEMPORARY REDIRECT\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"), doubt, Unread},
		"compressed": {append([]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", packed.Len())),
			packed.Bytes()...), doubt, Unread},
		"continue":          {[]byte("HTTP/1.1 100 CONTINUE\r\n\r\n"), doubt, Unread},
		"not authenticated": {plainly(401, "Authentication failure"), notRun, AuthFault},
		"not authorised":    {plainly(403, ""), notRun, AuthFault},
		"no such path":      {plainly(404, "Unable find requested URL."), notRun, NoPath},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte { return c.answer })
			res := f.client(t).Send(t.Context(), testJob(), 1)
			if res.Outcome != c.outcome || res.Code != c.code || (res.JobID == "7") != (c.outcome == accepted) || res.ExitCode != nil {
				t.Errorf("%+v", res)
			}
			if n := f.requests("POST"); n != 1 {
				t.Errorf("%d posts", n)
			}
		})
	}
}

// endless is a text whose last character is repeated beyond every limit.
func endless(s string) []byte {
	return append([]byte(s), bytes.Repeat([]byte(s[len(s)-1:]), maxAnswer+maxHeader+1)...)
}

// What Slurm refused a job for is in the result, for whoever asked for the job.
func TestRefusalIsShown(t *testing.T) {
	f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte {
		return said(500, `{"errors":[{"error_number":2045,"error":"Invalid account","description":"Batch job submission failed"}]}`)
	})
	res := f.client(t).Send(t.Context(), testJob(), 1)
	for _, want := range []string{"Batch job submission failed: Invalid account (error 2045)", "sacctmgr add user lab account=research"} {
		if !strings.Contains(res.Text, want) {
			t.Errorf("%q is not in %q", want, res.Text)
		}
	}
}

// An answer that breaks off at any byte is doubt, and nothing is sent again.
func TestCutAnswers(t *testing.T) {
	whole := said(200, `{"job_id":7,`+testMeta+`,"errors":[],"warnings":[]}`)
	for n := range whole {
		f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte { return whole[:n] })
		if res := f.client(t).Send(t.Context(), testJob(), 1); res.Outcome != run.SendDoubt || res.JobID != "" || f.requests("POST") != 1 {
			t.Errorf("cut at %d: %+v, %d posts", n, res, f.requests("POST"))
		}
	}
}

// Without a server, or one that ends each connection before it reads, nothing was sent.
func TestNotSent(t *testing.T) {
	f := newFake(t, "v0.0.42", nil)
	s := f.client(t)
	if err := os.Remove(f.socket); err != nil {
		t.Fatal(err)
	}
	if res := s.Send(t.Context(), testJob(), 1); res.Outcome != run.SendNotRun || res.Code != run.Unreachable || res.Scope != run.ScopeSite {
		t.Errorf("%+v", res)
	}
	unread := f.client(t, func(c *Config) {
		c.Control = func(context.Context, string, int, string, int64, bool) ([]byte, error) {
			return nil, io.ErrUnexpectedEOF
		}
	})
	if res := unread.Send(t.Context(), testJob(), 1); res.Outcome != run.SendNotRun || res.Scope != run.ScopeRun {
		t.Errorf("%+v", res)
	}
}

// A slurmrestd of another cluster gets no job: not on the first connection, and not on one that is made later.
func TestOtherCluster(t *testing.T) {
	cluster := "alpha"
	f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte { return said(200, `{"job_id":7}`) })
	f.proof = func(*http.Request) []byte { return said(200, `{"meta":{"slurm":{"cluster":"`+cluster+`"}}}`) }
	s := f.client(t)
	if res := s.Send(t.Context(), testJob(), 1); res.Outcome != run.SendAccepted {
		t.Fatalf("%+v", res)
	}
	cluster = "beta" // the fake ends its connections
	if res := s.Send(t.Context(), testJob(), 2); res.Outcome != run.SendNotRun || res.Code != run.WrongCluster || f.requests("POST") != 1 {
		t.Errorf("%+v", res)
	}
	cluster = ""
	if res := s.Send(t.Context(), testJob(), 3); res.Outcome != run.SendNotRun || f.requests("POST") != 1 {
		t.Errorf("%+v", res)
	}
}

// Both lists are in the message when there is no common version.
func TestNoCommonVersion(t *testing.T) {
	f := newFake(t, "v0.0.37", nil)
	res := f.client(t).Send(t.Context(), testJob(), 1)
	if res.Outcome != run.SendNotRun || res.Code != NoVersion || !strings.Contains(res.Text, "v0.0.37") ||
		!strings.Contains(res.Text, "v0.0.45") {
		t.Errorf("%+v", res)
	}
	f = newFake(t, "v0.0.42", nil)
	res = f.client(t, func(c *Config) { c.Version = "v0.0.41" }).Send(t.Context(), testJob(), 1)
	if res.Outcome != run.SendNotRun || !strings.Contains(res.Text, "v0.0.42") ||
		!strings.Contains(res.Text, "slurm.rest.version is v0.0.41") {
		t.Errorf("%+v", res)
	}
}

// Whatever an answer is, reading it ends, and a job is accepted only when the answer is whole.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"job_id":7,` + testMeta + `,"errors":[],"warnings":[]}`, `{"result":{"job_id":7}}`,
		`{"errors":[{"error_number":2000}]}`, `{"job_id":`, `{"errors":null,"meta":null}`, "{}", "", "[", `{"job_id":9223372036854775807}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var made submitted
		a, err := read(bytes.NewReader(body), made.members())
		s := &Slurm{}
		if err != nil {
			err = fault.Wrap(fault.Transport, Unread, "x", err)
		}
		res := s.judge(a, made, err)
		if res.Outcome == run.SendAccepted && (err != nil || !jsontext.Value(body).IsValid(jsontext.AllowInvalidUTF8(true))) {
			t.Errorf("%q is %+v", body, res)
		}
	})
}
