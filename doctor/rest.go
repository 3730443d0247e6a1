package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm/rest"
)

// The codes of the checks of the way to slurmrestd.
const restFiles, restToken, restConnection, restLogin = "rest_files", "rest_token", "rest_connection", "rest_login"
const restVersion, restUser = "rest_version", "rest_user"

// restChecks returns the checks of the way to slurmrestd, in the order in which a call could fail.
func restChecks() []Check {
	const newToken = "make one for the user of slurm.rest.user: scontrol token username=USER lifespan=SECONDS"
	list := []Check{{
		Code: restFiles, Proves: "The service's user can use the files and commands of slurm.rest, and no other user can read the token.",
		Where: Gateway, Early: true, Stops: true, Remedy: "correct slurm.rest in the site file, or the owner and mode of the files it names",
		Look: func(_ context.Context, x *Exam) (results []Result) {
			for _, p := range x.REST() {
				results = append(results, bad(p.Hint, "%s: %s", p.Field, p.Msg)...)
			}
			if len(results) == 0 {
				return ok("the files of slurm.rest")
			}
			return results
		},
	}, {
		Code: restToken, Proves: "The gateway has a token of its user, or needs none, and something renews it before it ends.", Where: Gateway,
		Needs: []string{restFiles}, Remedy: newToken, Look: tokenLife,
	}, {
		Code: restConnection, Proves: "slurmrestd answers where slurm.rest says.", Where: Slurmrestd, Needs: []string{restFiles, restToken},
		Remedy: "start slurmrestd, or correct slurm.rest.url", Look: restLook(run.Unreachable, func(x *Exam) []Result {
			return ok("slurmrestd answers at %s", x.Cluster.Slurm.REST.Where())
		}),
	}, {
		Code: restLogin, Proves: "slurmrestd and slurmctld accept the gateway as its user.", Where: Slurmrestd, Needs: []string{restConnection},
		Remedy: newToken + "; without a token slurmrestd serves the user it runs as (rest_auth/local)",
		Look: restLook(rest.AuthFault, func(x *Exam) []Result {
			return ok("accepted as %s", x.User.name)
		}),
	}, {
		Code: restVersion, Proves: "slurmrestd and the gateway speak a common version of slurmrestd's API.", Where: Slurmrestd,
		Needs: []string{restLogin}, Remedy: "remove slurm.rest.version, or upgrade the older of the two",
		Look: restLook(rest.NoVersion, func(x *Exam) []Result {
			return ok("%s, Slurm %s", x.greeting.Version, x.greeting.Release)
		}),
	}, {
		Code: restUser, Proves: "slurmrestd acts for the gateway's user only, and runs neither as root nor as SlurmUser.",
		Where: Slurmrestd, Needs: []string{restVersion}, Remedy: "run slurmrestd as a separate user, and use a token of an ordinary user",
		Look: restIdentity,
	}}
	for i := range list {
		list[i].Cluster, list[i].Only = true, overREST
		if list[i].Code != restFiles {
			list[i].Over = slurmSide
		}
	}
	return list
}

// greeted returns slurmrestd's description of itself, which is read once.
func (x *Exam) greeted(ctx context.Context) (rest.Greeting, error) {
	if err, tried := x.tried[restConnection]; tried {
		return x.greeting, err
	}
	r, err := x.rest()
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, lookTime)
		x.greeting, err = r.Greet(ctx)
		stop()
	}
	x.tried[restConnection] = err
	return x.greeting, err
}

// RESTSlurm is the part of slurmrestd that the checks of the way call.
type RESTSlurm interface {
	Token(context.Context) (*rest.Life, error)
	Greet(context.Context) (rest.Greeting, error)
	ActsForOthers(context.Context) (bool, error)
}

func (x *Exam) rest() (RESTSlurm, error) {
	s, err := x.OpenSlurm()
	if err != nil {
		return nil, err
	}
	r, is := s.(RESTSlurm)
	if !is {
		return nil, fault.New(fault.Internal, "", fmt.Sprintf("%T is not slurmrestd", s))
	}
	return r, nil
}

