// Package slurmgate_test checks the tree: which package imports which, which modules come from elsewhere, and that no
// call bypasses the gate.
package slurmgate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "slurmgate"

// arrows maps each of our packages to those it may import, outside its tests. A new package needs a line here.
var arrows = map[string][]string{
	"visible": {}, // what of others' text people and models may see
	"fault":   {"secrets", "visible"},
	"blocks":  {"fault"}, // answers as blocks
	"cached":  {},        // answers that are asked for again after a while
	// The core knows no outside system.
	"plan":            {"fault", "filetype", "visible"},
	"filetype":        {},                // what is known about each type of artifact
	"plan/tree":       {"fault", "plan"}, // the list of files of a directory artifact
	"policy/programs": {},
	"policy/yamldoc":  {"fault", "plan"},
	"policy":          {"fault", "plan", "policy/programs", "policy/yamldoc"},
	"run":             {"blocks", "cached", "fault", "plan", "plan/tree", "secrets", "visible"},
	"run/runtest":     {"fault", "plan", "run"},
	"toolpack":        {"fault", "filetype", "plan", "policy/programs", "policy/yamldoc", "toolpack/jinja", "visible"},
	"toolpack/jinja":  {"plan"},
	"convert":         {"fault", "filetype", "plan", "policy/yamldoc", "toolpack"}, // files of other systems; it opens none
	"gate":            {"blocks", "fault", "plan", "secrets", "visible"},
	"secrets":         {}, // texts alone
	"secrets/corpus":  {}, // of tests
	"access":          {"cached", "fault", "gate", "nss", "plan", "visible"},
	"nss":             {"fault"}, // users and groups of this host
	// A separate process, under a separate user: it knows nothing of the gateway but its requests.
	"signer": {"fault", "nss", "policy/yamldoc"},
	// What tests of several packages share: a suite, and no part of the product.
	"remote/sshtest":        {},
	"filetype/filetypetest": {},
	"signer/signertest":     {"fault", "nss", "signer"},
	"gate/conformance":      {"artifact", "fault", "gate", "ledger", "ledger/ledgertest", "plan", "run"},
	"site":                  {"fault", "nss", "plan", "policy/yamldoc"},
	"retention":             {"fault"},
	"notify":                {"fault"}, // notices that a run or a batch ended
	"export/receipt":        {"fault"}, // statements, signatures and their check: what is needed where no gateway is
	"backup":                {"fault", "files", "plan"},
	"export":                {"export/receipt", "fault", "filetype", "plan", "plan/tree", "shell", "visible"}, // checked without a gateway
	"files":                 {},                                                                               // files that others may change
	"shell":                 {},                                                                               // words quoted for shells
	// Outside systems, which never import each other; run gives them its interfaces and nouns.
	"ledger":            {"export/receipt", "fault", "gate", "notify", "plan", "plan/tree", "retention", "run"},
	"ledger/ledgertest": {"ledger"},
	"artifact":          {"fault", "files", "filetype", "plan", "plan/tree", "visible"},
	"slurm":             {"cached", "fault", "plan", "plan/tree", "remote", "run", "secrets", "shell", "visible"},
	"slurm/rest":        {"fault", "plan", "run", "slurm"},
	"apptainer":         {"fault", "files", "plan", "run"},
	"staging":           {"fault", "files", "plan", "run", "secrets", "visible"},
	"staging/sftp":      {"fault", "files", "plan", "plan/tree", "remote", "remote/transfer", "run", "staging"},
	"local":             {"fault", "run"},
	"asuser":            {"fault", "plan", "run"}, // a run's user; SSH and the signer come from its creator
	// Images of registries.
	"apptainer/oci": {"apptainer", "fault"},
	// Bytes over SFTP channels that the caller opens.
	"remote/transfer": {"fault"},
	"remote":          {"fault", "shell"}, // SSH for slurm, staging and apptainer; it knows nothing of what they do with it
	// Faces over the gate.
	"httpapi": {"fault", "files", "gate", "plan", "plan/tree", "visible"},
	"mcp":     {"blocks", "fault", "filetype", "gate", "plan", "visible"},
	"worker":  {"fault", "plan"}, // HTTP and JSON alone: it knows no tool and no run
	// A separate process in front of a foreign MCP server: it knows the contract of workers and nothing of the gateway.
	"adapter": {"fault", "plan", "policy/yamldoc", "visible"},
	"metrics": {"gate", "plan", "run"},
	// The gateway's operations, the verbs of the shell over them, and the checks of a site.
	"app": {"access", "artifact", "backup", "blocks", "convert", "export", "export/receipt", "fault", "filetype", "gate", "ledger", "notify",
		"plan", "plan/tree", "policy", "policy/yamldoc", "retention", "run", "secrets", "site", "toolpack", "visible", "worker"},
	"cli": {"app", "backup", "blocks", "convert", "export", "fault", "files", "filetype", "gate", "httpapi", "plan", "plan/tree",
		"retention", "run", "shell", "site", "visible"},
	// What doctor advises is a command line.
	"doctor": {"app", "apptainer", "cli", "fault", "gate", "nss", "plan", "policy", "remote", "run", "secrets", "shell", "signer", "site",
		"slurm", "slurm/rest", "staging", "toolpack", "worker"},
	"setup": {"fault", "plan", "policy", "remote", "run", "site", "slurm", "staging", "visible"},
	// The places that know all others: the one that opens sites, and the one that wires.
	"transport": {"app", "apptainer", "apptainer/oci", "artifact", "asuser", "cached", "doctor", "fault", "files", "ledger", "local", "nss",
		"plan/tree", "remote", "remote/transfer", "run", "signer", "site", "slurm", "slurm/rest", "staging", "staging/sftp", "toolpack"},
	"cmd/slurmgate": {"access", "adapter", "app", "artifact", "backup", "chaos/seams", "cli", "doctor", "fault", "filetype", "gate", "httpapi",
		"ledger", "mcp", "metrics", "nss", "plan", "plan/tree", "policy", "run", "secrets", "setup", "signer", "site", "slurm", "staging",
		"staging/sftp", "toolpack", "transport", "visible", "worker"},
	// Of the build for the crash campaign alone, see TestProductHasNoSeams.
	"chaos/seams": {"fault", "plan", "run"},
	// Tools of this repository, not part of the product.
	"docs/model":           {"docs/model/protocol"},
	"docs/model/protocol":  {},
	"chaos/liar":           {},
	"chaos/prog":           {},
	"e2e/testprog":         {},
	"scripts/images/mksif": {"apptainer"},
	"workers/webcrawl":     {}, // a sample of a service worker: a separate program, which knows only the contract
	"scripts/lines":        {},
	"scripts/mutants":      {},
	"scripts/reads":        {},
	"scripts/testsum":      {},
}

