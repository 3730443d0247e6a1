package doctor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/site"
)

// exam returns the examination of a site in a test.
func exam(s *site.Site) *Exam {
	x := Config{Images: noMisfits{}, Reach: func(s *site.Site) Ways {
		return Ways{RunsDir: s.Storage.RunsDir, VerifyImages: func() (func(context.Context, string) (string, error), error) {
			store, err := apptainer.OpenStore(s.Storage.ImageStore)
			if err != nil {
				return nil, err
			}
			return store.Verify, nil
		}}
	}}.exam()
	x.open(s)
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
		t.Errorf("found %v in the answer %+v", found, x.answer)
	}
}

// A file or folder of the domain that every user of the host can change is named, and so is a folder above in which it could be replaced; a
// sticky folder such as /tmp protects what is in it.
func TestInstalledFiles(t *testing.T) {
	dir := t.TempDir()
	packs := filepath.Join(dir, "above", "domain", "toolpacks")
	must(t, os.MkdirAll(packs, 0o755))
	pack := filepath.Join(packs, "x.tool.yaml")
	must(t, os.WriteFile(pack, nil, 0o644))
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
		must(t, err)
		must(t, os.Chmod(c.path, c.mode))
		if f := exam(s).installed()[0]; (f.Status == app.CheckWarning) != (c.warn != "") || !strings.Contains(f.Found, c.warn) {
			t.Errorf("%s with mode %v: findings %+v", c.path, c.mode, f)
		}
		must(t, os.Chmod(c.path, before.Mode()))
	}
}

// The list has each code once, in lower case, with a sentence, a remedy and a function; a check comes after those that
// it needs.
func TestList(t *testing.T) {
	made := map[string]bool{}
	for _, k := range Checks() {
		if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(k.Code) || made[k.Code] {
			t.Errorf("the code %q is not in lower case, or is there twice", k.Code)
		}
		if !strings.HasSuffix(k.Proves, ".") || k.Remedy == "" || len(k.Code) > 22 {
			t.Errorf("the check is incomplete: %+v", k)
		}
		if k.Where != Node && k.Look == nil || k.Early && k.Where != Gateway || k.Where == Node && k.Early {
			t.Errorf("%s: no function for its place", k.Code)
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
		t.Errorf("missing(check) = %q, want runs_dir, and the check not run", why)
	}
	if f := x.answer.Findings[0]; f.Status != app.CheckUnknown || f.Remedy != "do it" || x.answer.Unknown != 1 {
		t.Errorf("findings %+v", f)
	}
	if f := failed("", fmt.Errorf("open: %w", context.DeadlineExceeded))[0]; f.Status != app.CheckUnknown {
		t.Errorf("without an answer the findings are %+v, want unknown", f)
	}
}

// doctor reports where site file and domain disagree, before the gateway is started.
func TestSiteAndDomain(t *testing.T) {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../app/testdata/demo/domain")))
	pack := filepath.Join(dir, "toolpacks/samtools.flagstat.tool.yaml")
	data, err := os.ReadFile(pack)
	must(t, err)
	must(t, os.WriteFile(pack, append(data, "binds: [ref]\n"...), 0o600))
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
	if !strings.Contains(got, "the gateway will not start: tool_binds: ") ||
		!strings.Contains(got, `"ref"`) {
		t.Error(got)
	}
	s := &site.Site{DomainDir: dir, Apptainer: site.Apptainer{Binds: []site.Bind{{Name: "ref", Version: "1"}}}}
	if got := look(s); strings.Contains(got, "tool_binds") {
		t.Error(got)
	}
}

var update = flag.Bool("update", false, "write the table of checks of docs/reference/doctor.md anew")

// docs/reference/doctor.md lists every check, as the list has it.
//
// proves OPS-02
func TestTableOfChecks(t *testing.T) {
	const name, head = "../docs/reference/doctor.md", "| code | looks at | proves | at start-up |\n|---|---|---|---|\n"
	text, err := os.ReadFile(name)
	must(t, err)
	page := string(text)
	before, rest, found := strings.Cut(page, head)
	table, after, _ := strings.Cut(rest+"\n", "\n\n")
	if !found {
		t.Fatalf("%s has no table that begins with\n%s", name, head)
	}
	var rows []string
	for _, k := range Table() {
		early := ""
		if k.Early {
			early = "yes"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", k.Code, k.Where, k.Proves, early))
	}
	if *update {
		page = strings.TrimRight(before+head+strings.Join(rows, "\n")+"\n\n"+after, "\n") + "\n"
		must(t, os.WriteFile(name, []byte(page), 0o644))
	} else if diff := cmp.Diff(rows, strings.Split(table, "\n")); diff != "" {
		t.Errorf("the table of %s (+) differs from the list (-); write it with go test ./doctor -run Table -update\n%s", name, diff)
	}
}

// With few files to open there are fewer connections, so that the ledger and Slurm's commands find some; doctor reports
// it.
func TestOpenFiles(t *testing.T) {
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	for files, want := range map[uint64]int{256: 64, 1024: 100} {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: before.Max}))
		if n, may := Connections(100); n != want || may != files {
			t.Errorf("%d files: %d connections, %d", files, n, may)
		}
		f := openFiles(&site.Site{Limits: site.Limits{SocketConnections: 100}})[0]
		if warned := f.Status == app.CheckWarning; warned != (want < 100) || warned && !strings.Contains(f.Remedy,
			"LimitNOFILE of the service to 400") {
			t.Errorf("%d files: findings %+v", files, f)
		}
	}
}

// Each node at which runs failed is named once, with its faults and a command to examine it; a ledger that cannot be
// read is not ok.
func TestNodeHistory(t *testing.T) {
	var answer []NodeFault
	var failing error
	x := &Exam{Cluster: &site.Site{}, Config: Config{NodeFaults: func(context.Context, *site.Site, time.Time) ([]NodeFault, error) {
		return answer, failing
	}}}
	if r := history(t.Context(), x); len(r) != 1 || r[0].Status != app.CheckOK {
		t.Errorf("results %+v", r)
	}
	answer = []NodeFault{{"n1", "image_missing", 3, time.Unix(0, 0), "run_A"}, {"n2", "runtime_missing", 1, time.Unix(0, 0), "run_B"},
		{"n1", "no_user_namespaces", 1, time.Unix(0, 0), "run_C"}}
	r := history(t.Context(), x)
	if len(r) != 2 || r[0].Status != app.CheckWarning || !strings.Contains(r[0].Found, "n1: 3 runs image_missing") ||
		!strings.Contains(r[0].Found, "1 run no_user_namespaces") || !strings.Contains(r[0].Remedy, "--node n1") {
		t.Errorf("results %+v", r)
	}
	failing = errors.New("disk I/O error")
	if r := history(t.Context(), x); len(r) != 1 || r[0].Status == app.CheckOK {
		t.Errorf("results %+v", r)
	}
	if r := history(t.Context(), &Exam{}); r[0].Status != app.CheckUnknown {
		t.Errorf("results %+v", r)
	}
}
