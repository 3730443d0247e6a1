package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
)

// Every is the project of a root that belongs to all of them.
const Every = "*"

// Root is a folder that the gateway itself reads when a call names a path in it.
type Root struct {
	Folder   string   // absolute
	Projects []string // ids of the projects it belongs to, {user} or [Every]; none: only a caller who may import into every project reads it
}

// Scope is the project or the right for which a path is read.
type Scope struct {
	Project string // that the artifact will belong to
	Every   bool   // the caller may import into every project
}

func (s Scope) reads(r Root) bool {
	return s.Every || plan.InProjects(r.Projects, s.Project)
}

// importRoot is one spelling of a root and the folder it stood for when the importer was made.
type importRoot struct {
	Root
	resolved string
}

func resolveRoot(name string) (resolved, msg string) {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name {
		return "", fmt.Sprintf("%q is not a clean absolute path", name)
	}
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err.Error()
	}
	folder, err := os.Stat(resolved)
	switch {
	case err != nil:
		return "", err.Error()
	case !folder.IsDir():
		return "", name + " is not a folder"
	case resolved == "/":
		return "", "/ cannot be a root: it is the whole filesystem"
	}
	return resolved, ""
}

// plainName refuses a path that is not absolute in its plain spelling, or that a log could not show.
func plainName(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return fault.Invalid("", fault.Problem{Code: ImportPath, Field: "path",
			Rule: "an absolute path without . and .. and doubled slashes",
			Msg:  fault.Quote(path, 200) + " is not a plain absolute path",
			Hint: "give a path on the gateway's host"})
	}
	if msg := badName(path); msg != "" {
		return fault.Invalid("", fault.Problem{Code: ImportName, Field: "path",
			Rule: "UTF-8 without control characters",
			Msg:  fmt.Sprintf("the file name %s %s", fault.Quote(path, 200), msg), Hint: "rename the file, or the folder it is in"})
	}
	return nil
}

// locate finds the root that a path is below. A path below a root that scope does not read gets the answer of one
// that is below none, before anything about the file is checked.
func (im *Importer) locate(path string, scope Scope) (importRoot, string, error) {
	if err := plainName(path); err != nil {
		return importRoot{}, "", err
	}
	for _, r := range im.roots {
		rel, ok := strings.CutPrefix(path, r.Folder+"/")
		if !ok && path != r.Folder {
			continue
		}
		if !im.reads(scope, filepath.Join(r.resolved, rel)) {
			break
		}
		if !ok {
			return importRoot{}, "", denied(ImportKind, "only a regular file", path+" is a folder", "name a file in it")
		}
		return r, rel, nil
	}
	var names []string
	for _, r := range im.roots {
		if scope.reads(r.Root) {
			names = append(names, r.Folder)
		}
	}
	const ask = "ask the administrator for a folder of the project in import.roots, or upload the file"
	allowed, hint := strings.Join(names, ", "), "put the file there, "+ask
	if allowed == "" {
		allowed, hint = "it has none", ask
	}
	return importRoot{}, "", denied(ImportRoot, "below an import root of the project ("+allowed+")",
		fault.Quote(path, 200)+" is not where files may be imported from", hint, upload())
}

// reads decides by the innermost root around the resolved path, by any name: a root may be inside another, or be
// mounted there. Roots that are the same folder add up.
func (im *Importer) reads(scope Scope, path string) bool {
	folders := make([]os.FileInfo, len(im.roots))
	for i, r := range im.roots {
		folders[i], _ = os.Stat(r.resolved) // nil for one that is away
	}
	for ; path != "/"; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		found := false
		for i, r := range im.roots {
			if folders[i] != nil && os.SameFile(folders[i], info) {
				if scope.reads(r.Root) {
					return true
				}
				found = true
			}
		}
		if found {
			return false
		}
	}
	return false
}

// isOwn reports whether a path is, or is in, a folder of the gateway, by any name: a filesystem may be mounted in two
// places. It is checked before anything else about the path, so that the answer does not reveal which workspaces
// exist.
func (im *Importer) isOwn(path string) bool {
	var own []os.FileInfo
	for _, name := range im.own {
		if info, err := os.Stat(name); err == nil {
			own = append(own, info)
		}
	}
	for ; path != "/"; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err == nil && slices.ContainsFunc(own, func(o os.FileInfo) bool { return os.SameFile(o, info) }) {
			return true
		}
	}
	return false
}

func ownFault(path string) error {
	return denied(ImportOwn, "outside the gateway's own folders", path+" is inside one",
		"a run's files are already artifacts: use their art_ ids")
}

// open opens a path below a root.
func open(root importRoot, rel string) (*os.File, error) {
	fd, err := openBeneath(root, rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

func openBeneath(root importRoot, rel string, flags int) (int, error) {
	slash, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(slash)
	folder, err := files.OpenBeneath(slash, root.resolved[1:], unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(folder)
	return files.OpenBeneath(folder, rel, flags, 0)
}