// instruments measure and disturb the product from outside: they may import anything, and no package imports them.
var instruments = []string{"chaos", "bench", "mcp/conformance"}

var (
	core    = []string{"plan", "policy", "run"}
	outside = []string{"slurm", "slurm/rest", "local", "asuser", "apptainer", "apptainer/oci", "staging", "staging/sftp", "ledger", "artifact",
		"httpapi", "mcp", "worker", "adapter", "site", "app", "cli", "doctor",
		"transport", "cmd/slurmgate"}
	peers    = []string{"slurm", "local", "asuser", "apptainer", "staging", "staging/sftp", "ledger", "artifact", "worker"}
	nameless = []string{"util", "utils", "common", "types", "helpers", "helper", "misc", "base", "shared", "lib"}
)

// libraries lists the modules that product code may import directly, each with its reason.
var libraries = map[string]string{
	"github.com/alecthomas/kong": "the command line, declared as structs",
	"github.com/go-chi/chi/v5":   "HTTP routes (CARD-07)",
	"github.com/go-jose/go-jose/v4": "signatures of OpenID access tokens; go-oidc is for ID tokens: it fetches keys for each " +
		"unknown key id, keeps withdrawn keys, and shows neither a token's type nor a key's",
	"github.com/go-json-experiment/json": "decoding that sees duplicate keys and case twins, and canonical JSON; encoding/json does " +
		"neither",
	"github.com/google/go-containerregistry": "registries: names, logins, manifests, and the registry of the tests (DATA-06); layers are " +
		"flattened by our own code, because its mutate.Extract ignores opaque folders",
	"github.com/klauspost/compress": "layers compressed with zstd, with a bound on memory",
	"github.com/google/uuid":        "ids in the envelope (HTC-02)",
	"github.com/mattn/go-sqlite3":   "the ledger (CARD-07)",
	"github.com/nikolalohinski/gonja/v2": "lexer and parser of Jinja2 templates; its evaluator cannot be bounded and calls methods by " +
		"reflection, so toolpack/jinja evaluates the tree",
	"github.com/modelcontextprotocol/go-sdk":   "the protocol of chats, by those who write it",
	"github.com/pkg/sftp":                      "SFTP (CARD-07)",
	"github.com/prometheus/client_golang":      "figures in the form that sites read",
	"github.com/santhosh-tekuri/jsonschema/v6": "JSON Schema 2020-12 for tools and envelope",
	"github.com/skeema/knownhosts": "the host key algorithms that known_hosts has for a host, certificates included; x/crypto does not choose " +
		"them, so hosts with several keys fail",
	"github.com/sylabs/sif/v2": "reading and writing SIF (CARD-07)",
	"go.yaml.in/yaml/v3":       "YAML with line numbers",
	"golang.org/x/crypto":      "SSH (CARD-07)",
	"golang.org/x/sync":        "parallel loops with a limit; look-ups that concurrent callers share",
	"golang.org/x/sys":         "openat2, statfs, flock and locks of open files",
	"golang.org/x/text":        "the language of schema messages; normal forms of names of passwords",
	"golang.org/x/time":        "the RPC budget",
}

