package artifact

import (
	"os"
	"strings"
	"testing"

	"slurmgate/fault"
)

// A path is read for the projects of the innermost root around it, by whatever name that root is reached. To everybody else it lies below
// no root, whether there is such a file or not.
func TestRootsOfProjects(t *testing.T) {
	s, _ := newStore(t)
	base := t.TempDir()
	for _, dir := range []string{"p", "p/inner", "plain", "all"} {
		put(t, base+"/"+dir+"/f", "data of "+dir)
	}
	must(t, os.Symlink(base+"/p", base+"/name"))
	im, err := NewImporter(s, ImportPolicy{MaxBytes: 100, Roots: []Root{{base + "/p", []string{"proj_P"}},
		{base + "/name", []string{"proj_N"}},
		{base + "/p/inner", []string{"proj_Q"}}, {base + "/plain", nil}, {base + "/all", []string{Every}}}})
	must(t, err)
	p, q, n, admin := Scope{Project: "proj_P"}, Scope{Project: "proj_Q"}, Scope{Project: "proj_N"}, Scope{Project: "proj_X", Every: true}
	for path, readers := range map[string][]Scope{
		"/p/f": {p, n, admin}, "/name/f": {p, n, admin}, "/p/inner/f": {q, admin}, "/name/inner/f": {q, admin}, "/plain/f": {admin},
		"/all/f": {p, q, n, admin},
	} {
		for _, who := range []Scope{p, q, n, admin, {}} {
			_, err := im.ImportFile(t.Context(), base+path, who)
			may := false
			for _, r := range readers {
				may = may || r == who
			}
			if path == "/all/f" && who == (Scope{}) {
				continue // no caller has an empty project
			}
			if may != (err == nil) || !may && fault.CodeOf(err) != ImportRoot {
				t.Errorf("%s for %+v: %v", path, who, err)
			}
			if may {
				continue
			}
			_, missing := im.ImportFile(t.Context(), base+strings.TrimSuffix(path, "f")+"none", who)
			if strings.ReplaceAll(missing.Error(), "/none", "/f") != err.Error() {
				t.Errorf("the answer says whether the file exists:\n%v\n%v", err, missing)
			}
			if strings.Contains(err.Error(), "plain,") || strings.Contains(err.Error(), "inner)") && who == p {
				t.Errorf("the answer names the root of another: %v", err)
			}
		}
	}
}
