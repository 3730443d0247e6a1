package main

import (
	"context"

	"slurmgate/fault"
	"slurmgate/plan/tree"
	"slurmgate/remote"
	"slurmgate/site"
	far "slurmgate/staging/sftp"
)

// placeShell is the host that looks at files in place on a cluster.
func (h *hosts) placeShell(s *site.Site) (*remote.Host, error) {
	host, err := h.shell(s)
	if err == nil && host == nil {
		err = fault.New(fault.Validation, "no_shell", "the site "+s.Name+" has no shell that could look at files in place").
			WithNext("set storage.sftp.shell to true, or import a copy")
	}
	return host, err
}

// Hash implements [app.FarPlaces].
func (h *hosts) Hash(ctx context.Context, s *site.Site, root, path, state string) (sha256 string, size int64, err error) {
	shell, err := h.placeShell(s)
	if err != nil {
		return "", 0, err
	}
	return far.HashInPlace(ctx, shell, root, path, state)
}

// HashTree implements [app.FarPlaces].
func (h *hosts) HashTree(ctx context.Context, s *site.Site, root, path, state string, before []tree.File,
	each func(tree.File)) ([]tree.File, error) {
	shell, err := h.placeShell(s)
	if err != nil {
		return nil, err
	}
	return far.HashTreeInPlace(ctx, shell, root, path, state, before, each)
}

// Look implements [app.FarPlaces].
func (h *hosts) Look(ctx context.Context, s *site.Site, root, path string) (state string, bytes int64, err error) {
	shell, err := h.placeShell(s)
	if err != nil {
		return "", 0, err
	}
	return far.LookInPlace(ctx, shell, root, path)
}

// States implements [app.FarPlaces].
func (h *hosts) States(ctx context.Context, s *site.Site, paths []string) ([]string, error) {
	shell, err := h.placeShell(s)
	if err != nil {
		return nil, err
	}
	return far.StatesInPlace(ctx, shell, paths)
}