// testLibraries may be imported by tests besides.
var testLibraries = map[string]string{
	"github.com/google/go-cmp":        "diffs",
	"github.com/gowebpki/jcs":         "a second implementation of RFC 8785 to compare with",
	"github.com/rogpeppe/go-internal": "testscript",
}

type pkg struct {
	ImportPath, Dir, Export            string
	GoFiles, CgoFiles                  []string
	Imports, TestImports, XTestImports []string
	Standard                           bool
	Module                             *struct{ Path string }
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// goList asks the go command, with every build tag of this repository.
func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	c := exec.Command("go", append([]string{"list",
		"-json=ImportPath,Dir,Export,GoFiles,CgoFiles,Imports,TestImports,XTestImports,Standard,Module"}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// ours returns our packages, in both shapes that cmd has.
func ours(t *testing.T) []pkg {
	return append(goList(t, "-tags=cluster", "./..."), goList(t, "-tags=cluster,chaos", "./...")...)
}

func local(imports []string) (out []string) {
	for _, i := range imports {
		if name, ok := strings.CutPrefix(i, module+"/"); ok {
			out = append(out, name)
		}
	}
	return out
}

// top returns the first folder of a package.
func top(name string) string { return strings.SplitN(name, "/", 2)[0] }

func TestArrows(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range ours(t) {
		name := p.name()
		seen[name] = true
		if slices.Contains(nameless, path.Base(name)) {
			t.Errorf("package %s: its name does not describe its purpose", name)
		}
		if slices.Contains(instruments, name) {
			continue
		}
		may, known := arrows[name]
		if !known {
			if len(p.GoFiles)+len(p.CgoFiles) > 0 {
				t.Errorf("package %s has no line in the table of arrows", name)
			}
			continue
		}
		for _, i := range local(p.Imports) {
			switch {
			case !slices.Contains(may, i):
				t.Errorf("%s imports %s, which the table of arrows does not allow", name, i)
			case slices.Contains(core, strings.SplitN(name, "/", 2)[0]) && slices.Contains(outside, i):
				t.Errorf("%s belongs to the core and imports %s, an outside system", name, i)
			}
		}
		// What a test imports, its package leans on too: the peers keep apart there as well, and the core stays the core.
		for _, i := range local(slices.Concat(p.Imports, p.TestImports, p.XTestImports)) {
			if slices.Contains(peers, name) && slices.Contains(peers, i) && top(i) != top(name) {
				t.Errorf("%s imports %s: outside systems do not import each other", name, i)
			}
		}
		for _, i := range local(p.TestImports) {
			if slices.Contains([]string{"plan", "policy"}, name) && slices.Contains(outside, i) {
				t.Errorf("the tests of %s import %s, an outside system", name, i)
			}
		}
	}
	for name, may := range arrows {
		if !seen[name] {
			t.Errorf("the table of arrows has a line for %s, and there is no such package", name)
		}
		if slices.Contains(core, name) && slices.ContainsFunc(may, func(s string) bool { return slices.Contains(outside, s) }) {
			t.Errorf("the table lets %s import an outside system", name)
		}
		if slices.Contains(peers, name) && slices.ContainsFunc(may, func(s string) bool {
			return slices.Contains(peers, s) && top(s) != top(name)
		}) {
			t.Errorf("the table lets %s import another outside system", name)
		}
	}
}

func TestLibraries(t *testing.T) {
	moduleOf := map[string]string{}
	for _, p := range goList(t, "-tags=cluster", "-deps", "-test", "./...") {
		if p.Module != nil {
			moduleOf[strings.Fields(p.ImportPath)[0]] = p.Module.Path
		}
	}
	used := map[string]bool{}
	check := func(p pkg, imports []string, allowed ...map[string]string) {
		for _, i := range imports {
			m := moduleOf[i]
			if m == "" || m == module {
				continue
			}
			used[m] = true
			if !slices.ContainsFunc(allowed, func(a map[string]string) bool { return a[m] != "" }) {
				t.Errorf("%s imports %s: the module %s is not on the list, where each has its reason", p.name(), i, m)
			}
		}
	}
	for _, p := range ours(t) {
		check(p, p.Imports, libraries)
		check(p, slices.Concat(p.TestImports, p.XTestImports), libraries, testLibraries)
	}
	for m := range libraries {
		if !used[m] {
			t.Errorf("%s is on the list and no package imports it", m)
		}
	}
}

// What a cluster is reached by is asked where sites are opened, and by the checks of the site file. Everything else holds what was opened,
// so a new transport changes nothing there.
func TestOnlyOpenedSitesKnowTransports(t *testing.T) {
	questions := []string{"FarSlurm", "FarFiles", "OverREST", "AsCaller", "ShellHost"}
	inspect(t, func(files *token.FileSet, path string, n ast.Node) bool {
		e, is := n.(*ast.SelectorExpr)
		allowed := strings.HasPrefix(path, "site/") || strings.HasPrefix(path, "transport/")
		if is && !allowed && slices.Contains(questions, e.Sel.Name) {
			t.Errorf("%s asks %s: let package transport answer by what it opens", files.Position(n.Pos()), e.Sel.Name)
		}
		return true
	})
}

// lifecycleMethods lists the methods of the lifecycle that start and stop a gateway; they are about no run.
var lifecycleMethods = []string{"Open", "Start", "CaughtUp", "Settled", "Ready", "Away", "Watched", "Names", "RunDir", "EndWaits",
	"Overslept", "Drains", "State"}

// faces lists the packages that turn requests into calls; they know the gate and nothing behind it.
var faces = []string{"httpapi", "mcp"}

// Who may touch what would be a way past the gate: every method of the lifecycle, the import of artifacts, what tokens, approvals and
// records are changed by, and a tool's handlers themselves. In app only functions that are handlers, or make them, do; the
// faces cannot even name these packages.
//
// proves HTC-06
func TestNothingGoesPastTheGate(t *testing.T) {
	for _, face := range faces {
		for _, behind := range []string{"run", "ledger", "artifact", "toolpack", "slurm", "staging", "apptainer", "policy"} {
			if slices.Contains(arrows[face], behind) {
				t.Errorf("the table lets %s import %s: a face knows nothing behind the gate", face, behind)
			}
		}
	}
	guarded := map[string][]string{ // "package.Type.Method" → functions of app and cmd/slurmgate
		"run.Sites.Submit":         {"submit", "packHandler", "hashInRun"}, // the last: of reference.add
		"run.Sites.Preview":        {"rehearseSubmit", "packRehearsal"},
		"run.Sites.Answer":         {"waitForInputs"},
		"run.Sites.Known":          {"add"}, // of a batch's dry run, after gate.Check
		"run.Sites.Get":            {"getRun", "hashInRun"},
		"run.Sites.Waits":          {"waits", "story"}, // of runs that were found to be theirs to see
		"run.Sites.Moving":         {"moving"},         // of a run that the gate has let the caller read
		"run.Sites.Collect":        {"collectRun"},
		"run.Sites.Cancel":         {"cancel"},
		"run.Sites.CarryOutCancel": {"carryOut"}, // that batch.cancel has recorded
		"run.Sites.CallWorker":     {"serviceHandler"},
		"run.Sites.SupposeCall":    {"serviceRehearsal"},
		"run.Sites.ServeWorkers":   {"openSites"},
		"run.Sites.StopWorkers":    {"endWork"},
		"worker.Client.Call":       {"callWorker"},
		// As the ledger has them: at the start, and after drain and resume.
		"run.Sites.SetDrains":     {"LoadDrains"},
		"run.Sites.NextResources": {"coversAttempt", "rehearseRetry"}, // of a run that the gate found to be its caller's
		"run.Sites.Partitions":    {"checkSite", "Most"},              // asks the site's Slurm, once in a while
		"run.Sites.HasImage":      {"checkSite"},
		"run.Sites.Logs":          {"logs"},
		"run.Sites.Retry":         {"retryRun"},

		"run.Sites.Recollect": {"recollect"},

		"run.Sites.Adopt": {"adopt"},
		"run.Sites.Ended": {"openSites"}, // a process of this host ended; no call

		"run.Sites.DeclareAbsent": {"declareAbsent"},

		"retention.Parts.Sweep":        {"gc"},
		"artifact.Importer.ImportFile": {"bringIn"},
		"artifact.Importer.ImportAs":   {"bringIn"},
		"artifact.Importer.ImportText": {"bringIn"},

		"artifact.Importer.ImportHanded": {"bringIn"},
		"artifact.Importer.ImportStream": {"bringIn"},

		"ledger.Ledger.AddToken":       {"createToken"},
		"ledger.Ledger.RevokeToken":    {"revokeToken"},
		"ledger.Ledger.AnswerApproval": {"answerApproval"},
		"ledger.Ledger.DropCalls":      {"Tend"},
		"ledger.Ledger.Record":         {"recordAlone", "recordShell"}, // of calls a shell made, behind its own gate

		"gate.Tool.Handle": {},
		"gate.Tool.DryRun": {},
	}
	type use struct {
		pkg, fn, what, where string
		method               bool
	}
	var uses []use
	exports, found := map[string]string{}, map[string]bool{}
	all := goList(t, "-export", "-deps", "./cmd/...") // all that is in the product
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imp := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	for _, p := range all {
		if p.Standard || !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: imp}).Check(p.ImportPath, fset, files, info); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, d := range f.Decls {
				fn := ""
				if d, ok := d.(*ast.FuncDecl); ok {
					fn = d.Name.Name
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if e, ok := n.(*ast.SelectorExpr); ok && info.Selections[e] != nil {
						if what := nameOf(info.Selections[e]); what != "" {
							uses = append(uses, use{p.name(), fn, what, fset.Position(e.Pos()).String(), info.Selections[e].Kind() != types.FieldVal})
						}
					}
					return true
				})
			}
		}
	}
	for _, u := range uses {
		may, is := guarded[u.what]
		owned, lifecycle := strings.CutPrefix(strings.Replace(u.what, "run.Engine.", "run.Sites.", 1), "run.Sites.")
		if lifecycle && !is && u.method && u.pkg != "run" && !slices.Contains(lifecycleMethods, owned) {
			t.Errorf("%s: %s is not in the table of this test: say who may use it", u.where, u.what)
		}
		if !is {
			continue
		}
		found[u.what] = true
		owner, _, _ := strings.Cut(u.what, ".")
		if u.pkg == owner || slices.Contains([]string{"app", "cmd/slurmgate"}, u.pkg) && slices.Contains(may, u.fn) {
			continue
		}
		t.Errorf("%s: %s in %s of %s goes past the gate", u.where, u.what, u.fn, u.pkg)
	}
	for what, may := range guarded {
		if len(may) > 0 && !found[what] {
			t.Errorf("%s is used nowhere: this test looks for the wrong thing", what)
		}
	}
}

