package oci

import (
	"archive/tar"
	"fmt"
	"path"
	"slices"
	"strings"

	"slurmgate/fault"
)

// A tree is the root filesystem of an image's layers: names, modes and links, without the bytes of files. It is built
// in memory from the headers of the layers' archives, so that no name reaches this machine's filesystem before it was
// checked.
//
// The rules are those of the OCI image specification, as containerd implements them: a later layer replaces; ".wh.NAME"
// removes NAME of the layers below; ".wh..wh..opq" removes everything of the layers below in its folder; a symbolic
// link in the path of an entry is followed, inside the root. go-containerregistry's mutate.Extract is not used: it
// ignores opaque folders, and a hard link whose target a later layer replaced gets the new bytes.
type tree struct {
	root    *node
	limits  Limits
	entries int
	bytes   int64 // of all files in all layers
	names   int64 // bytes of all names in all layers
	layer   int   // being read
	skipped int   // devices, pipes and sockets, which jobs do not need
}

// node is a folder, a file or a symbolic link.
type node struct {
	layer    int // that has it
	mode     int64
	children map[string]*node // of a folder, never nil
	link     string           // of a symbolic link
	file     *content         // of a file; hard links share it
}

// content is the location of a file's bytes.
type content struct {
	layer, index int // the layer, and the index of the entry in its archive
	size         int64
	mode         int64
	data         []byte   // of a file that no layer has; layer is then -1
	names        []string // all of its names in the finished tree, sorted
}

const (
	whiteout   = ".wh."
	opaque     = ".wh..wh..opq"
	aufs       = ".wh..wh."
	maxName    = 255
	maxPath    = 4096
	maxHops    = 40        // symbolic links on the way to a name
	maxNames   = 256 << 20 // bytes of names in memory
	folderMode = 0o755
)

func newTree(l Limits) *tree { return &tree{root: folder(0), limits: l} }

func folder(layer int) *node {
	return &node{layer: layer, mode: folderMode, children: map[string]*node{}}
}

// bad returns the fault of an entry of a layer.
func bad(name, msg string) error {
	return fault.Invalid("the image cannot be used", fault.Problem{Code: "IMAGE-LAYER", Field: "source",
		Rule: "layers that only hold names below /",
		Msg:  fmt.Sprintf("an entry of a layer, %s, %s", fault.Quote(name, 200), msg),
		Hint: "do not use this image: it is damaged, or made to do harm"})
}

// parts splits a name of an archive; the root itself has no parts.
func parts(name string) ([]string, error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return nil, bad(name, "has a name that no file can have")
	}
	var list []string
	for _, p := range strings.Split(name, "/") {
		switch {
		case p == "" || p == ".":
		case p == "..":
			return nil, bad(name, "leads out of the root")
		case len(p) > maxName:
			return nil, bad(name, "has a name that no file can have")
		default:
			list = append(list, p)
		}
	}
	return list, nil
}

// folderOf returns the folder of a path, following symbolic links inside the root. If the folder is missing it is
// created if create is set; otherwise nil is returned.
func (t *tree) folderOf(way []string, create bool) (*node, error) {
	stack, hops := []*node{t.root}, 0
	for len(way) > 0 {
		name, at := way[0], stack[len(stack)-1]
		way = way[1:]
		if name == ".." {
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		next := at.children[name]
		switch {
		case next == nil && !create:
			return nil, nil
		case next == nil:
			next = folder(t.layer)
			at.children[name] = next
			stack = append(stack, next)
		case next.children != nil:
			stack = append(stack, next)
		case next.link != "":
			if hops++; hops > maxHops {
				return nil, bad(name, "is reached through too many symbolic links")
			}
			if strings.HasPrefix(next.link, "/") {
				stack = stack[:1]
			}
			way = slices.Concat(steps(next.link), way)
			if len(way) > maxPath {
				return nil, bad(name, "is reached through too many symbolic links")
			}
		default:
			return nil, bad(name, "is a file, and another entry is below it")
		}
	}
	return stack[len(stack)-1], nil
}

// steps splits a link's target into its parts; .. remains.
func steps(target string) []string {
	return slices.DeleteFunc(strings.Split(target, "/"), func(p string) bool { return p == "" || p == "." })
}

// add adds an entry of the layer's archive, the index-th, to the tree.
func (t *tree) add(h *tar.Header, index int) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	way, err := parts(h.Name)
	if err != nil {
		return err
	}
	if t.entries++; t.entries > t.limits.Files {
		return tooLarge(fmt.Sprintf("the image has more than %d files", t.limits.Files))
	}
	if t.names += int64(len(h.Name) + len(h.Linkname)); t.names > maxNames {
		return tooLarge("the names in the image need too much memory")
	}
	if h.Size < 0 || h.Size > t.limits.UnpackedBytes-t.bytes {
		return tooLarge(fmt.Sprintf("the image has more than %d MiB when it is unpacked", t.limits.UnpackedBytes>>20))
	}
	if t.bytes += h.Size; len(way) == 0 {
		return nil // the root itself
	}
	name := way[len(way)-1]
	in, err := t.folderOf(way[:len(way)-1], !strings.HasPrefix(name, whiteout))
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, whiteout) {
		return t.remove(in, name, h.Name)
	}
	return t.put(in, name, h, index)
}

