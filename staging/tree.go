package staging

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
)

// tree is what in/ consists of: checked, workspace-relative paths.
type tree struct {
	files map[string]bool // in/...
	dirs  map[string]bool // in, in/...
}

func newTree(inputs []plan.Input) (tree, error) {
	t := tree{files: map[string]bool{}, dirs: map[string]bool{"in": true}}
	var problems []fault.Problem
	for i, in := range inputs {
		bad := func(code, field, msg string) {
			problems = append(problems, fault.Problem{Code: code, Field: fmt.Sprintf("io.inputs[%d].%s", i, field), Msg: msg})
		}
		if msg := plan.CheckRelPath(in.DestRelpath, "in"); msg != "" {
			bad("PLAN-DEST-PATH", "dest_relpath", msg)
			continue
		}
		if t.files[in.DestRelpath] {
			bad("PLAN-DEST-DUPLICATE", "dest_relpath", "it appears twice")
		}
		if !plan.IsSHA256(in.ChecksumSHA256) {
			bad("PLAN-CHECKSUM", "checksum_sha256", "it is not 64 lower-case hex digits")
		}
		t.files[in.DestRelpath] = true
		for d := path.Dir(in.DestRelpath); d != "."; d = path.Dir(d) {
			t.dirs[d] = true
		}
	}
	for f := range t.files {
		if t.dirs[f] {
			problems = append(problems, fault.Problem{Code: "PLAN-DEST-DUPLICATE", Field: "io.inputs",
				Msg: f + " would have to be both a file and a folder"})
		}
	}
	if problems != nil {
		return t, fault.Invalid("staging.StageInputs", "the inputs cannot be staged", problems...)
	}
	return t, nil
}

// prune removes everything at or below rel that is neither a file nor a folder of the tree.
func (t tree) prune(parent dir, rel string) error {
	st, err := parent.stat(path.Base(rel))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFREG && t.files[rel]:
		return nil
	case kind != unix.S_IFDIR || !t.dirs[rel]:
		return parent.removeAll(path.Base(rel))
	}
	sub, err := parent.sub(path.Base(rel))
	if err != nil {
		return err
	}
	defer sub.close()
	names, err := sub.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := t.prune(sub, rel+"/"+n); err != nil {
			return err
		}
	}
	return nil
}
