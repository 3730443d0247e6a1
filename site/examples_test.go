package site

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/policy/yamldoc"
)

const examples = "../site-configs"

// Each combination of transports has an example.
//
// proves SITE-01
func TestEveryExampleIsValid(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	files = append(files, examples+"/several/site.yaml", examples+"/transports/site.yaml")
	combinations := map[string]bool{}
	for _, file := range files {
		s, err := Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, c := range s.Clusters() {
			data := ""
			switch {
			case c.FarSlurm() && c.FarFiles() && c.Storage.SFTP.Host != c.Slurm.SSH.Host:
				data = " (dtn)"
			case c.OverREST() && c.FarFiles() && c.ShellHost() == nil:
				data = " (alone)"
			case c.AsCaller():
				data = " (caller)"
			}
			combinations[c.Slurm.Transport+"+"+c.Storage.Transport+data] = true
		}
		if strings.HasSuffix(file, "/transports/site.yaml") && s.Clusters()[0].Slurm.Transport == s.Clusters()[1].Slurm.Transport {
			t.Error("the clusters of transports/ have one transport")
		}
	}
	want := map[string]bool{"cli+shared": true, "ssh+sftp": true, "ssh+sftp (dtn)": true, "ssh+shared": true, "rest+shared": true,
		"rest+sftp": true, "rest+sftp (alone)": true, "cli+shared (caller)": true}
	if diff := cmp.Diff(want, combinations); diff != "" {
		t.Errorf("there is an example for each combination: %s", diff)
	}
}

// The template is the manual of the site file: it names every field, explains it in a comment above, and shows
// the default.
func TestTemplateNamesEveryField(t *testing.T) {
	data, err := os.ReadFile(examples + "/template.yaml")
	must(t, err)
	live, err := Load(examples + "/template.yaml")
	must(t, err)
	// With the commented-out examples in place of their alternatives, the file is valid too.
	text := string(data)
	text = strings.Replace(text, "  path: /usr/bin/apptainer\n", "", 1)
	text = strings.Replace(text, "  transport: cli\n", "  transport: ssh\n", 1)
	text = strings.Replace(text, "  transport: shared\n", "  transport: sftp\n", 1)
	text = strings.Replace(text, "  binds: []\n", "", 1)
	text = strings.Replace(text, "  roots: []\n", "", 1)
	text = strings.Replace(text, "  peers: []\n", "", 1)
	text = strings.Replace(text, "  projects: []\n", "", 1)
	text = strings.Replace(text, "  callers: []\n", "", 1)
	text = strings.Replace(text, "  oidc: []\n", "", 1)
	text = strings.Replace(text, "  patterns: []\n", "", 1)
	text = strings.Replace(text, "  receivers: []\n", "", 1)
	rest := strings.Replace(uncommented(string(data), "rest"), "  transport: cli\n", "  transport: rest\n", 1)
	overREST, err := Parse(examples+"/template.yaml", []byte(strings.Replace(rest, "  bin_dir: /usr/bin\n", "", 1)))
	must(t, err)
	asCaller := strings.Replace(uncommented(string(data), "caller"), "  run_as: self\n", "  run_as: caller\n", 1)
	asCaller = strings.Replace(asCaller, "  runs_dir: /shared/", "  runs_dir: /shared/{user}/", 1)
	callers, err := Parse(examples+"/template.yaml", []byte(asCaller))
	must(t, err)
	text = uncommented(text, "ssh|login|sftp|module|shared|binds|in_place|roots|peers|oidc|projects|callers|patterns|receivers")
	other, err := Parse(examples+"/template.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	several, err := Load(examples + "/several/site.yaml")
	if err != nil || !strings.Contains(text, "\n# sites: [") {
		t.Error("the template does not show sites", err)
	}
	for _, field := range fields() {
		field = explainedAt(field)
		one := strings.ReplaceAll(field, "[]", "[0]")
		if _, inSeveral := several.at[one]; inSeveral && strings.HasPrefix(one, "sites") {
			continue
		}
		_, inLive := live.at[one]
		if _, is := overREST.at[one]; is && strings.HasPrefix(one, "slurm.rest") {
			continue
		}
		if _, is := callers.at[one]; is && strings.HasPrefix(one, "slurm.caller") {
			continue
		}
		_, inOther := other.at[one]
		if _, inSecond := other.at[strings.ReplaceAll(field, "[]", "[1]")]; !inLive && !inOther && !inSecond {
			t.Errorf("the template does not show %s", field)
		}
	}
	if got, want := len(fields()), 100; got < want {
		t.Errorf("%d fields found, at least %d expected: is the list complete?", got, want)
	}
	// The values described as defaults are the defaults.
	made, err := New(Site{Version: live.Version, Name: live.Name, DomainDir: live.DomainDir,
		Gateway: Gateway{StateDir: live.Gateway.StateDir, Service: live.Gateway.Service},
		Slurm:   Slurm{DefaultPartition: live.Slurm.DefaultPartition, DefaultAccount: live.Slurm.DefaultAccount},
		Storage: Storage{RunsDir: live.Storage.RunsDir, ImageStore: live.Storage.ImageStore}})
	must(t, err)
	if diff := cmp.Diff(made, live, ignorePrivate); diff != "" {
		t.Error(diff)
	}
}

// uncommented returns a text with its commented-out sections of these names.
func uncommented(text, names string) string {
	return regexp.MustCompile(`(?m)^  # ((?:`+names+`):\n)((?:  #   .*\n)+)`).
		ReplaceAllStringFunc(text, func(s string) string { return strings.ReplaceAll("\n"+s, "\n  # ", "\n  ")[1:] })
}

// explainedAt returns the field of slurm.ssh that explains a field of another SSH server.
func explainedAt(field string) string {
	other := regexp.MustCompile(`^(storage\.sftp|(slurm\.ssh|storage\.sftp|slurm\.caller\.ssh)\.jump\[\])\.(port|user|known_hosts|known_hosts\[\]|key|certificate|agent|jump|host)$`)
	return other.ReplaceAllString(field, "slurm.ssh.$3")
}

// fields lists the path of every field of the site file, sections included, e.g. apptainer.binds[].source.
func fields() []string {
	var list []string
	var walk func(at string, t reflect.Type)
	walk = func(at string, t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(at, t.Elem())
		case reflect.Slice:
			walk(at+"[]", t.Elem())
		case reflect.Struct:
			known, order := yamldoc.Fields(t)
			for _, name := range order {
				path := strings.TrimPrefix(at+"."+name, ".")
				list = append(list, path)
				walk(path, t.FieldByIndex(known[name]).Type)
			}
		}
	}
	walk("", reflect.TypeFor[Site]())
	slices.Sort(list)
	return list
}
