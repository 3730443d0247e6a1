package main

import (
	"context"
	"fmt"

	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// References implements doctor.Books.
func (b books) References(ctx context.Context) (out []doctor.Reference, err error) {
	all, err := b.Ledger.References(ctx)
	for _, r := range all {
		d := doctor.Reference{Name: r.Name, Site: r.Site, Path: r.Path}
		if d.Missing, err = b.lacks(ctx, r); err != nil {
			return nil, err
		}
		if r.Site != "" {
			at, ok, err := b.ReferencePlace(ctx, r.Site, r.Path)
			switch {
			case err != nil:
				return nil, err
			case ok && at.SHA256 == r.SHA256:
				d.State = at.State
			default:
				d.Missing = r.Path + " on the site " + r.Site + " was registered again with other content"
			}
		}
		out = append(out, d)
	}
	return out, err
}

// lacks returns what the store lacks of a reference.
func (b books) lacks(ctx context.Context, r ledger.Reference) (missing string, err error) {
	switch {
	case r.Site != "" && r.Type != plan.Directory:
		return "", nil
	case b.store == nil || !b.store.Has(r.SHA256):
		if r.Type == plan.Directory {
			return "the list of its files is not in gateway.artifact_dir", nil
		}
		return "its bytes are not in gateway.artifact_dir", nil
	case r.Site != "" || r.Type != plan.Directory:
		return "", nil
	}
	f, err := b.store.Open(r.SHA256)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lost := 0
	_, err = tree.Each(f, func(one tree.File) error {
		if !b.store.Has(one.SHA256) {
			if lost++; lost == 1 {
				missing = "the bytes of its file " + one.Path + " are not in gateway.artifact_dir"
			}
		}
		return ctx.Err()
	})
	if lost > 1 {
		missing += fmt.Sprintf(", nor those of %d others", lost-1)
	}
	if fault.CodeOf(err) == tree.Code {
		return "the list of its files is damaged", nil
	}
	return missing, err
}
