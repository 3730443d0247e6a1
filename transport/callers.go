package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"slurmgate/artifact"
	"slurmgate/asuser"
	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/signer"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/staging"
	far "slurmgate/staging/sftp"
)

// Where slurm.run_as is caller, a run acts on the cluster as its user: package asuser passes each call to the parts of
// that user, which are opened here. They log in over SSH with a certificate that is valid for minutes, which the signer
// issues for a new key.

// callers are the users of one cluster.
type callers struct {
	sites  *Sites
	site   *site.Site
	me     nss.User
	slurm  *slurm.CLI // the service's transport, which knows the cluster
	logins chan struct{}
	signs  atomic.Bool // whether the signer answered the last request
	*asuser.Users
}

const (
	loginsAtOnce  = 4 // below MaxStartups of sshd, which drops logins at random from the eleventh on
	userTransfers = 2 // connections for the bytes of one user's files
)

// openCallers returns the users of a cluster. It logs no user in.
func (x *Sites) openCallers(ctx context.Context, s *site.Site, service *slurm.CLI) (*callers, error) {
	me, err := nss.Host{}.UserOf(ctx, os.Geteuid())
	if err != nil {
		return nil, fault.Wrap("", "", "the name of this process's user is unknown", err)
	}
	c := &callers{sites: x, site: s, me: me, slurm: service, logins: make(chan struct{}, loginsAtOnce)}
	c.Users = asuser.New(asuser.Config{UserOf: x.Ledger.UserOf, LeaderOf: x.Ledger.LeaderOf, Login: c.login,
		Limit: s.Slurm.Caller.Connections,
		Idle:  time.Duration(s.Slurm.Caller.IdleSeconds) * time.Second,
		RunDir: func(user, runID string) string {
			if jobs, _, err := s.UserFolders(user); err == nil {
				return path.Join(jobs, runID)
			}
			return path.Join(s.Storage.RunsDir, runID)
		}})
	x.callers.Store(s.Name, c)
	_, err = signer.Client{Socket: s.Slurm.Caller.Signer}.About(ctx)
	c.signs.Store(err == nil)
	if err != nil {
		x.Log.Warn("the signer does not answer; runs wait until it does", "site", s.Name, "err", err)
	}
	return c, nil
}

// OwnUser returns the user that submitted a cluster's runs before run_as was caller, or "" on any other cluster.
func (x *Sites) OwnUser(s *site.Site) (string, error) {
	if !s.AsCaller() {
		return "", nil
	}
	c, err := x.Hosts.slurmConfig(s)
	return c.User, err
}

// Links returns a function that reports the connections to a site, those of its users in one line. It returns nil for a
// site on this host.
func (x *Sites) Links(s *site.Site) func() []run.Connection {
	if !s.FarSlurm() && !s.FarFiles() && !s.AsCaller() {
		return nil
	}
	return func() (list []run.Connection) {
		if s.FarSlurm() {
			list = appendLink(list, "slurm", x.Hosts.login, s)
		}
		if s.FarFiles() {
			list = appendLink(list, "files", x.Hosts.data, s)
		}
		if c, open := x.callers.Load(s.Name); open {
			connected, refused := c.(*callers).State()
			list = append(list, run.Connection{To: "users", Up: c.(*callers).signs.Load(), Users: connected, Refused: refused})
		}
		return list
	}
}

// appendLink appends the state of the connection to a host.
func appendLink(list []run.Connection, to string, open func(*site.Site) (*remote.Host, error), s *site.Site) []run.Connection {
	host, err := open(s)
	if err != nil {
		return list
	}
	up, lost := host.State()
	return append(list, run.Connection{To: to, Up: up, Losses: int64(lost)})
}

// as calls f with the parts of a user of a cluster.
func (x *Sites) as(ctx context.Context, cluster, user string, f func(asuser.Parts) error) error {
	c, open := x.callers.Load(cluster)
	if !open {
		return fault.New(fault.Transport, "site_away", "the site "+cluster+" is away, so no user can be logged in there").WithRetry(30)
	}
	return c.(*callers).As(ctx, user, f)
}

