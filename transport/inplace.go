package transport

import (
	"context"
	"log/slog"
	"os"

	"slurmgate/artifact"
	"slurmgate/asuser"
	"slurmgate/fault"
	"slurmgate/plan/tree"
	"slurmgate/remote"
	"slurmgate/site"
	far "slurmgate/staging/sftp"
)

// placeShell returns the host that examines files in place on a cluster with the gateway's own login.
func (h *Hosts) placeShell(s *site.Site) (*remote.Host, error) {
	host, err := h.shell(s)
	if err == nil && host == nil {
		err = fault.New(fault.Validation, "no_shell", "the site "+s.Name+" has no shell that could look at files in place").
			WithNext("set storage.sftp.shell to true, or import a copy")
	}
	return host, err
}

// States reads the states of files and folders on a cluster, as the gateway's own login sees them.
func (h *Hosts) States(ctx context.Context, s *site.Site, paths []string) ([]string, error) {
	shell, err := h.placeShell(s)
	if err != nil {
		return nil, err
	}
	return far.StatesInPlace(ctx, shell, paths)
}

// Places implements [app.FarPlaces].
type Places struct{ *Sites }

// States implements [app.FarPlaces].
func (p Places) States(ctx context.Context, s *site.Site, paths []string) ([]string, error) {
	return p.Hosts.States(ctx, s, paths)
}

// in calls f with the shell of a user on a cluster, or of the gateway's own login.
func (p Places) in(ctx context.Context, s *site.Site, user string, f func(far.Shell) error) error {
	if user != "" {
		return p.as(ctx, s.Name, user, func(u asuser.Parts) error { return f(u.Workspace.(*far.Workspace).Shell()) })
	}
	shell, err := p.Hosts.placeShell(s)
	if err != nil {
		return err
	}
	return f(shell)
}

// Look implements [app.FarPlaces].
func (p Places) Look(ctx context.Context, s *site.Site, user, root, path string) (state string, bytes int64, err error) {
	err = p.in(ctx, s, user, func(shell far.Shell) (err error) {
		state, bytes, err = far.LookInPlace(ctx, shell, root, path)
		return err
	})
	return state, bytes, err
}

// Hash implements [app.FarPlaces].
func (p Places) Hash(ctx context.Context, s *site.Site, user, root, path, state string) (sha256 string, size int64, err error) {
	err = p.in(ctx, s, user, func(shell far.Shell) (err error) {
		sha256, size, err = far.HashInPlace(ctx, shell, root, path, state)
		return err
	})
	return sha256, size, err
}

// HashTree implements [app.FarPlaces].
func (p Places) HashTree(ctx context.Context, s *site.Site, user, root, path, state string, before []tree.File, each func(tree.File)) (
	list []tree.File, err error) {
	err = p.in(ctx, s, user, func(shell far.Shell) (err error) {
		list, err = far.HashTreeInPlace(ctx, shell, root, path, state, before, each)
		return err
	})
	return list, err
}

// registered implements [doctor.Ways.Registered].
func (h *Hosts) registered(ctx context.Context, s *site.Site, path, state string) error {
	if s.FarFiles() {
		states, err := h.States(ctx, s, []string{path})
		if err == nil {
			err = artifact.CompareState(path, state, states[0])
		}
		return err
	}
	here := PlacesHere(s, slog.New(slog.DiscardHandler))
	here.MaxBytes = 1 << 62
	im, err := artifact.NewImporter(&artifact.Store{}, *here)
	if err != nil {
		return err
	}
	return im.StillRegistered(ctx, path, state)
}

// PlacesHere returns the folders of a site in which files stay in place, or nil if this host does not see them.
func PlacesHere(s *site.Site, log *slog.Logger) *artifact.ImportPolicy {
	if s.FarFiles() {
		return nil
	}
	var folders []site.Root
	for _, f := range s.Storage.InPlace {
		folders = append(folders, f.Root)
	}
	return &artifact.ImportPolicy{Roots: Existing(folders, log), OthersMount: s.AsCaller()}
}

// Existing returns the import roots that exist. An unmounted filesystem does not keep the gateway from starting.
func Existing(roots []site.Root, log *slog.Logger) []artifact.Root {
	var out []artifact.Root
	for _, r := range roots {
		if st, err := os.Stat(r.Path); err != nil || !st.IsDir() {
			log.Warn("an import root is not a folder here; nothing is imported from it", "root", r.Path)
			continue
		}
		if r.Projects == nil {
			log.Warn("an import root has no projects", "what", site.PlainRoot(r.Path))
		}
		out = append(out, artifact.Root{Folder: r.Path, Projects: r.ProjectIDs()})
	}
	return out
}
