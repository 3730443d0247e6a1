package toolpack

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"

	"slurmgate/policy/yamldoc"
)

// readFile reads a regular file below the domain's folder; symlinks are not followed.
func readFile(fsys fs.FS, rel string) (data []byte, msg string) {
	if !fs.ValidPath(rel) {
		return nil, "the path is not a plain relative path"
	}
	info, err := fs.Lstat(fsys, rel)
	switch {
	case err != nil:
		return nil, "it cannot be read: " + clip(err.Error())
	case !info.Mode().IsRegular():
		return nil, "it is not a regular file; symbolic links are not followed"
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
