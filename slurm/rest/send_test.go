package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
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
	"slurmgate/run/runtest"
)

var update = flag.Bool("update", false, "write the golden files")

func oneScript(_ context.Context, _ string, _ int, name string, _, _ int64) (run.Part, error) {
	if name != run.ScriptFile {
		return run.Part{}, fault.New(fault.NotFound, "", "no "+name)
	}
	return run.Part{Data: []byte("#!/bin/bash\necho \"$1\" >&2 # <&> ü\n")}, nil
}

// The body of a post has the properties of sbatch's arguments, in each version.
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
			s := f.client(t)
			runtest.WantSend(t, s.Send(t.Context(), testJob(), 1), run.SendAccepted, "7")
			value := jsontext.Value(got)
			must(t, value.Indent())
			golden := filepath.Join("testdata", "submit-"+v.name+".json")
			if *update {
				must(t, os.WriteFile(golden, append(value, '\n'), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if d := cmp.Diff(string(want), string(value)+"\n"); d != "" {
				t.Errorf("the body differs from %s (-want +got):\n%s", golden, d)
			}
		})
	}
}

// An option of sbatch without a counterpart is never left out.
func TestUnknownOption(t *testing.T) {
	for _, v := range versions {
		if _, err := v.body([]string{"--cpus-per-task=1", "--nice=5", "/script"}, nil); err == nil || !strings.Contains(err.Error(), "--nice") {
			t.Errorf("the body of %s with an unknown option gives %v, want an error about --nice", v.name, err)
		}
	}
}

// Send returns what each answer proves.
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
		"refused with 200":           {said(200, refusal(2066)), no, "ESLURM_INVALID_QOS"},
		"refused for a limit":        {said(500, refusal(2050)), later, "ESLURM_ACCOUNTING_POLICY"},
		"no connection to slurmctld": {said(502, refusal(1800)), later, run.Unreachable},
		"too many jobs":              {said(500, refusal(11)), later, "EAGAIN"},
		"slurmctld did not answer":   {said(504, refusal(5004)), doubt, noReceipt},
		"authentication":             {said(511, refusal(1007)), doubt, noReceipt},
		"an unknown number":          {said(500, refusal(4711)), doubt, run.RefusedInWords},
		"a plugin's refusal":         {said(500, refusal(-1)), doubt, run.RefusedInWords},
		"a plugin's refusal in words": {said(500, `{"job_submit_user_msg":"no","errors":[{"error_number":-1,"error":"Unspecified error"}]}`),
			doubt, run.RefusedInWords},
		"no answer, by its text": {said(500, `{"errors":[{"error_number":-1,"error":"Zero Bytes were transmitted or received"}]}`), doubt,
			noReceipt},
		"no number":                {said(500, `{"errors":[{"description":"x"}]}`), doubt, noReceipt},
		"a refusal and an unknown": {said(500, `{"errors":[{"error_number":2000},{"error_number":5004}]}`), doubt, noReceipt},
		"nothing":                  {said(200, `{}`), doubt, noReceipt},
		"an empty body":            {said(200, ``), doubt, Unread},
		"no content":               {[]byte("HTTP/1.1 204 NO CONTENT\r\n\r\n"), doubt, Unread},
		"an array":                 {said(200, `[{"job_id":7}]`), doubt, Unread},
		"text after the answer":    {said(200, `{"job_id":7}{}`), doubt, Unread},
		"the job and another":      {said(200, `{"job_id":7,"job_id":8}`), doubt, "several_receipts"},
		"no HTTP":                  {[]byte("SSH-2.0-OpenSSH\r\n"), doubt, run.Unreachable},
		"an endless header":        {endless("HTTP/1.1 200 OK\r\nX: x"), doubt, run.Unreachable},
		"an endless answer":        {endless("HTTP/1.1 200 OK\r\n\r\n{ "), doubt, Unread},
		"a longer length":          {bytes.Replace(said(200, `{"job_id":7}`), []byte("Length: 12"), []byte("Length: 13"), 1), doubt, Unread},
		"a redirect":               {[]byte("HTTP/1.1 307 TEMPORARY REDIRECT\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"), doubt, Unread},
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
				t.Errorf("the send ended as %s, want as its row says", sendText(res))
			}
			if n := f.requests("POST"); n != 1 {
				t.Errorf("%d posts", n)
			}
		})
	}
}

