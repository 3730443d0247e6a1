package toolpack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/policy/yamldoc"
)

// readFile reads a regular file below the domain's folder; symlinks are not followed.
func readFile(fsys fs.FS, rel string) (data []byte, msg string) {
	if !fs.ValidPath(rel) {
		return nil, "the path is not plain"
	}
	info, err := fs.Lstat(fsys, rel)
	switch {
	case err != nil:
		return nil, "it cannot be read: " + clip(err.Error())
	case !info.Mode().IsRegular():
		return nil, "it is no regular file (symlinks are not followed)"
	case info.Size() > yamldoc.MaxBytes:
		return nil, fmt.Sprintf("it is larger than %d bytes", yamldoc.MaxBytes)
	}
	f, err := fsys.Open(rel)
	if err != nil {
		return nil, "it cannot be read: " + clip(err.Error())
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, yamldoc.MaxBytes+1)); err != nil {
		return nil, "it cannot be read: " + clip(err.Error())
	}
	return b.Bytes(), ""
}

// lineOf is the line of a field in a JSON document, or of the last thing that could be read.
func lineOf(raw []byte, field string) int {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	for field != "" {
		if _, err := d.ReadToken(); err != nil || dotted(string(d.StackPointer())) == field {
			break
		}
	}
	return lineAt(raw, d)
}

// errorLine is the line where reading a JSON document fails.
func errorLine(raw []byte) int {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		if _, err := d.ReadToken(); err != nil {
			if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
				return 1 + bytes.Count(raw[:min(e.ByteOffset, int64(len(raw)))], []byte("\n"))
			}
			return lineAt(raw, d)
		}
	}
}

func lineAt(raw []byte, d *jsontext.Decoder) int {
	return 1 + bytes.Count(raw[:min(d.InputOffset(), int64(len(raw)))], []byte("\n"))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
