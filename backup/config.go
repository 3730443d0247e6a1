package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxConfig is the largest file of the configuration that is copied: a larger one in the domain's folder is no
// configuration.
const maxConfig = 16 << 20

// config copies the configuration: regular files below what the source names, no links.
func (w *writer) config(ctx context.Context) error {
	var names []string
	for name := range w.Config {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		root := w.Config[name]
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			if path == root && !d.IsDir() { // the admin may have linked the file itself
				return w.configFile(ctx, path, name)
			}
			if !d.Type().IsRegular() {
				return nil
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return w.configFile(ctx, path, filepath.Join(name, rel))
		})
		if err != nil {
			return disk("the configuration cannot be copied", err)
		}
	}
	return nil
}

func (w *writer) configFile(ctx context.Context, path, name string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxConfig {
		w.m.Without = append(slices.Clone(w.m.Without), path+": larger than 16 MiB, so it is no configuration")
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rel := filepath.Join(configDir, name)
	to := filepath.Join(w.temp, rel)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		return err
	}
	f, err := w.file(ctx, rel)
	w.m.Config = append(w.m.Config, f)
	return err
}

// prune removes all but the newest backups of a folder, and the objects that none of the others has; keep 0: none.
func prune(dir string, keep int) (removed []string, err error) {
	removed = []string{}
	all, err := list(dir)
	if err != nil || keep <= 0 || len(all) <= keep {
		return removed, err
	}
	for _, name := range all[:len(all)-keep] {
		gone := filepath.Join(dir, unfinished+"removed-"+name) // no longer a backup, whatever happens
		if err := os.Rename(filepath.Join(dir, name), gone); err != nil {
			return removed, disk("an old backup cannot be removed", err)
		}
		removed = append(removed, name)
		if err := os.RemoveAll(gone); err != nil {
			return removed, disk("an old backup cannot be removed", err)
		}
	}
	needed := map[string]bool{}
	for _, name := range all[len(all)-keep:] {
		data, err := os.ReadFile(filepath.Join(dir, name, listFile))
		if err == nil {
			err = eachObject(data, func(o object) error { needed[o.rel()] = true; return nil })
		}
		if err != nil { // without its list the objects of the backup are unknown: everything stays
			return removed, disk("the list of a backup cannot be read, so no artifact was removed", err)
		}
	}
	err = filepath.WalkDir(filepath.Join(dir, objectsDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || needed[rel] || strings.HasPrefix(rel, "..") {
			return err
		}
		return os.Remove(path)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return removed, disk("artifacts of old backups cannot be removed", err)
	}
	return removed, nil
}
