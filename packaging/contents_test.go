package packaging_test

import (
	"debug/elf"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/sassoftware/go-rpmutils"
)

// The program needs nothing of the host: no interpreter, no library, no file. It has the stack for SQLite that musl would not give it.
//
// proves OPS-01
func TestStatic(t *testing.T) {
	file := made.new.file(t, "slurmgate-*-linux-amd64")
	program, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	var stack uint64
	for _, p := range program.Progs {
		switch p.Type {
		case elf.PT_INTERP, elf.PT_DYNAMIC:
			t.Errorf("the program has a segment %s", p.Type)
		case elf.PT_GNU_STACK:
			stack = p.Memsz
		}
	}
	if stack < 8<<20 {
		t.Errorf("threads have a stack of %d bytes", stack)
	}
	root := t.TempDir()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "slurmgate"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/slurmgate", "version")
	c.Dir, c.Err, c.Path = "/", nil, "/slurmgate"
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "slurmgate "+made.new.version+"\n") {
		t.Errorf("in an empty root: %v %s", err, out)
	}
}

// A copy of the source in another folder, with a separate build cache, gives the same bytes: program, packages and bill
// of materials.
//
// proves OPS-01
func TestReproducible(t *testing.T) {
	again := release{made.new.version, filepath.Join(made.dir, "again")}
	tree := filepath.Join(made.dir, "elsewhere/source")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, "sh", "-c", `tar -c --exclude=./build --exclude=./.git . | tar -x -C "$1"`, "sh", tree)
	program := release{made.new.version, filepath.Join(made.dir, "program")}
	if err := program.make(tree, "program", "GOCACHE="+filepath.Join(made.repo, "build/second-go-cache")); err != nil {
		t.Fatal(err)
	}
	output(t, "cmp", made.new.file(t, "slurmgate-*-linux-amd64"), program.file(t, "slurmgate"))
	if err := again.make(tree, "all"); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(made.new.file(t, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(again.file(t, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("two builds differ:\n%s\n%s", first, second)
	}
	output(t, "sh", "-c", `cd "$1" && sha256sum --quiet -c SHA256SUMS`, "sh", again.dir)
}

// The bill of materials conforms to its schema, and names every module in the program, the Go library, the C library
// and SQLite.
//
// proves OPS-01
func TestBillOfMaterials(t *testing.T) {
	read := func(name string) any {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		v, err := jsonschema.UnmarshalJSON(f)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	schemas := filepath.Join(strings.TrimSpace(output(t, "go", "-C", "packaging", "list", "-m", "-f", "{{.Dir}}",
		"github.com/CycloneDX/cyclonedx-go")), "schema")
	compiler := jsonschema.NewCompiler()
	for url, file := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json",
		"jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		if err := compiler.AddResource("http://cyclonedx.org/schema/"+url, read(filepath.Join(schemas, file))); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	file := made.new.file(t, "*.cdx.json")
	if err := schema.Validate(read(file)); err != nil {
		t.Error(err)
	}
	var bom struct {
		Components []struct{ Name, Version string }
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for _, c := range bom.Components {
		has[c.Name] = c.Version
	}
	for line := range strings.Lines(output(t, "go", "version", "-m", made.new.file(t, "slurmgate-*-linux-amd64"))) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" && has[f[1]] != f[2] {
			t.Errorf("%s is in the program with version %s; the bill of materials says %q", f[1], f[2], has[f[1]])
		}
	}
	for _, name := range []string{"stdlib", "musl", "sqlite"} {
		if has[name] == "" {
			t.Errorf("the bill of materials does not have %s", name)
		}
	}
}

// The rpm has the files and the scripts of the deb; what differs is listed here.
//
// proves OPS-01
func TestRPM(t *testing.T) {
	f, err := os.Open(made.new.file(t, "*.rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pkg, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	inRPM, config := map[string]string{}, ""
	files, err := pkg.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range files {
		if e.Mode()&syscall.S_IFMT == syscall.S_IFDIR {
			continue
		}
		inRPM[e.Name()] = e.Digest()
		if e.Flags()&rpmutils.RPMFILE_CONFIG != 0 {
			config += e.Name()
			if e.Flags()&rpmutils.RPMFILE_NOREPLACE == 0 {
				t.Errorf("an upgrade replaces %s", e.Name())
			}
		}
		if e.UserName() != "root" || e.Mode()&0o022 != 0 && e.Linkname() == "" {
			t.Errorf("%s belongs to %s, mode %o", e.Name(), e.UserName(), e.Mode())
		}
	}
	if config != "/etc/slurmgate/signer.yaml.template/etc/slurmgate/site.yaml.template" {
		t.Errorf("configuration: %s", config)
	}
	root := t.TempDir()
	output(t, "dpkg-deb", "-x", made.new.file(t, "*.deb"), root)
	inDeb := map[string]bool{}
	for line := range strings.Lines(output(t, "find", root, "!", "-type", "d", "-printf", "/%P\n")) {
		inDeb[strings.TrimSpace(line)] = true
	}
	here := []string{"/usr/share/doc/slurmgate/changelog.Debian.gz", "/usr/share/doc/slurmgate/copyright",
		"/usr/share/lintian/overrides/slurmgate", "/usr/share/zsh/vendor-completions/_slurmgate"}
	there := []string{"/usr/share/licenses/slurmgate/LICENSE", "/usr/share/zsh/site-functions/_slurmgate"}
	want := slices.DeleteFunc(append(slices.Collect(maps.Keys(inDeb)), there...), func(n string) bool { return slices.Contains(here, n) })
	got := slices.Sorted(maps.Keys(inRPM))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("rpm:\n%s\ndeb:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range []string{"/usr/bin/slurmgate", "/usr/lib/systemd/system/slurmgate.service",
		"/usr/lib/systemd/system/slurmgate-signer.service", "/etc/slurmgate/signer.yaml.template",
		"/usr/share/man/man1/slurmgate-signer.1.gz",
		"/usr/lib/systemd/system/slurmgate-gc.timer",
		"/usr/lib/systemd/system/slurmgate-backup.timer", "/usr/lib/sysusers.d/slurmgate.conf", "/usr/lib/tmpfiles.d/slurmgate.conf",
		"/usr/share/man/man1/slurmgate.1.gz", "/usr/share/man/man1/slurmgate-run.1.gz", "/usr/share/bash-completion/completions/slurmgate",
		"/usr/share/fish/vendor_completions.d/slurmgate.fish", "/usr/share/slurmgate/domains/genomics/policies.yaml",
		"/usr/share/slurmgate/site-configs/template.yaml"} {
		sum := strings.Fields(output(t, "sh", "-c", `sha256sum "$1"`, "sh", root+name))[0]
		if inRPM[name] != sum {
			t.Errorf("%s: %q in the rpm, %s in the deb", name, inRPM[name], sum)
		}
	}
	control := t.TempDir()
	output(t, "dpkg-deb", "-e", made.new.file(t, "*.deb"), control)
	for tag, name := range map[int]string{rpmutils.POSTIN: "postinst", rpmutils.PREUN: "prerm", rpmutils.POSTUN: "postrm"} {
		text, err := pkg.Header.GetString(tag)
		script, err2 := os.ReadFile(filepath.Join(control, name))
		if err != nil || err2 != nil || strings.TrimSpace(text) != strings.TrimSpace(string(script)) {
			t.Errorf("%s: %v %v\n%s", name, err, err2, text)
		}
	}
	if nevra, err := pkg.Header.GetNEVRA(); err != nil || nevra.String() != "slurmgate-0:1.10.0-1.x86_64.rpm" {
		t.Errorf("the package's name is %v (%v), want slurmgate-0:1.10.0-1.x86_64.rpm", nevra, err)
	}
	payload, err := pkg.PayloadReaderExtended()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, err = payload.Next(); err == nil; _, err = payload.Next() {
		seen++
	}
	if err != io.EOF || seen < len(inRPM) {
		t.Errorf("%d files in the payload: %v", seen, err)
	}
}
