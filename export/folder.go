package export

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan/tree"
)

// A directory artifact is a folder of the archive, with its files under the names that they had in the workspace. Its list is not there:
// [Verify] makes it from the files, and its SHA-256 is the artifact's checksum. The crate describes the folder, MANIFEST each file.

// maxUnfolded bounds the files of an archive's directories, and maxNames the bytes of their lines in MANIFEST, which Verify reads whole.
const (
	maxUnfolded = 200_000
	maxNames    = maxDocument - 1<<20
)

// unfold adds the files of a directory to those of the archive. Unless all can be there, the directory is by reference. taken are the names
// in the archive without case.
func (r *Record) unfold(a *Artifact, files []file, taken map[string]bool) []file {
	list, known := r.Directories[a.SHA256]
	lines := 0
	for _, f := range files {
		lines += lineBytes(f.name)
	}
	folded := func(name string) string { return strings.ToLower(name) }
	mine, folders, more := map[string]bool{}, map[string]bool{}, []file{}
	if taken[folded(a.Relpath)] {
		a.Why = "another file's name differs in case only"
		return files
	}
	if !known {
		a.Why = "the list of its files is not known"
	}
	for _, f := range list {
		name := a.Relpath + "/" + f.Path
		key := folded(name)
		clash := taken[key] || mine[key] || folders[key]
		for at := path.Dir(key); len(at) > len(folded(a.Relpath)); at = path.Dir(at) {
			clash = clash || mine[at]
			folders[at] = true
		}
		switch lines += lineBytes(name); {
		case clash:
			a.Why = fmt.Sprintf("the name of its file %q differs from another's in case only", f.Path)
		case checkName(name) != "":
			a.Why = fmt.Sprintf("the name of its file %q is not safe in an archive", f.Path)
		case len(files)+len(more) >= maxUnfolded || lines > maxNames:
			a.Why = fmt.Sprintf("an archive has at most %d files of directories, with %d bytes of names", maxUnfolded, maxNames)
		}
		if a.Why != "" {
			return files
		}
		mine[key] = true
		more = append(more, file{name, f.Size, f.SHA256, nil})
	}
	if a.Why != "" {
		return files
	}
	for key := range mine {
		taken[key] = true
	}
	taken[folded(a.Relpath)] = true
	a.File = a.Relpath + "/"
	return append(files, more...)
}

func lineBytes(name string) int { return 2*sha256.Size + 2 + len(name) + 1 }

// below returns the files in a folder of the archive, in order.
func below(files []file, folder string) (out []file) {
	for _, f := range files {
		if strings.HasPrefix(f.name, folder) {
			out = append(out, f)
		}
	}
	sortFiles(out)
	return out
}

// directory holds the files in a folder against the checksum of the directory artifact.
func (c *checker) directory(a Artifact) {
	var list []tree.File
	for _, name := range c.names {
		if rel, in := strings.CutPrefix(name, a.File); in {
			got := c.found[name]
			list = append(list, tree.File{SHA256: got.sha256, Size: got.size, Path: rel})
		}
	}
	slices.SortFunc(list, func(a, b tree.File) int { return tree.Compare(a.Path, b.Path) })
	h := sha256.New()
	w := tree.NewWriter(h)
	for _, f := range list {
		if err := w.Add(f); err != nil {
			c.bad(a.File+f.Path, "it cannot be a file of a directory artifact: "+fault.Prose(err))
			return
		}
	}
	sum, err := w.Close()
	got := hex.EncodeToString(h.Sum(nil))
	switch {
	case err != nil:
		c.bad(a.File, "its files are missing: "+runFile+" has the folder as artifact "+a.ArtifactID)
	case got != a.SHA256 || sum.Bytes != a.SizeBytes:
		c.bad(a.File, fmt.Sprintf("the folder is not artifact %s: it has %d files of %d bytes whose list has SHA-256 %s, but %s has %d bytes "+
			"with %s", a.ArtifactID, sum.Files, sum.Bytes, got, runFile, a.SizeBytes, a.SHA256))
	}
}

// folderEntity describes a directory in the archive. Its files have no entities: a hundred thousand would be more text than their bytes.
func folderEntity(a Artifact, files []file) entity {
	e := entity{"@id": fileID(a.File), "@type": "Dataset", "name": path.Base(a.Relpath), "identifier": a.ArtifactID,
		"description": fmt.Sprintf("Artifact %s of type %s: %d files of %d bytes, each with its SHA-256 in %s. The SHA-256 of their list is %s",
			a.Role, a.Type, len(below(files, a.File)), a.SizeBytes, manifestFile, a.SHA256)}
	if a.Label != "" && a.Label != e["name"] {
		e["alternateName"] = a.Label
	}
	return e
}

// checkFolders returns the lines that compare folders with the checksums of their lists, which they make from the
// files.
func checkFolders(sums [][2]string) (lines []string) {
	if len(sums) == 0 {
		return nil
	}
	lines = append(lines, "listed() {", `printf 'slurmgate-directory 1\n'`,
		`( cd -- "$1" && find -L . -type f -printf '%P\n' | tr / '\001' | LC_ALL=C sort | tr '\001' / | while IFS= read -r f; do`,
		`printf '%s %s %s\n' "$(sha256sum < "$f" | cut -d ' ' -f 1)" "$(stat -L -c %s -- "$f")" "$f"`, "done )", "}")
	for _, s := range sums {
		at := shellWord(s[1])
		lines = append(lines, `[ "$(listed `+at+` | sha256sum | cut -d ' ' -f 1)" = `+s[0]+` ] || { printf '%s: FAILED\n' `+at+` >&2; exit 1; }`)
	}
	return lines
}
