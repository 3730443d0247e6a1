package doctor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/app"
	"slurmgate/remote"
	"slurmgate/remote/sshtest"
	"slurmgate/site"
)

// farExam is an examination of a cluster whose login node is a server of the tests.
func farExam(t *testing.T, s *sshtest.Server) *Exam {
	t.Helper()
	host, err := remote.New(remote.Config{Address: s.Address, User: "svc", KnownHosts: []string{s.Known}, Key: s.Key},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	to := func(*site.Site) (*remote.Host, error) { return host, nil }
	x := Config{Login: to, Data: to, Files: func(ctx context.Context, _ *site.Site, f func(*sftp.Client) error) error {
		c, err := host.SFTP(ctx)
		if err != nil {
			return err
		}
		return errors.Join(f(c), c.Close())
	}}.exam()
	ssh := site.SSH{Endpoint: site.Endpoint{Host: "login"}}
	x.Cluster = &site.Site{Slurm: site.Slurm{Transport: site.TransportSSH, SSH: &ssh},
		Storage: site.Storage{Transport: site.TransportSFTP, RunsDir: t.TempDir()}}
	x.Cluster.Storage.SFTP = &site.SFTP{SSH: ssh, RunsDir: x.Cluster.Storage.RunsDir}
	return x
}

// A clock elsewhere is compared with the time between question and answer, so a slow way is no difference.
//
// proves OPS-02
func TestFarClocks(t *testing.T) {
	t.Parallel()
	s := sshtest.Serve(t, "sleep 0.5")
	for name, look := range map[string]func(context.Context, *Exam) []Result{"login node": loginClock, "files": farFileClock} {
		for off, want := range map[time.Duration]struct {
			status app.CheckStatus
			found  string
		}{0: {app.CheckOK, "agrees"},
			20 * time.Second: {app.CheckWarning, "behind this host's"}, -20 * time.Second: {app.CheckWarning, "ahead of"},
			2 * time.Hour: {app.CheckFault, "behind this host's"}, -2 * time.Hour: {app.CheckFault, "ahead of"}} {
			x := farExam(t, s)
			x.Now = func() time.Time { return time.Now().Add(off) }
			if r := look(t.Context(), x); len(r) != 1 || r[0].Status != want.status || !strings.Contains(r[0].Found, want.found) {
				t.Errorf("%s, %v: %+v", name, off, r)
			}
		}
		x, slow := farExam(t, s), time.Now()
		x.Now = func() time.Time { // the question takes twenty seconds
			defer func() { slow = slow.Add(20 * time.Second) }()
			return slow
		}
		if r := look(t.Context(), x); r[0].Status != app.CheckOK {
			t.Errorf("%s, slow way: %+v", name, r)
		}
	}
}
