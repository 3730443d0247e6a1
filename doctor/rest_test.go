package doctor

import (
	"context"
	"crypto/x509"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm/rest"
)

// restd is a slurmrestd with the answers of a test.
type restd struct {
	Slurm
	life     *rest.Life
	noToken  error
	greeting rest.Greeting
	greet    error
	others   bool
}

func (r restd) Token(context.Context) (*rest.Life, error)    { return r.life, r.noToken }
func (r restd) Greet(context.Context) (rest.Greeting, error) { return r.greeting, r.greet }
func (r restd) ActsForOthers(context.Context) (bool, error)  { return r.others, nil }
func holds(issued, ends time.Duration) *rest.Life {
	return &rest.Life{Issued: time.Now().Add(issued), Ends: time.Now().Add(ends)}
}
func away(cause error) error {
	return fault.Wrap(fault.Transport, run.Unreachable, "cannot be reached", cause)
}
func transport(code, text string) error { return fault.New(fault.Transport, code, text) }
func tokenFile(r *site.REST)            { r.TokenFile = "/t" }

// unseen is the greeting of a slurmrestd whose process is invisible.
var unseen = rest.Greeting{Process: -1}

// Each thing that can be wrong on the way to slurmrestd is one check's, with what to do; the checks before it are ok, those after it are
// unknown.
//
// proves OPS-02 SITE-06
func TestDoctorOverREST(t *testing.T) {
	order := []string{restFiles, restToken, restConnection, restLogin, restVersion, restUser}
	for _, c := range []struct {
		name          string
		edit          func(*site.REST)
		is            restd
		files         []fault.Problem
		code          string
		status        app.CheckStatus
		found, remedy string
	}{
		{"all is well", nil, restd{greeting: rest.Greeting{Version: "v0.0.42", Process: -1, User: "svc"}}, nil, "", "", "", ""},
		{"a file", nil, restd{}, []fault.Problem{{Field: "slurm.rest.ca", Msg: "it is missing", Hint: "write it"}}, restFiles, app.CheckFault,
			"slurm.rest.ca: it is missing", "write it"},
		{"no token", tokenFile, restd{noToken: transport(rest.TokenFault, "no such file")}, nil, restToken, app.CheckFault, "no such file",
			"scontrol token"},
		{"a token without end", tokenFile, restd{life: &rest.Life{}, greeting: unseen}, nil, restToken, app.CheckWarning,
			"never ends", "lifespan"},
		{"a token nobody renewed", tokenFile, restd{life: holds(-23*time.Hour, time.Hour), greeting: unseen}, nil, restToken,
			app.CheckWarning, "nothing has renewed it", "timer"},
		{"a short token", func(r *site.REST) { r.TokenCommand = []string{"/t"} }, restd{life: holds(0, 119*time.Second), greeting: unseen},
			nil, restToken, app.CheckWarning, "ends in 1m", "ten minutes"},
		{"no socket", nil, restd{greet: away(fs.ErrNotExist)}, nil, restConnection, app.CheckFault, "cannot be reached", "start slurmrestd"},
		{"a closed socket", nil, restd{greet: away(fs.ErrPermission)}, nil, restConnection, app.CheckFault, "cannot be reached", "namei -l"},
		{"nobody listens", nil, restd{greet: away(syscall.ECONNREFUSED)}, nil, restConnection, app.CheckFault, "refused", "start slurmrestd"},
		{"a host that is away", nil, restd{greet: away(context.DeadlineExceeded)}, nil, restConnection, app.CheckFault, "deadline", "firewalls"},
		{"an unknown authority", nil, restd{greet: away(x509.UnknownAuthorityError{})}, nil, restConnection, app.CheckFault, "unknown authority",
			"slurm.rest.ca"},
		{"another name", nil, restd{greet: away(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"})}, nil, restConnection,
			app.CheckFault, "x509", "name of the server's certificate"},
		{"not accepted", nil, restd{greet: transport(rest.AuthFault, "status 401")}, nil, restLogin, app.CheckFault, "status 401",
			"scontrol token"},
		{"no common version", nil, restd{greet: transport(rest.NoVersion, "it serves v0.0.37")}, nil, restVersion, app.CheckFault, "v0.0.37",
			"upgrade"},
		{"root's process", nil, restd{greeting: rest.Greeting{Process: 0}}, nil, restUser, app.CheckWarning, "may run as root", "User="},
		{"another user", nil, restd{greeting: rest.Greeting{Process: -1, User: "bob"}}, nil, restUser, app.CheckFault, "jobs would belong to bob",
			"runs as svc"},
		{"a token of SlurmUser", tokenFile, restd{life: holds(0, time.Hour), greeting: unseen, others: true}, nil,
			restUser, app.CheckFault, "may act for every user", "ordinary user"},
	} {
		s := &site.Site{}
		s.Slurm.Transport, s.Slurm.REST = site.TransportREST, &site.REST{URL: "unix:/run/s", User: "svc"}
		if c.edit != nil {
			c.edit(s.Slurm.REST)
		}
		e := exam(s)
		e.Reach = func(*site.Site) Ways {
			return Ways{OpenSlurm: func() (Slurm, error) { return c.is, nil }, REST: func() []fault.Problem { return c.files }, JobsOf: "svc"}
		}
		x := e.on(s)
		x.run(t.Context(), func(k Check) bool { return strings.HasPrefix(k.Code, "rest_") })
		due := app.CheckOK
		for _, code := range order {
			i := 0
			for i < len(x.answer.Findings)-1 && x.answer.Findings[i].Code != code {
				i++
			}
			f := x.answer.Findings[i]
			switch {
			case f.Code != code:
				t.Errorf("%s: %s was not made", c.name, code)
			case code != c.code:
				if f.Status != due {
					t.Errorf("%s: %s is %s, want %s: %+v", c.name, code, f.Status, due, f)
				}
			case f.Status != c.status || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Remedy, c.remedy):
				t.Errorf("%s: finding %+v", c.name, f)
			case c.status == app.CheckFault:
				due = app.CheckUnknown
			}
		}
	}
}

// doctor reports what slurmrestd does not show of slurm.conf, and which MessageTimeout counts instead.
func TestDoctorNamesTheDefaultMessageTimeout(t *testing.T) {
	for _, k := range slurmChecks() {
		if k.Code != "slurm_conf" {
			continue
		}
		r := k.Look(t.Context(), nil)
		if len(r) != 1 || r[0].Status != app.CheckWarning || !strings.Contains(r[0].Found, "default MessageTimeout, 10s") {
			t.Errorf("results %+v", r)
		}
		return
	}
	t.Error("the check is not made")
}
