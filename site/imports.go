package site

import (
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Import says which files may be imported and how they are checked.
type Import struct {
	// Roots are the folders that the gateway itself reads when a call names a path. If empty, those of policies.yaml in an older domain apply,
	// as roots of no project.
	Roots []Root `yaml:"roots"`

	// Local is where a user of this host may import from: "roots", files below a root that he can read himself, or "own", every file that he
	// can read. His own process opens the file. Default roots (ARC-02).
	Local string `yaml:"local"`

	FullCheck bool `yaml:"full_check"` // inflate gzip files of any size to compare their checksums; default false: those up to 64 MiB
}

// The values of import.local.
const (
	LocalOwn   = "own"
	LocalRoots = "roots"
)

// Root is a folder that files may be imported from. In the file it may be the path alone, which is a root of no project: only callers who
// may import into every project read it through the gateway.
type Root struct {
	Path     string   `yaml:"path"`     // absolute, never /
	Projects []string `yaml:"projects"` // names or ids of the projects it belongs to, or *
}

// MarshalYAML writes a root of no project as its path.
func (r Root) MarshalYAML() (any, error) {
	if r.Projects == nil {
		return r.Path, nil
	}
	type root Root
	return root(r), nil
}

// ProjectIDs are the ids of the root's projects; * stays as it is.
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
	c.oneOf("import.local", im.Local, LocalOwn, LocalRoots)
	c.roots("import.roots", im.Roots)
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
			if msg := plan.CheckProject(p); p != "*" && msg != "" {
				c.add("SITE-PROJECT", fmt.Sprintf("%s.projects[%d]", at, k), "a project's name or id, or *", msg, "")
			}
		}
	}
}

// Notes says what of a valid site file an admin should change.
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

// PlainRoot says what a root of no project is good for.
func PlainRoot(path string) string {
	return path + " belongs to no project: only callers who may import into every project can name a path below it; everybody else uploads"
}
