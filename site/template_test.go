package site

import (
	"cmp"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/policy"
	"slurmgate/policy/yamldoc"
)

var update = flag.Bool("update", false, "write the templates of site-configs anew")

// The template has each setting's default, and above it the comment and the bounds that the setting has in this package.
func TestTemplateHasTheSettings(t *testing.T) {
	compareTemplate(t, "template.yaml", func(have string) string { return withSettings(t, have) })
}

// compareTemplate compares a template with what make returns for its text.
func compareTemplate(t *testing.T, name string, make func(have string) string) {
	t.Helper()
	file := examples + "/" + name
	have, err := os.ReadFile(file)
	must(t, err)
	want := make(strings.TrimSuffix(string(have), "\n")) + "\n"
	if *update {
		must(t, os.WriteFile(file, []byte(want), 0o644))
	} else if diff := gocmp.Diff(strings.Split(want, "\n"), strings.Split(string(have), "\n")); diff != "" {
		t.Errorf("%s differs from the settings; write it anew with go test ./site -run %s -update:\n%s", file, t.Name(), diff)
	}
}

// The template of a policy has each setting with its comment, its bounds and its default. Without what is commented out, and with it,
// the template is valid; without, it means the policy of a file that leaves out everything.
func TestTemplateOfPolicies(t *testing.T) {
	text := strings.Join(append([]string{
		"# Every setting of policies.yaml, the file of a domain that says what this gateway allows, with its default. The hash of the file, after",
		"# ${NAME} is replaced from the gateway's environment, is part of every run's identity: an edit makes new runs of old requests.",
		"# A list that is absent allows everything; an empty list allows nothing."},
		policyLines(fieldComments(t, "../policy"), reflect.TypeFor[policy.Policy](), "", false)...), "\n")
	compareTemplate(t, "policies.yaml.template", func(string) string { return text })
	live, err := policy.Parse("policies.yaml.template", []byte(text), os.LookupEnv)
	must(t, err)
	short, err := policy.Parse("policies.yaml.template", []byte("version: 1\n"), os.LookupEnv)
	must(t, err)
	ignore := cmpopts.IgnoreFields(policy.Policy{}, "Hash", "Snapshot")
	if diff := gocmp.Diff(short, live, ignore, cmpopts.IgnoreUnexported(policy.Policy{})); diff != "" {
		t.Errorf("the template's policy, compared with that of an almost empty file: %s", diff)
	}
	all := regexp.MustCompile(`(?m)^( *)# ( *(# .*|[a-z_]+:.*))$`).ReplaceAllString(text, "$1$2")
	if _, err := policy.Parse("policies.yaml.template", []byte(all), os.LookupEnv); err != nil {
		t.Errorf("the template with all that is commented out: %v", err)
	}
}

// policyLines writes the lines of a section of the template. A setting without a default is commented out, unless the section is.
func policyLines(comments map[string]string, section reflect.Type, indent string, commented bool) (lines []string) {
	known, order := yamldoc.Fields(section)
	for _, name := range order {
		f := section.FieldByIndex(known[name])
		inner, def, example, bounds := f.Type, f.Tag.Get("default"), f.Tag.Get("example"), ""
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if low := f.Tag.Get("min"); low != f.Tag.Get("max") {
			bounds = "  # " + low + " to " + f.Tag.Get("max")
		}
		if indent == "" {
			lines = append(lines, "")
		}
		for text := range strings.Lines(comments[section.Name()+"."+f.Name]) {
			lines = append(lines, indent+"# "+strings.TrimSpace(text))
		}
		begin, off := len(lines), !commented
		switch inner.Kind() {
		case reflect.Struct:
			below := policyLines(comments, inner, indent+"  ", commented)
			live := slices.ContainsFunc(below, func(line string) bool { return !strings.HasPrefix(strings.TrimSpace(line), "#") })
			if off = off && (!live || inner != f.Type || def == "absent"); off {
				below = policyLines(comments, inner, indent+"  ", true)
			}
			lines = append(append(lines, indent+name+":"), below...)
		case reflect.Slice:
			lines = append(lines, indent+name+": ["+example+"]")
		case reflect.Map:
			lines = append(lines, indent+name+": {"+example+"}"+bounds)
		case reflect.Bool:
			lines, off = append(lines, indent+name+": false"), false
		default:
			lines, off = append(lines, indent+name+": "+cmp.Or(def, example, "0")+bounds), off && def == "" && example != ""
		}
		for i := begin; off && i < len(lines); i++ {
			lines[i] = indent + "# " + strings.TrimPrefix(lines[i], indent)
		}
	}
	return lines
}