// ReadAs implements [app.Gateway.ReadAs].
func (x *Sites) ReadAs(ctx context.Context, cluster, user string, f func(artifact.OpenAs) error) error {
	return x.as(ctx, cluster, user, func(p asuser.Parts) error {
		return f(func(ctx context.Context, name string, limit int64) (artifact.Reading, error) {
			file, err := p.Workspace.(*far.Workspace).OpenFile(ctx, name, limit)
			if err != nil {
				return nil, err
			}
			return reading{file}, nil
		})
	})
}

// FindAs implements [app.Gateway.FindAs].
func (x *Sites) FindAs(ctx context.Context, cluster, user string, folders []string, part string) (found []artifact.Found, whole bool,
	err error) {
	err = x.as(ctx, cluster, user, func(p asuser.Parts) error {
		files, all, err := p.Workspace.(*far.Workspace).FindFiles(ctx, folders, part)
		for _, f := range files {
			found = append(found, artifact.Found{Path: f.Path, SizeBytes: f.SizeBytes, ModifiedAt: f.ModifiedAt})
		}
		whole = all
		return err
	})
	return found, whole, err
}

// reading is a user's file during an import.
type reading struct{ *far.UserFile }

// Bytes implements [artifact.Reading].
func (r reading) Bytes() int64 { return r.Size }

// userLogin logs in as one user; it implements [asuser.Login].
type userLogin struct {
	*callers
	user  string
	host  *remote.Host
	pool  *transfer.Pool
	cli   *slurm.CLI
	jobs  string // the folder of the user's runs as jobs see it
	at    string // the same folder as the login host sees it
	files *far.Workspace
}

// login returns a user's login. It does not connect yet.
func (c *callers) login(user string, latest func() string) (asuser.Login, error) {
	l := &userLogin{callers: c, user: user}
	var err error
	if l.jobs, l.at, err = c.site.UserFolders(user); err != nil {
		return nil, err
	}
	a := c.site.Slurm.Caller
	to := remoteConfig(site.Endpoint{Host: a.SSH.Host, Port: a.SSH.Port, User: user, KnownHosts: a.SSH.KnownHosts}, c.me)
	for _, j := range a.SSH.Jump {
		to.Jump = append(to.Jump, remoteConfig(j, c.me))
	}
	to.Credentials = func(ctx context.Context) (ssh.Signer, time.Time, error) { return c.certificate(ctx, user, latest()) }
	to.Idle, to.Logins = time.Duration(a.IdleSeconds)*time.Second, c.logins
	if l.host, err = remote.New(to, c.sites.Log); err != nil {
		return nil, err
	}
	if l.pool, err = transfer.New(l.host, transfer.Config{Connections: userTransfers}); err != nil {
		return nil, err
	}
	l.cli, err = c.slurm.As(l.host, l.jobs, l.at)
	return l, err
}

// certificate asks the signer for a certificate of a new key.
func (c *callers) certificate(ctx context.Context, user, runID string) (ssh.Signer, time.Time, error) {
	caller := ""
	if v, err := c.sites.Ledger.View(ctx, runID); runID != "" && err == nil {
		caller = v.Run.Principal.Name
	}
	key, until, err := certificateOf(ctx, c.site, user, runID, caller)
	c.signs.Store(fault.CodeOf(err) != signer.Away)
	return key, until, err
}

// certificateOf returns a new key with the signer's certificate for a user, and when the certificate ends.
func certificateOf(ctx context.Context, s *site.Site, user, runID, caller string) (with ssh.Signer, until time.Time, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, until, fault.Wrap(fault.Internal, "key", "no key can be made", err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, until, fault.Wrap(fault.Internal, "key", "the key cannot be used", err)
	}
	of, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, until, fault.Wrap(fault.Internal, "key", "the key cannot be used", err)
	}
	a := s.Slurm.Caller
	cert, err := signer.Client{Socket: a.Signer}.Sign(ctx, signer.Request{User: user, PublicKey: string(ssh.MarshalAuthorizedKey(of)),
		RunID: runID, Caller: caller, Gateway: s.Name, SourceAddresses: a.SourceAddresses, Minutes: a.CertificateMinutes})
	if err != nil {
		return nil, until, err
	}
	if with, err = ssh.NewCertSigner(cert, key); err != nil {
		return nil, until, fault.Wrap(fault.Transport, signer.Misfit, "the signer's certificate is not for the key that was sent", err)
	}
	return with, time.Unix(int64(cert.ValidBefore), 0), nil
}

