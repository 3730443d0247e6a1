package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
)

// fetch copies a run's declared outputs into a folder: all of them or, after an error, none. It never overwrites a file.
func (a *Shell) fetch(ctx context.Context, s *Session, story app.RunStory, dir string) (err error) {
	outputs := declared(story)
	names := targets(dir, outputs)
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			return fault.New(fault.Conflict, "target_exists", name+" already exists; nothing was copied").
				WithNext("name another folder with --to, or remove the file")
		}
	}
	var made, folders []string // what to remove again, in order; folders with all that is in them, which is a fetched directory
	defer func() {
		if err != nil {
			for _, name := range folders {
				_ = os.RemoveAll(name)
			}
			for _, name := range slices.Backward(made) {
				_ = os.Remove(name) // a folder that has got other files stays
			}
		}
	}()
	for i, o := range outputs {
		above, err := makeFolders(filepath.Dir(names[i]))
		made = append(made, above...)
		if err != nil {
			return fault.Wrap(fault.Validation, "target_unwritable", "cannot create the folder", err)
		}
		if err := save(ctx, s, o, names[i]); err != nil {
			return err
		}
		if o.Type == plan.Directory {
			folders = append(folders, names[i])
		}
		made = append(made, names[i])
	}
	if len(outputs) == 0 {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fault.Wrap(fault.Validation, "target_unwritable", "cannot create the folder", err)
		}
	}
	for i, o := range outputs {
		a.Say("saved  %s  (%s)", names[i], bytesText(o.SizeBytes))
	}
	return nil
}

// targets returns the files the outputs are copied to: by the names of the caller's request or their base names or, if
// two have the same, by their paths below out/.
func targets(dir string, outputs []app.ArtifactDoc) []string {
	var short, long []string
	for _, o := range outputs {
		short = append(short, filepath.Join(dir, cmp.Or(o.DownloadName, filepath.Base(o.Relpath))))
		long = append(long, filepath.Join(dir, strings.TrimPrefix(o.Relpath, "out/")))
	}
	if len(slices.Compact(slices.Sorted(slices.Values(short)))) < len(short) {
		return long
	}
	return short
}

// makeFolders makes a folder and those above it, and returns the ones it made, the outermost first.
func makeFolders(dir string) (made []string, err error) {
	err = os.Mkdir(dir, 0o777)
	switch {
	case err == nil:
		return []string{dir}, nil
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
		if made, err = makeFolders(filepath.Dir(dir)); err != nil {
			return made, err
		}
		more, err := makeFolders(dir)
		return append(made, more...), err
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return nil, nil
		}
	}
	return nil, err
}

// declared returns the outputs that the plan declares; the others are the gateway's own.
func declared(story app.RunStory) []app.ArtifactDoc {
	return slices.DeleteFunc(slices.Clone(story.Outputs), func(o app.ArtifactDoc) bool { return o.Relpath == "" })
}