// withSettings puts the lines of each setting that has a comment or a default into the text of the template.
func withSettings(t *testing.T, text string) string {
	lines, comments := strings.Split(text, "\n"), fieldComments(t, ".")
	var walk func(section string, v reflect.Type)
	walk = func(section string, v reflect.Type) {
		known, order := yamldoc.Fields(v)
		after := section // a new setting comes after it
		for _, name := range order {
			f, at := v.FieldByIndex(known[name]), strings.TrimPrefix(section+"."+name, ".")
			comment := comments[v.Name()+"."+f.Name]
			if form := strings.TrimSuffix(f.Tag.Get("is"), "?"); form != "" && forms[form].ok == nil {
				t.Errorf("%s has the tag is:%q, want the name of a form", at, form)
			}
			switch {
			case f.Type.Kind() == reflect.Struct:
				walk(at, f.Type)
			case f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct:
				walk(at, f.Type.Elem())
			case comment != "" || f.Tag.Get("default") != "":
				lines = withSetting(lines, linesOf(t, lines), at, after, comment, f)
			}
			if _, shown := linesOf(t, lines)[at]; shown {
				after = at
			}
		}
	}
	walk("", reflect.TypeFor[Site]())
	return strings.Join(lines, "\n")
}

func withSetting(lines []string, shown map[string]int, at, after, comment string, f reflect.StructField) []string {
	indent, name := strings.Repeat("  ", strings.Count(at, ".")), at[strings.LastIndexByte(at, '.')+1:]
	end, value := shown[after]+1, map[reflect.Kind]string{reflect.String: `""`, reflect.Slice: "[]", reflect.Bool: "false"}[f.Type.Kind()]
	begin := end
	if line, is := shown[at]; is {
		indent, _, _ = strings.Cut(lines[line], name+":")
		_, value, _ = strings.Cut(lines[line], ": ")
		value, _, _ = strings.Cut(value, "  # ")
		begin, end = line, line+1
	}
	if def := f.Tag.Get("default"); def != "" {
		if value = def; f.Type.Kind() == reflect.Slice {
			value = "[" + strings.ReplaceAll(def, ",", ", ") + "]"
		}
	}
	value = indent + name + ": " + cmp.Or(value, "0")
	bounds := ""
	if low := f.Tag.Get("min"); low != "" {
		bounds = low + " to " + f.Tag.Get("max")
	}
	if comment == "" {
		if bounds != "" {
			value += "  # " + bounds
		}
		return slices.Replace(lines, begin, end, value)
	}
	for begin < end && strings.HasPrefix(lines[begin-1], indent+"#") {
		begin--
	}
	above := strings.Split(strings.TrimSpace(comment), "\n")
	if bounds != "" {
		above[len(above)-1] += " " + bounds + "."
	}
	for i, text := range above {
		above[i] = strings.TrimRight(indent+"# "+text, " ")
	}
	return slices.Replace(lines, begin, end, append(above, value)...)
}

// fieldComments reads the comments above the fields of the structs of a package, by TYPE.FIELD.
func fieldComments(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	files, err := filepath.Glob(dir + "/*.go")
	must(t, err)
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		must(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							out[spec.Name.Name+"."+name.Name] = field.Doc.Text()
						}
					}
				}
			}
			return true
		})
	}
	return out
}

// linesOf returns the lines, from 0, of the fields of the template, including those of its commented-out sections.
func linesOf(t *testing.T, lines []string) map[string]int {
	var doc yaml.Node
	must(t, yaml.Unmarshal([]byte(uncommented(strings.Join(lines, "\n"), "caller|module")), &doc))
	out := map[string]int{}
	var walk func(at string, n *yaml.Node)
	walk = func(at string, n *yaml.Node) {
		for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			field := strings.TrimPrefix(at+"."+n.Content[i].Value, ".")
			out[field] = n.Content[i].Line - 1
			walk(field, n.Content[i+1])
		}
	}
	walk("", doc.Content[0])
	return out
}