// remove applies a whiteout in a folder, which is nil if no layer has it.
func (t *tree) remove(in *node, name, full string) error {
	switch hidden := strings.TrimPrefix(name, whiteout); {
	case hidden == "" || hidden == "." || hidden == "..":
		return bad(full, "removes nothing that has a name")
	case in == nil:
	case name == opaque:
		t.prune(in)
	case strings.HasPrefix(name, aufs): // internal files of an old storage driver
	default:
		t.hide(in, hidden)
	}
	return nil
}

// hide removes the entry of the layers below under a name, and reports whether something of this layer is left.
func (t *tree) hide(in *node, name string) bool {
	n := in.children[name]
	if n == nil {
		return false
	}
	left := n.layer == t.layer
	if n.children != nil && t.prune(n) {
		left = true
	}
	if !left {
		delete(in.children, name)
	}
	return left
}

// prune removes the entries of the layers below from a folder, and reports whether something of this layer is left.
func (t *tree) prune(in *node) (left bool) {
	for name := range in.children {
		if t.hide(in, name) {
			left = true
		}
	}
	return left
}

// put adds a folder, a file or a link.
func (t *tree) put(in *node, name string, h *tar.Header, index int) error {
	old := in.children[name]
	switch h.Typeflag {
	case tar.TypeDir:
		n := old
		if n == nil || n.children == nil {
			n = folder(t.layer)
		}
		n.layer, n.mode = t.layer, plainMode(h.Mode|0o111)
		in.children[name] = n
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		c := &content{layer: t.layer, index: index, size: h.Size, mode: plainMode(h.Mode)}
		in.children[name] = &node{layer: t.layer, file: c}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxPath || strings.ContainsRune(h.Linkname, 0) {
			return bad(h.Name, "is a symbolic link to nothing that has a name")
		}
		in.children[name] = &node{layer: t.layer, link: h.Linkname}
	case tar.TypeLink:
		to, err := t.target(h)
		if err != nil {
			return err
		}
		in.children[name] = &node{layer: t.layer, link: to.link, file: to.file}
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		t.skipped++
		delete(in.children, name)
	default:
		return bad(h.Name, fmt.Sprintf("has the unknown type %q", h.Typeflag))
	}
	return nil
}

// target returns the node that a hard link names.
func (t *tree) target(h *tar.Header) (*node, error) {
	way, err := parts(h.Linkname)
	if err != nil {
		return nil, err
	}
	if len(way) > 0 {
		in, err := t.folderOf(way[:len(way)-1], false)
		if err != nil {
			return nil, err
		}
		if in != nil {
			if to := in.children[way[len(way)-1]]; to != nil && to.children == nil {
				return to, nil
			}
		}
	}
	return nil, bad(h.Name, "is a hard link to something that is not there")
}

// plainMode returns the mode for the image: everyone may read what the owner may, as jobs are not root, and nothing is
// setuid or setgid.
func plainMode(mode int64) int64 {
	mode = mode&0o1777 | 0o644
	if mode&0o111 != 0 {
		mode |= 0o111
	}
	return mode
}

// write adds a file that no layer has, if the name is free or replace is set. If a file has the name of its folder,
// write does nothing.
func (t *tree) write(name string, mode int64, data []byte, replace bool) {
	in, err := t.folderOf(steps(path.Dir(name)), true)
	if err != nil || in.children[path.Base(name)] != nil && !replace {
		return
	}
	c := &content{layer: -1, size: int64(len(data)), mode: mode, data: data}
	in.children[path.Base(name)] = &node{layer: t.layer, file: c}
}

// mkdir adds a folder, if the name is free.
func (t *tree) mkdir(name string, mode int64) {
	in, err := t.folderOf(steps(path.Dir(name)), true)
	if err == nil && in.children[path.Base(name)] == nil {
		n := folder(t.layer)
		n.mode = mode
		in.children[path.Base(name)] = n
	}
}

// entry is a node with its path, without a slash in front.
type entry struct {
	path string
	*node
}

// list returns all entries below the root: folders before their content, names in order. It sets the names of files.
func (t *tree) list() (all []entry) {
	var walk func(at *node, below string)
	walk = func(at *node, below string) {
		names := make([]string, 0, len(at.children))
		for name := range at.children {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			n := at.children[name]
			full := path.Join(below, name)
			all = append(all, entry{full, n})
			if n.file != nil {
				n.file.names = append(n.file.names, full)
			}
			if n.children != nil {
				walk(n, full)
			}
		}
	}
	walk(t.root, "")
	return all
}
