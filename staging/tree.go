package staging

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Tree holds the checked, workspace-relative paths of in/.
type Tree struct {
	Files map[string]bool // in/...
	Dirs  map[string]bool // in, in/...
}

// NewTree returns the tree of the inputs, after it has checked their paths and checksums.
func NewTree(inputs []plan.Input) (Tree, error) {
	t := Tree{Files: map[string]bool{}, Dirs: map[string]bool{"in": true}}
	bad := func(code string, in plan.Input, msg string) (Tree, error) {
		return t, fault.Invalid("the inputs cannot be staged",
			fault.Problem{Code: code, Field: "io.inputs", Msg: fault.Quote(in.DestRelpath, 80) + ": " + msg})
	}
	for _, in := range inputs {
		msg := plan.CheckRelPath(in.DestRelpath, "in")
		switch {
		case msg != "":
			return bad("PLAN-DEST-PATH", in, msg)
		case t.Files[in.DestRelpath]:
			return bad("PLAN-DEST-DUPLICATE", in, "it appears twice")
		case !plan.IsSHA256(in.ChecksumSHA256):
			return bad("PLAN-CHECKSUM", in, "the checksum is not 64 lower-case hex digits")
		}
		t.Files[in.DestRelpath] = true
		for d := path.Dir(in.DestRelpath); d != "."; d = path.Dir(d) {
			t.Dirs[d] = true
		}
	}
	for _, in := range inputs {
		if t.Dirs[in.DestRelpath] {
			return bad("PLAN-DEST-DUPLICATE", in, "it would have to be both a file and a folder")
		}
	}
	return t, nil
}

// prune removes everything at or below rel that is neither a file nor a folder of the tree.
func (t Tree) prune(parent dir, rel string) error {
	st, err := parent.stat(path.Base(rel))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFREG && t.Files[rel]:
		return nil
	case kind != unix.S_IFDIR || !t.Dirs[rel]:
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