// nameOf returns "package.Type.Member" of one of our types.
func nameOf(s *types.Selection) string {
	recv := s.Recv()
	if p, ok := recv.(*types.Pointer); ok {
		recv = p.Elem()
	}
	n, ok := recv.(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return ""
	}
	pkg, ours := strings.CutPrefix(n.Obj().Pkg().Path(), module+"/")
	if !ours {
		return ""
	}
	return pkg + "." + n.Obj().Name() + "." + s.Obj().Name()
}

// Code that reads the texts of authors and callers cannot start a process or reach a network, whatever the texts
// contain; and the readers of plans, policies and templates open no file themselves.
//
// proves ABI-20 LOAD-10
func TestReadersReachNothing(t *testing.T) {
	for _, root := range []string{"plan", "policy", "toolpack"} {
		for _, p := range goList(t, "-deps", "./"+root) {
			if slices.Contains([]string{"net", "net/http", "os/exec", "plugin"}, p.ImportPath) {
				t.Errorf("%s can reach %s", root, p.ImportPath)
			}
		}
	}
	for _, root := range []string{"plan", "policy", "policy/programs", "policy/yamldoc", "toolpack/jinja"} {
		for _, p := range goList(t, "./"+root) {
			for _, i := range p.Imports {
				if i == "os" || i == "io/fs" || i == "path/filepath" || i == "syscall" || i == "unsafe" {
					t.Errorf("%s imports %s", root, i)
				}
			}
		}
	}
}

