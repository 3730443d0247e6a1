package site

import (
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Import configures which files may be imported and how they are checked.
type Import struct {
	Roots []Root `yaml:"roots"` // folders that the gateway itself reads when a call names a path

	// What a user of this host may import, of the files that he can read: "roots", those below a folder in roots that belongs to the
	// project or is a path alone, or "own", every file. A chat assistant that a user starts imports as that user: with "own" it can be
	// talked into importing the user's private files.
	Local string `yaml:"local" default:"roots" enum:"own,roots"`

	// Inflate gzip files (FASTQ_GZ and the like) of any size when they are imported, and compare their checksums. false: only those up
	// to 64 MiB. A file of 10 GiB takes some minutes more.
	FullCheck bool `yaml:"full_check"`
}

// The values of import.local.
const (
	LocalOwn   = "own"
	LocalRoots = "roots"
)

// Root is a folder that files may be imported from. In the file it may be only the path, which is a root of no
// project: only callers who may import into every project read it through the gateway.
type Root struct {
	Path     string   `yaml:"path"`     // absolute, never /
	Projects []string `yaml:"projects"` // names or ids of its projects, {user} for every user's own, or *
}

// MarshalYAML writes a root of no project as its path.
func (r Root) MarshalYAML() (any, error) {
	if r.Projects == nil {
		return r.Path, nil
	}
	type root Root
	return root(r), nil
}

// InPlace is a folder of the nodes whose files may be registered and read in place. In the file it may be only the
// path, like a [Root].
type InPlace struct {
	Root `yaml:",inline"`
	// Shared: administrators offer what is in the folder to its projects. The gateway reads it for all of them, by
	// its own rights, and who registers a file there does so for all of them. Default false: a file is its
	// registrant's.
	Shared bool `yaml:"shared"`
}

// MarshalYAML writes a folder of no project as its path.
func (p InPlace) MarshalYAML() (any, error) {
	if p.Projects == nil {
		return p.Path, nil
	}
	type root Root
	return struct {
		root   `yaml:",inline"`
		Shared bool `yaml:"shared"`
	}{root(p.Root), p.Shared}, nil
}

// ProjectIDs returns the ids of the root's projects; * and {user} are unchanged.
func (r Root) ProjectIDs() []string {
	var ids []string
	for _, p := range r.Projects {
		if p != "*" {
			p = plan.ProjectOf(p)
		}
		ids = append(ids, p)
	}
	return ids
}

func (c *checker) imports(im Import) {
	c.roots("import.roots", im.Roots)
}

// inPlace checks the folders of storage.in_place.
func (c *checker) inPlace(folders []InPlace) {
	var roots []Root
	for i, f := range folders {
		if roots = append(roots, f.Root); f.Shared && f.Projects == nil {
			c.add("SITE-MISSING", fmt.Sprintf("storage.in_place[%d].projects", i), "the projects that the folder is shared with, or *",
				"it is missing", "for example projects: [\"*\"]")
		}
	}
	c.roots("storage.in_place", roots)
}

// roots checks a list of folders with their projects.
func (c *checker) roots(list string, roots []Root) {
	for i, root := range roots {
		at := fmt.Sprintf("%s[%d]", list, i)
		field := at
		if _, ok := c.site.at[at+".path"]; ok {
			field += ".path"
		}
		c.path(field, root.Path, true)
		if slices.ContainsFunc(roots[:i], func(r Root) bool { return r.Path == root.Path }) && root.Path != "" {
			c.add("SITE-IMPORT-ROOT", field, "each folder once", root.Path+" is listed twice", "list all its projects in one entry")
		}
		if root.Projects != nil && len(root.Projects) == 0 {
			c.add("SITE-MISSING", at+".projects", "the projects the folder belongs to, or *", "the list is empty", "for example projects: [demo]")
		}
		for k, p := range root.Projects {
			if msg := plan.CheckProjects(p); p != "*" && msg != "" {
				c.add("SITE-PROJECT", fmt.Sprintf("%s.projects[%d]", at, k), "a project's name or id, {user} or *", msg, "")
			}
		}
	}
}

// Notes lists what an admin should change in a valid site file.
func (s *Site) Notes() (notes []fault.Problem) {
	for i, r := range s.Import.Roots {
		if r.Projects == nil {
			notes = append(notes, fault.Problem{Code: "SITE-IMPORT-ROOT", Field: fmt.Sprintf("import.roots[%d]", i),
				Rule: "a folder with its projects", Msg: PlainRoot(r.Path), Hint: fmt.Sprintf("write {path: %s, projects: [NAME]}", r.Path)})
		}
	}
	for _, c := range s.Clusters() {
		if f := c.Storage.SFTP; f != nil && !f.HasShell() && !f.SyncsFolders {
			notes = append(notes, fault.Problem{Code: "SITE-SFTP-ALONE", Field: "storage.sftp.shell", File: c.file,
				Rule: "true, or syncs_folders", Msg: "with SFTP alone the gateway cannot sync folders: it cannot rule out that a job still starts, " +
					"so a run in doubt waits for an operator",
				Hint: "set shell to true; or, if the server's filesystem makes new names durable by itself, set syncs_folders to true"})
		}
		notes = append(notes, c.callerNotes()...)
	}
	return notes
}

// PlainRoot describes the limits of a root of no project.
func PlainRoot(path string) string {
	return path + " belongs to no project: only callers who may import into every project can name a path below it; everybody else uploads"
}
