package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/site"
)

// exam is the examination of a site in a test.
func exam(s *site.Site) *Exam {
	x := Config{Images: noMisfits{}}.exam()
	x.Site, x.Cluster = s, s
	x.VerifyImages = func(s *site.Site) (func(context.Context, string) (string, error), error) {
		store, err := apptainer.OpenStore(s.Storage.ImageStore)
		if err != nil {
			return nil, err
		}
		return store.Verify, nil
	}
	return x
}

type noMisfits struct{ app.Images }

func (noMisfits) Misfits(*site.Site) ([]fault.Problem, error) { return nil, nil }

// An image is named once, however many packs use it.
func TestEachImageOnce(t *testing.T) {
	s := &site.Site{DomainDir: filepath.Join("..", "domains", "examples")}
	s.Storage.ImageStore = t.TempDir()
	x := exam(s)
	x.run(t.Context(), func(k Check) bool { return k.Code == domainCode || k.Code == imageStore || k.Code == "images" })
	found := map[string]int{}
	for _, f := range x.answer.Findings {
		if name, is := strings.CutPrefix(f.Found, "images.lock.yaml has no image "); is {
			found[name]++
		}
	}
	if found["textkit"] != 1 || found["samtools"] != 1 {
		t.Errorf("%v in %+v", found, x.answer)
	}
}

// A file or folder of the domain that every user of the host can change is named, and so is a folder above in which it could be replaced; a
// sticky folder such as /tmp protects what is in it.
func TestInstalledFiles(t *testing.T) {
	dir := t.TempDir()
	packs := filepath.Join(dir, "above", "domain", "toolpacks")
	if err := os.MkdirAll(packs, 0o755); err != nil {
		t.Fatal(err)
	}
	pack := filepath.Join(packs, "x.tool.yaml")
	if err := os.WriteFile(pack, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := &site.Site{DomainDir: filepath.Join(dir, "above", "domain")}
	for _, c := range []struct {
		path string
		mode os.FileMode
		warn string
	}{
		{pack, 0o644, ""}, {pack, 0o666, pack}, {pack, 0o664, ""}, {packs, 0o777, packs},
		{filepath.Join(dir, "above"), 0o777, filepath.Join(dir, "above")}, {filepath.Join(dir, "above"), 0o777 | os.ModeSticky, ""},
	} {
		before, err := os.Stat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		if f := installed(s)[0]; (f.Status == app.CheckWarning) != (c.warn != "") || !strings.Contains(f.Found, c.warn) {
			t.Errorf("%s %v: %+v", c.path, c.mode, f)
		}
		if err := os.Chmod(c.path, before.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// The list: each code once, in lower case, with a sentence and a remedy, and a way to look; what a check needs is made before it.
func TestList(t *testing.T) {
	made := map[string]bool{}
	for _, k := range Checks() {
		if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(k.Code) || made[k.Code] {
			t.Errorf("the code %q is not in lower case, or is there twice", k.Code)
		}
		if !strings.HasSuffix(k.Proves, ".") || k.Remedy == "" || len(k.Code) > 22 {
			t.Errorf("%+v", k)
		}
		if k.Where != Node && k.Look == nil || k.Early && k.Where != Gateway || k.Where == Node && k.Early {
			t.Errorf("%s: no way to look there", k.Code)
		}
		for _, need := range k.Needs {
			if !made[need] {
				t.Errorf("%s needs %s, which is not made before it", k.Code, need)
			}
		}
		made[k.Code] = true
	}
}

// A check that has no result, or that needs one that failed, is never ok.
func TestNeverOKUnlooked(t *testing.T) {
	x := exam(&site.Site{})
	x.Report(Check{Code: "nothing", Remedy: "do it"}, "", nil)
	x.Report(Check{Code: runsDir}, "", bad("", "it is missing"))
	looked := false
	k := Check{Code: "later", Needs: []string{runsDir}, Remedy: "do it", Look: func(context.Context,
		*Exam) []Result {
		looked = true
		return ok("")
	}}
	if why := x.missing(k); why != runsDir || looked {
		t.Errorf("%q", why)
	}
	if f := x.answer.Findings[0]; f.Status != app.CheckUnknown || f.Remedy != "do it" || x.answer.Unknown != 1 {
		t.Errorf("%+v", f)
	}
	if f := failed("", fmt.Errorf("open: %w", context.DeadlineExceeded))[0]; f.Status != app.CheckUnknown {
		t.Errorf("who does not answer is unknown: %+v", f)
	}
}

// What site file and domain have to agree on is said before the gateway is started.
func TestSiteAndDomain(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../app/testdata/before/domain")); err != nil {
		t.Fatal(err)
	}
	pack := filepath.Join(dir, "toolpacks/samtools.flagstat.tool.yaml")
	data, err := os.ReadFile(pack)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pack, append(data, "binds: [ref]\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(s *site.Site) (all string) {
		x := exam(s)
		x.run(t.Context(), func(k Check) bool { return k.Code == domainCode || k.Code == "policy_fits" || k.Code == "tool_binds" })
		for _, f := range x.answer.Findings {
			if f.Status != app.CheckOK {
				all += f.Text() + "\n"
			}
		}
		return all
	}
	got := look(&site.Site{DomainDir: dir})
	if !strings.Contains(got, "import.roots belongs in the site file") || !strings.Contains(got, "the gateway will not start: tool_binds: ") ||
		!strings.Contains(got, `"ref"`) {
		t.Error(got)
	}
	s := &site.Site{DomainDir: dir, Apptainer: site.Apptainer{Binds: []site.Bind{{Name: "ref", Version: "1"}}}}
	if got := look(s); strings.Contains(got, "tool_binds") {
		t.Error(got)
	}
}