// The lifecycle reaches files, processes and networks through its ports only, so that a site may be elsewhere.
func TestLifecycleOpensNothing(t *testing.T) {
	for _, p := range goList(t, "./run") {
		for _, i := range p.Imports {
			if slices.Contains([]string{"os", "os/exec", "io/fs", "path/filepath", "syscall", "net", "net/http"}, i) ||
				strings.HasPrefix(i, "golang.org/x/sys/") {
				t.Errorf("run imports %s: what a site does belongs behind a port", i)
			}
		}
	}
}

// The places where a gateway is made to die are in the build for the crash campaign, and in no other.
func TestProductHasNoSeams(t *testing.T) {
	has := func(args ...string) bool {
		return slices.ContainsFunc(goList(t, append(args, "-deps", "./cmd/slurmgate")...), func(p pkg) bool { return p.name() == "chaos/seams" })
	}
	if has() || !has("-tags=chaos") {
		t.Error("chaos/seams is in the product, or not in the build with the tag chaos")
	}
}

// No server and no suite of the tests is in the product.
func TestProductHasNoTestServers(t *testing.T) {
	tests := []string{"remote/sshtest", "run/runtest", "gate/conformance", "ledger/ledgertest", "secrets/corpus", "signer/signertest"}
	for _, tags := range []string{"-tags=", "-tags=chaos"} {
		for _, p := range goList(t, tags, "-deps", "./cmd/...") {
			if slices.Contains(tests, p.name()) {
				t.Errorf("%s is part of the product", p.name())
			}
		}
	}
	for _, name := range tests { // they are where this test expects them
		if len(goList(t, "./"+name)) != 1 {
			t.Errorf("there is no package %s", name)
		}
	}
}

// What must run may not be left out silently, and tests do not wait for the clock where they need not.
func TestNoSkippedTests(t *testing.T) {
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (name == "build" || name == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(name)
		for n, line := range strings.Split(string(data), "\n") {
			if strings.Contains(line, "t."+"Skip") || strings.Contains(line, "testing."+"Short()") {
				t.Errorf("%s:%d: %s", name, n+1, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
