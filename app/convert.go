package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/convert"
	"slurmgate/fault"
	"slurmgate/gate"
)

func conversion() Operation {
	return Operation{
		ID: "tool.convert", Title: "Convert tools", Verb: "tool convert",
		Description: "Converts the tools of another system (" + strings.Join(convert.Sources(), ", ") + ") into files of a domain. Writes " +
			"nothing unless everything can be converted.",
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Files, Faces: shellOnly,
		Does: does(convertTools),
	}
}

// ConvertArgs are the arguments of tool.convert.
type ConvertArgs struct {
	Files []string `json:"files" kind:"path" count:"1-1000" arg:"" help:"Files, or folders of them." type:"path"`
	From  string   `json:"from" max:"32" required:"" help:"System they are of: ax, handshake, helixmcp or ragx."`
	To    string   `json:"to" kind:"path" required:"" help:"Folder to write to, e.g. of a new domain." type:"path"`
	Force bool     `json:"force,omitzero" help:"Overwrite files there."`
}

// ConvertAnswer is the answer of tool.convert.
type ConvertAnswer struct {
	To      string         `json:"to"`
	Files   []string       `json:"files"` // written, relative to To
	Kept    []convert.Note `json:"kept"`
	Changed []convert.Note `json:"changed"`
}

const (
	maxConverted      = 10000   // files that one call reads
	maxConvertedBytes = 1 << 20 // of each
)

// convertible lists the file name suffixes of other systems' files.
var convertible = []string{".yaml", ".yml", ".json"}

// convertTools writes the converted files if all given files can be converted, and nothing otherwise.
func convertTools(_ context.Context, _ gate.Call, a ConvertArgs) (out ConvertAnswer, err error) {
	in, err := given(a.Files)
	if err != nil {
		return out, err
	}
	made, err := convert.Convert(a.From, in)
	switch {
	case err != nil:
		return out, err
	case len(made.Refused) > 0:
		return out, &fault.Error{Kind: fault.Validation, Code: made.Refused[0].Code, Problems: made.Refused,
			Msg: "not everything can be converted; nothing was written", Next: "change what is named, or leave those files out"}
	}
	out = ConvertAnswer{To: a.To, Files: []string{}, Kept: slices.Concat([]convert.Note{}, made.Kept),
		Changed: slices.Concat([]convert.Note{}, made.Changed)}
	files := slices.DeleteFunc(made.Files, func(f convert.File) bool {
		file := filepath.Join(a.To, filepath.FromSlash(f.Path))
		now, err := os.ReadFile(file)
		changed := slices.Contains(made.Starters, f.Path) && !errors.Is(err, fs.ErrNotExist) && !bytes.Equal(now, f.Data)
		if changed {
			out.Kept = append(out.Kept, convert.Note{File: file, Text: "was changed since an earlier conversion, and was not written again"})
		}
		return changed
	})
	for _, f := range files {
		out.Files = append(out.Files, f.Path)
	}
	return out, writeConverted(a.To, files, a.Force)
}

// given reads the files with the given names, and the files in folders with these names.
func given(names []string) (in []convert.File, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fault.Wrap(fault.NotFound, "file_not_readable", name+" cannot be read", err)
		}
		dir, only := name, ""
		if !info.IsDir() {
			dir, only = filepath.Dir(name), filepath.Base(name)
		}
		more, err := readGiven(dir, only)
		if err != nil {
			return nil, err
		}
		in = append(in, more...)
	}
	return in, nil
}

// readGiven reads one file of a folder, or all convertible files in it except those in hidden folders.
func readGiven(dir, only string) (in []convert.File, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "file_not_readable", dir+" cannot be read", err)
	}
	defer root.Close()
	if only != "" {
		data, err := readBounded(root, only)
		return []convert.File{{Path: only, Data: data}}, err
	}
	err = fs.WalkDir(root.FS(), ".", func(rel string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fault.Wrap(fault.Transport, "file_not_readable", filepath.Join(dir, rel)+" cannot be read", err)
		case e.IsDir() && rel != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules"):
			return fs.SkipDir
		case !e.Type().IsRegular() || !slices.Contains(convertible, path.Ext(rel)):
			return nil
		case len(in) >= maxConverted:
			return fault.New(fault.Validation, "too_many_files", dir+" has more files than one conversion reads").
				WithNext("give the folder of the tools alone")
		}
		data, err := readBounded(root, rel)
		in = append(in, convert.File{Path: rel, Data: data})
		return err
	})
	return in, err
}

func readBounded(root *os.Root, rel string) ([]byte, error) {
	f, err := root.Open(rel)
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "file_not_readable", filepath.Join(root.Name(), rel)+" cannot be read", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConvertedBytes+1))
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "file_not_readable", filepath.Join(root.Name(), rel)+" cannot be read", err)
	}
	if len(data) > maxConvertedBytes {
		return nil, fault.New(fault.Validation, "file_too_large", filepath.Join(root.Name(), rel)+" is larger than 1 MiB").
			WithNext("give the files of the tools alone")
	}
	return data, nil
}

// writeConverted writes files below a folder. If one exists with other content it writes none, unless force is set.
func writeConverted(to string, files []convert.File, force bool) error {
	failed := func(what string, err error) error {
		return fault.Wrap(fault.Transport, "", "cannot write "+filepath.Join(to, what), err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return failed("", err)
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return failed("", err)
	}
	defer root.Close()
	var there []fault.Problem
	for _, f := range files {
		now, err := root.ReadFile(filepath.FromSlash(f.Path))
		if !errors.Is(err, fs.ErrNotExist) && (err != nil || !bytes.Equal(now, f.Data)) && !force {
			there = append(there, fault.Problem{Code: "CONVERT-EXISTS", File: filepath.Join(to, f.Path), Rule: "a new file",
				Msg: "the file exists, with other content"})
		}
	}
	if len(there) > 0 {
		return &fault.Error{Kind: fault.Conflict, Code: "file_exists", Problems: there,
			Msg: "files are in the way; nothing was written", Next: "give another folder, move them away, or repeat with --force"}
	}
	for _, f := range files {
		name := filepath.FromSlash(f.Path)
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return failed(f.Path, err)
		}
		if err := root.WriteFile(name, f.Data, 0o644); err != nil {
			return failed(f.Path, err)
		}
	}
	return nil
}
