package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// placed returns how a job gets each of its inputs, single files first. The files of a directory are copied, unless the
// job reads it in place.
func (e *Engine) placed(ctx context.Context, r Run, all []plan.Input) ([]Placed, error) {
	single := slices.DeleteFunc(slices.Clone(all), func(in plan.Input) bool { return in.Directory })
	folders := slices.DeleteFunc(slices.Clone(all), func(in plan.Input) bool { return !in.Directory })
	list := copies(append(single, folders...))
	if e.Place != nil {
		var err error
		if list, err = e.Place(ctx, r, append(single, folders...)); err != nil {
			return nil, err
		}
	}
	files, err := e.files(ctx, folders)
	if err != nil {
		return nil, err
	}
	out := list[:len(single):len(single)]
	for _, p := range list[len(single):] {
		var own []plan.Input
		for _, f := range files {
			if strings.HasPrefix(f.DestRelpath, p.DestRelpath+"/") {
				own = append(own, f)
			}
		}
		if p.Path == "" {
			out = append(out, copies(own)...)
			continue
		}
		p.Files = own
		out = append(out, p)
	}
	return out, nil
}

// files returns the files that inputs are in in/: for a directory the files in it.
func (e *Engine) files(ctx context.Context, all []plan.Input) ([]plan.Input, error) {
	if !slices.ContainsFunc(all, func(in plan.Input) bool { return in.Directory }) {
		return all, nil
	}
	var list []plan.Input
	for _, in := range all {
		if !in.Directory {
			list = append(list, in)
			continue
		}
		files, err := e.filesOf(ctx, in)
		if err != nil {
			return nil, err
		}
		if list = append(list, files...); len(list) > tree.MaxFiles {
			return nil, fault.New(fault.Validation, "too_many_files",
				fmt.Sprintf("the inputs have more than %d files together; nothing was sent to Slurm", tree.MaxFiles)).
				WithNext("pack many small files into one, or submit with smaller directories")
		}
	}
	return list, nil
}

// filesOf returns the files of an input that is a directory.
func (e *Engine) filesOf(ctx context.Context, in plan.Input) ([]plan.Input, error) {
	list, _, err := e.Objects.Reader(ctx, in.ChecksumSHA256)
	if err != nil {
		return nil, fault.Wrap("", fault.CodeOf(err), "the list of files of input "+in.DestRelpath+" cannot be opened", err)
	}
	defer list.Close()
	files, err := tree.Inputs(in, list)
	if fault.Is(err, fault.Validation) {
		return nil, err
	}
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "filesystem", "the list of files of input "+in.DestRelpath+" cannot be read", err)
	}
	return files, nil
}

// parallelFiles is how many files of an output folder are stored in parallel. Over SFTP one script examines as many.
const parallelFiles = 32

// takeFolder stores an output that is a folder: each file as an object, then their list, which is the artifact. The
// files must have the bytes that the manifest names. Other files in the folder were not there when the job listed it,
// and are ignored.
func (e *Engine) takeFolder(ctx context.Context, v View, out plan.Output, entry ManifestEntry, c Contract, d *verdict) (got storedOutput,
	later bool, err error) {
	name := fmt.Sprintf("%s (role %s)", out.SrcRelpath, out.Role)
	list, refusal, detail := listOf(entry)
	if refusal != "" {
		d.refuse(EndedOutputs, refusal, name+" "+detail)
		return got, false, nil
	}
	judges := e.lineJudges(c, out.Role, out.SrcRelpath)
	err = e.takeFiles(ctx, v, out, entry.Files, judges)
	var wrong *changedFile
	switch {
	case err == nil:
	case errors.As(err, &wrong) && e.outputsMayCome(v):
		return got, true, e.note(ctx, v, string(OutputsLate), wrong.Error()+" yet")
	case errors.As(err, &wrong):
		d.refuse(EndedOutputs, "OUTPUT-CHANGED", name+": "+wrong.Error())
		return got, false, nil
	case fault.Is(err, fault.Transport), ctx.Err() != nil:
		return got, true, err
	case e.outputsMayCome(v):
		return got, true, e.note(ctx, v, string(OutputsLate), fault.Prose(err))
	default:
		d.refuse(EndedOutputs, fault.CodeOf(err), fmt.Sprintf("%s: %v", name, err))
		return got, false, nil
	}
	judged(judges, func(path string) bool {
		return slices.ContainsFunc(entry.Files, func(f tree.File) bool { return f.Path == path })
	}, d)
	sum, size, err := e.Objects.Put(ctx, bytes.NewReader(list), int64(len(list)))
	if err == nil {
		err = e.Index.AddDirectory(ctx, Directory{SHA256: sum, ListBytes: size, Files: entry.Files})
	}
	return storedOutput{sum: sum, size: entry.Size}, err != nil, err
}

// listOf sorts a folder's files and returns their list; else why there can be no list.
func listOf(entry ManifestEntry) (list []byte, refusal, detail string) {
	for _, f := range entry.Files {
		if msg := tree.CheckPath(f.Path); msg != "" {
			return nil, OutputName, fmt.Sprintf("has the file %s, whose name an artifact cannot have: %s", fault.Quote(f.Path, 200), msg)
		}
	}
	slices.SortFunc(entry.Files, func(a, b tree.File) int { return tree.Compare(a.Path, b.Path) })
	var b bytes.Buffer
	w := tree.NewWriter(&b)
	for _, f := range entry.Files {
		if err := w.Add(f); err != nil {
			return nil, "OUTPUT-MANIFEST", fault.Prose(err)
		}
	}
	if _, err := w.Close(); err != nil {
		return nil, OutputEmpty, "has no files"
	}
	return b.Bytes(), "", ""
}

// changedFile is the error about a file of an output folder that does not match the manifest.
type changedFile struct{ rel string }

func (c *changedFile) Error() string { return c.rel + " does not match the job's manifest" }

// takeFiles stores the files of an output folder, and passes those that have a line judge through it. It stops at the
// first error.
func (e *Engine) takeFiles(ctx context.Context, v View, out plan.Output, list []tree.File, judges map[string]*lineJudge) error {
	takers, ctx := errgroup.WithContext(ctx)
	takers.SetLimit(parallelFiles)
	for _, f := range list {
		takers.Go(func() error { return e.takeFile(ctx, v, out.SrcRelpath+"/"+f.Path, f, judges[f.Path]) })
	}
	return takers.Wait()
}

func (e *Engine) takeFile(ctx context.Context, v View, rel string, f tree.File, lines *lineJudge) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r, _, err := e.Workspace.OpenOutput(ctx, v.Run.ID, v.Attempt.N, rel)
	if err != nil {
		return err
	}
	defer r.Close()
	var content io.Reader = r
	if lines != nil {
		content = io.TeeReader(r, lines)
	}
	sum, size, err := e.Objects.Put(ctx, content, f.Size)
	if fault.Is(err, fault.Policy) || err == nil && (sum != f.SHA256 || size != f.Size) {
		return &changedFile{rel}
	}
	return err
}