// Open implements [asuser.Login].
func (l *userLogin) Open(ctx context.Context) (p asuser.Parts, err error) {
	used, err := l.sites.Ledger.Index(l.site.Name).UserHas(ctx, l.user, staged...)
	if err != nil {
		return p, err
	}
	if !used {
		if err := l.makeFolder(ctx); err != nil {
			return p, err
		}
	}
	l.files, err = far.New(ctx, far.Config{RunsDir: l.jobs, LoginRunsDir: l.at, DataRunsDir: l.at, GatewayID: l.sites.Ledger.ID(),
		Marked: used,
		Shell:  l.host, Data: l.host, Pool: l.pool})
	if err != nil {
		return p, err
	}
	if err := l.unexposed(ctx); err != nil {
		l.files.Close()
		return p, err
	}
	return asuser.Parts{Submitter: l.cli, Canceller: l.cli, Workspace: l.files}, nil
}

// unexposed returns a fault for a user's folder that a user other than root could replace. Slurm opens the output of a
// job there with the rights of the job's user, and follows links.
func (l *userLogin) unexposed(ctx context.Context) error {
	states, err := far.StatesInPlace(ctx, l.host, []string{path.Join(l.at, staging.GatewayIDFile)})
	if err != nil {
		return err
	}
	folder, exposed := strings.CutPrefix(states[0], "exposed ")
	if !exposed {
		return nil
	}
	return fault.New(fault.Transport, "runs_dir_unavailable", "other users than "+l.user+" and root can replace what is in "+folder+" on "+
		l.host.Name()+", on the way to "+l.at).
		WithNext("let " + folder + " belong to root or " + l.user + ", and let no other user write there, or set its sticky bit (chmod +t)")
}

// makeFolder creates the folder of a user's runs, as the user. The part that the site provides for each user must
// exist: /scratch/alice of /scratch/{user}/slurmgate.
func (l *userLogin) makeFolder(ctx context.Context) error {
	client, err := l.host.SFTP(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if own := l.site.OwnFolder(l.user); l.at != own {
		if _, err := client.Stat(own); err != nil {
			return l.noFolder("there is no "+own+" on "+l.host.Name(), err).
				WithNext("ask an admin of the cluster to make that folder, owned by " + l.user)
		}
	}
	switch _, err := client.Stat(l.at); {
	case err == nil:
		return l.ownRuns(ctx, client)
	case !errors.Is(err, fs.ErrNotExist):
		return l.noFolder("cannot look at "+l.at+" on "+l.host.Name(), err)
	}
	if err := client.MkdirAll(l.at); err != nil {
		return l.noFolder("cannot make "+l.at+" on "+l.host.Name(), err).
			WithNext("let " + l.user + " make folders in " + path.Dir(l.at) + ", or make it, owned by " + l.user + ", mode 0700")
	}
	if err := client.Chmod(l.at, 0o700); err != nil {
		return l.noFolder("cannot give "+l.at+" on "+l.host.Name()+" mode 0700", err)
	}
	return nil
}

func (l *userLogin) noFolder(msg string, err error) *fault.Error {
	return fault.Wrap(fault.Transport, "runs_dir_unavailable", msg, err)
}

// ownRuns returns a fault for a folder without a mark that has runs of another ledger, as [Sites.ownRuns] does for the
// folder of all runs.
func (l *userLogin) ownRuns(ctx context.Context, client *sftp.Client) error {
	if l.sites.Anew {
		return nil
	}
	if _, err := client.Lstat(path.Join(l.at, staging.GatewayIDFile)); err == nil {
		return nil // its owner is checked with the mark
	}
	entries, err := client.ReadDirContext(ctx, l.at)
	if err != nil {
		return l.noFolder("cannot list "+l.at+" on "+l.host.Name(), err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "run_") {
			return l.sites.knows(ctx, e.Name(), l.at+" on "+l.host.Name(), "move those runs out of that folder")
		}
	}
	return nil
}

// Drop implements [asuser.Login].
func (l *userLogin) Drop(reason string) { l.host.Drop(reason) }

// Up implements [asuser.Login].
func (l *userLogin) Up() bool {
	up, _ := l.host.State()
	return up
}

// Close implements [asuser.Login].
func (l *userLogin) Close() {
	if l.files != nil {
		l.files.Close()
	}
	l.pool.Close()
	l.host.Close()
}
