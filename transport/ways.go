package transport

import (
	"context"
	"reflect"

	"github.com/pkg/sftp"

	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/site"
)

// Ways returns how doctor reaches a cluster.
func (h *Hosts) Ways(s *site.Site) doctor.Ways {
	w := doctor.Ways{Users: s.AsCaller(), RunsDir: ownRunsDir(s),
		OpenSlurm: func() (doctor.Slurm, error) { return h.Slurm(s) },
		VerifyImages: func() (func(context.Context, string) (string, error), error) {
			store, err := h.store(s)
			if err != nil {
				return nil, err
			}
			return store.Verify, nil
		},
		Registered: func(ctx context.Context, path, state string) error { return h.registered(ctx, s, path, state) }}
	if s.FarSlurm() {
		w.Login, w.ScriptHost, w.JobsOf = func() (*remote.Host, error) { return h.login(s) }, s.Slurm.SSH.Host, s.Slurm.SSH.User
	}
	if s.OverREST() {
		w.REST, w.JobsOf = func() []fault.Problem { return restFiles(s) }, s.Slurm.REST.User
	}
	if s.FarFiles() {
		w.Data = func() (*remote.Host, error) { return h.data(s) }
		w.DataHost = s.Slurm.SSH == nil || !reflect.DeepEqual(s.Storage.SFTP.SSH, *s.Slurm.SSH)
		w.Files = func(ctx context.Context, f func(*sftp.Client) error) error { return h.farFiles(ctx, s, f) }
	}
	if to := s.ShellHost(); to != nil {
		w.Shell = func() (*remote.Host, error) { return h.shell(s) }
		w.ScriptHost = to.Host
	}
	return w
}