// restLook returns the check to which a failure with this code belongs. A failure of a later check is fine here.
func restLook(code string, fine func(*Exam) []Result) func(context.Context, *Exam) []Result {
	later := map[string][]string{run.Unreachable: {rest.AuthFault, rest.NoVersion, rest.NoPath, run.WrongCluster, rest.Refused},
		rest.AuthFault: {rest.NoVersion, rest.NoPath, run.WrongCluster, rest.Refused}, rest.NoVersion: {run.WrongCluster, rest.Refused}}
	return func(ctx context.Context, x *Exam) []Result {
		_, err := x.greeted(ctx)
		if err == nil {
			return fine(x)
		}
		for _, other := range later[code] {
			if fault.CodeOf(err) == other {
				return fine(x)
			}
		}
		r := failed(restRemedy(x.Cluster.Slurm.REST, err), err)
		for i := range r {
			r[i].Status = app.CheckFault // its answer was long overdue
		}
		return r
	}
}

// restRemedy returns what to do about a connection that cannot be made; empty: the error's own advice.
func restRemedy(r *site.REST, err error) string {
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		return "use a name of the server's certificate in slurm.rest.url, or let the certificate name that host"
	case errors.As(err, &unknown):
		return "name the file of the authority that signed the server's certificate in slurm.rest.ca"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of slurmrestd's server, and compare the clocks of both hosts"
	case errors.Is(err, fs.ErrPermission):
		return "let the gateway's user open the socket: see its owner and group and the folders above it, namei -l " + r.Where()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return "start slurmrestd (systemctl start slurmrestd), or correct slurm.rest.url"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "check host and port in slurm.rest.url, and what firewalls are on the way; then look at slurmrestd's log"
	}
	return ""
}

// Bounds of a token's life.
const (
	shortToken = 2 * time.Minute // of one that a command prints, when it is new
	lateToken  = 10 * time.Minute
)

// tokenLife judges how long the token holds. A token in a file that has less than a quarter of its life left was not renewed in time.
func tokenLife(ctx context.Context, x *Exam) []Result {
	r, err := x.rest()
	var life *rest.Life
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, lookTime)
		life, err = r.Token(ctx)
		stop()
	}
	if err != nil {
		result := failed("", err)
		result[0].Status = app.CheckFault
		return result
	}
	byCommand := len(x.Cluster.Slurm.REST.TokenCommand) > 0
	if life == nil {
		return ok("none: slurmrestd knows the gateway by its socket or pipes")
	}
	if life.Ends.IsZero() {
		return warning("give tokens an end and renew them: scontrol token lifespan=SECONDS",
			"the token never ends: a thief could use it for ever")
	}
	left := time.Until(life.Ends).Round(time.Second)
	switch {
	case byCommand && left < shortToken:
		return warning("let slurm.rest.token_command print tokens of ten minutes and more", "the token that slurm.rest.token_command printed "+
			"ends in %s", left)
	case !byCommand && (left < lateToken || !life.Issued.IsZero() && left < life.Ends.Sub(life.Issued)/4):
		return warning("let a timer write a new token to slurm.rest.token_file well before it ends; it is read again when it changes",
			"the token ends in %s, and nothing has renewed it", left)
	}
	return ok("it holds for %s", left)
}

// restIdentity judges who serves and for whom.
func restIdentity(ctx context.Context, x *Exam) (results []Result) {
	g, err := x.greeted(ctx)
	if fault.CodeOf(err) == run.WrongCluster {
		return unknown("correct the cluster first", "another cluster than slurm.cluster answers")
	}
	if err != nil {
		return failed("", err)
	}
	if g.Process == 0 {
		results = append(results, warning("run slurmrestd as a separate user: User= in its unit",
			"root made the socket %s: slurmrestd may run as root, which can act for any user", x.Cluster.Slurm.REST.Where())...)
	}
	if g.User != "" && g.User != x.User.name {
		results = append(results, bad("ask a slurmrestd that runs as "+x.User.name+", or use a token", "slurmrestd acts as %s for the gateway, "+
			"and slurm.rest.user is %s: jobs would belong to %s", g.User, x.User.name, g.User)...)
	}
	r, err := x.rest()
	if err != nil {
		return append(results, failed("", err)...)
	}
	switch others, err := r.ActsForOthers(ctx); {
	case err != nil:
		results = append(results, unknown("look whose token it is", "it is unknown whether the token may act for other users: %v", err)...)
	case others:
		results = append(results, bad("make a token of an ordinary user, and revoke this one: it gives control of the whole cluster",
			"the token of %s may act for every user, as one of SlurmUser or root does", x.User.name)...)
	}
	if len(results) == 0 {
		return ok("%s", x.User.name)
	}
	return results
}