// endless returns a text whose last character is repeated beyond every limit.
func endless(s string) []byte {
	return append([]byte(s), bytes.Repeat([]byte(s[len(s)-1:]), maxAnswer+maxHeader+1)...)
}

// The result has Slurm's reason for a refusal, for the caller.
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
		runtest.WantSend(t, f.client(t).Send(t.Context(), testJob(), 1), run.SendDoubt, "")
		runtest.WantCount(t, "POST", f.requests("POST"), 1)
	}
}

// Without a server, or with one that ends each connection before it reads, nothing is sent.
func TestNotSent(t *testing.T) {
	f := newFake(t, "v0.0.42", nil)
	s := f.client(t)
	must(t, os.Remove(f.socket))
	if res := s.Send(t.Context(), testJob(), 1); res.Outcome != run.SendNotRun || res.Code != run.Unreachable || res.Scope != run.ScopeSite {
		t.Errorf("without a server the send ended as %s, want not run, of the site", sendText(res))
	}
	unread := f.client(t, func(c *Config) {
		c.Control = func(context.Context, string, int, string, int64, int64) (run.Part, error) {
			return run.Part{}, io.ErrUnexpectedEOF
		}
	})
	if res := unread.Send(t.Context(), testJob(), 1); res.Outcome != run.SendNotRun || res.Scope != run.ScopeRun {
		t.Errorf("without its script the send ended as %s, want not run, of the run", sendText(res))
	}
}

// A slurmrestd of another cluster gets no job: neither on the first connection nor on a later one.
func TestOtherCluster(t *testing.T) {
	cluster := "alpha"
	f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte { return said(200, `{"job_id":7}`) })
	f.proof = func(*http.Request) []byte { return said(200, `{"meta":{"slurm":{"cluster":"`+cluster+`"}}}`) }
	s := f.client(t)
	runtest.WantSend(t, s.Send(t.Context(), testJob(), 1), run.SendAccepted, "")
	cluster = "beta" // then the fake ends its connections
	runtest.WantSend(t, s.Send(t.Context(), testJob(), 2), run.SendNotRun, run.WrongCluster)
	runtest.WantCount(t, "POST", f.requests("POST"), 1)
	cluster = ""
	runtest.WantSend(t, s.Send(t.Context(), testJob(), 3), run.SendNotRun, "")
	runtest.WantCount(t, "POST", f.requests("POST"), 1)
}

// Both lists are in the message when there is no common version, and the next step names what is too old.
func TestNoCommonVersion(t *testing.T) {
	for _, c := range []struct {
		served, wanted string
		text, next     string // in the result; in the fault
	}{
		{"v0.0.39", "", "it serves v0.0.39, and slurmgate speaks v0.0.40, ", "23.11 or later, or set slurm.transport to cli or ssh"},
		{"v0.0.39", "v0.0.41", "it serves v0.0.39, and slurm.rest.version is v0.0.41", "upgrade Slurm to 23.11"},
		{"v0.0.42", "v0.0.41", "it serves v0.0.42, and slurm.rest.version is v0.0.41", "a version that slurmrestd serves"},
		{"v0.0.100", "", "it serves v0.0.100, and slurmgate speaks v0.0.40, ", "upgrade slurmgate"},
	} {
		s := newFake(t, c.served, nil).client(t, func(cfg *Config) { cfg.Version = c.wanted })
		res := s.Send(t.Context(), testJob(), 1)
		if res.Outcome != run.SendNotRun || res.Code != NoVersion || !strings.Contains(res.Text, c.text) {
			t.Errorf("the send to a slurmrestd of %s ended as %s, want not run with %q", c.served, sendText(res), c.text)
		}
		_, err := s.Greet(t.Context())
		if f, is := errors.AsType[*fault.Error](err); !is || f.Code != NoVersion || !strings.Contains(f.Next, c.next) {
			t.Errorf("Greet of a slurmrestd of %s fails with %#v, want %s and %q", c.served, err, NoVersion, c.next)
		}
	}
}

// Reading any answer ends, and a job is accepted only if the answer is whole.
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
			t.Errorf("the answer %q (%v) is taken as %s, want accepted only for valid JSON without an error", body, err, sendText(res))
		}
	})
}
