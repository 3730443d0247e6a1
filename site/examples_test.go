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
			if c.FarFiles() && c.Storage.SFTP.Host != c.Slurm.SSH.Host {
				data = " (dtn)"
			}
			combinations[c.Slurm.Transport+"+"+c.Storage.Transport+data] = true
		}
		if strings.HasSuffix(file, "/transports/site.yaml") && s.Clusters()[0].Slurm.Transport == s.Clusters()[1].Slurm.Transport {
			t.Error("the clusters of transports/ have one transport")
		}
	}
	if want := []string{"cli+shared", "ssh+sftp", "ssh+sftp (dtn)", "ssh+shared"}; len(combinations) != len(want) {
		t.Errorf("there is an example for each combination, %v: %v", want, combinations)
	}
}

// The template is the manual of the site file: it names every field, explains it in a comment above, and shows
// the default.
func TestTemplateNamesEveryField(t *testing.T) {
	data, err := os.ReadFile(examples + "/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	live, err := Load(examples + "/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// With the commented-out examples in place of what they replace, the file is valid too.
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
	text = regexp.MustCompile(`(?m)^  # ((?:ssh|login|sftp|module|binds|roots|peers|oidc|projects|callers|patterns):\n)((?:  #   .*\n)+)`).
		ReplaceAllStringFunc(text, func(s string) string {
			return strings.ReplaceAll(s, "  # ", "  ")
		})
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
		_, inOther := other.at[one]
		if _, inSecond := other.at[strings.ReplaceAll(field, "[]", "[1]")]; !inLive && !inOther && !inSecond {
			t.Errorf("the template does not show %s", field)
		}
	}
	if got, want := len(fields()), 100; got < want {
		t.Errorf("%d fields found, at least %d expected: is the list complete?", got, want)
	}
	// What it calls defaults are the defaults.
	made, err := New(Site{Version: live.Version, Name: live.Name, Gateway: Gateway{StateDir: live.Gateway.StateDir}, DomainDir: live.DomainDir,
		Slurm:   Slurm{DefaultPartition: live.Slurm.DefaultPartition, DefaultAccount: live.Slurm.DefaultAccount},
		Storage: Storage{RunsDir: live.Storage.RunsDir, ImageStore: live.Storage.ImageStore}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, live, ignorePrivate); diff != "" {
		t.Error(diff)
	}
}

// explainedAt is slurm.ssh for the fields of other SSH servers.
func explainedAt(field string) string {
	other := regexp.MustCompile(`^(storage\.sftp|(slurm\.ssh|storage\.sftp)\.jump\[\])\.(port|user|known_hosts|known_hosts\[\]|key|certificate|agent|jump|host)$`)
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
			known, order := keysOf(t)
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
