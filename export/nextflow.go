package export

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"slurmgate/plan"
	"slurmgate/shell"
)

//go:embed main.nf.tmpl
var moduleText string

//go:embed nextflow.config.tmpl
var configText string

var (
	moduleTemplate = template.Must(template.New("main.nf").Parse(moduleText))
	configTemplate = template.Must(template.New("nextflow.config").Parse(configText))
)

// manyFiles is from how many inputs on the module stages their folder instead of each: a Groovy call has at most 255 arguments.
const manyFiles = 64

// module makes the Nextflow module that repeats a run: main.nf, nextflow.config and meta.yml. A worker's call has none, because the worker
// is not in the archive.
func module(r Run, p plan.Params) (map[string][]byte, error) {
	c, digest := p.Spec.Execution.Command, p.Spec.ImageDigest()
	m := map[string]any{"RunID": r.RunID, "Tool": r.ToolID + " " + r.ToolVersion, "Digest": digest, "Process": processName(r.ToolName),
		"CPUs": p.Spec.Resources.CPUs, "MemMB": p.Spec.Resources.MemMB, "Seconds": p.Spec.Resources.TimeLimitSeconds,
		"Inputs": len(p.Spec.IO.Inputs) > 0, "Command": groovyScript(command(c)), "Stub": groovyScript(stub(p.Spec.IO.Outputs)),
		"Description": groovyText("Repeats " + r.RunID + ", a run of " + r.ToolID), "Outputs": []string{}, "CheckOutputs": ""}
	if n := p.Spec.Resources.GPUs; n != nil {
		m["GPUs"] = *n
		if t := p.Spec.Resources.GPUType; t != nil {
			m["GPUType"] = groovyText(*t)
		}
	}
	if asked := p.Tool.Asked(); len(asked) > 0 {
		var names []string
		for _, b := range asked {
			names = append(names, b.Name+" "+b.Version)
		}
		m["Binds"] = true
		m["BindsText"] = groovyText("set --binds to the --bind options for the folders of the site that the tool reads: " +
			strings.Join(names, ", "))
	}
	stage(m, p.Spec.IO.Inputs)
	if len(p.Spec.IO.Outputs) <= manyFiles {
		var list []string
		for i, o := range p.Spec.IO.Outputs {
			list = append(list, fmt.Sprintf("path %s, glob: false, emit: output_%d // %s", groovyText(o.SrcRelpath), i, asciiText(o.Role)))
		}
		m["Outputs"] = list
	}
	if r.succeeded() {
		var sums, folders [][2]string
		for _, o := range r.Outputs {
			if o.Type == plan.Directory {
				folders = append(folders, [2]string{o.SHA256, o.Relpath})
			} else {
				sums = append(sums, [2]string{o.SHA256, o.Relpath})
			}
		}
		m["CheckOutputs"] = groovyScript(check(sums, folders))
	}
	files := map[string][]byte{"nextflow/meta.yml": meta(r, p)}
	for name, t := range map[string]*template.Template{"nextflow/main.nf": moduleTemplate, "nextflow/nextflow.config": configTemplate} {
		var b bytes.Buffer
		if err := t.Execute(&b, m); err != nil {
			return nil, err
		}
		files[name] = b.Bytes()
	}
	return files, nil
}

// stage adds how the inputs get into the task's folder: each under its own name, or all in their folder.
func stage(m map[string]any, inputs []plan.Input) {
	var sums, folders [][2]string
	var declared, files, args []string
	whole := len(inputs) > manyFiles
	for i, in := range inputs {
		if in.Directory {
			folders = append(folders, [2]string{in.ChecksumSHA256, in.DestRelpath})
		} else {
			sums = append(sums, [2]string{in.ChecksumSHA256, in.DestRelpath})
		}
		whole = whole || strings.ContainsAny(in.DestRelpath, "*?") // which stageAs would replace
		name := fmt.Sprintf("input_%d", i)
		declared = append(declared, fmt.Sprintf("path %s, stageAs: %s // %s", name, groovyText(in.DestRelpath), asciiText(in.Role)))
		files = append(files, fmt.Sprintf(`%s = file("${params.archive}/" + %s, glob: false, checkIfExists: true)`, name,
			groovyText(in.DestRelpath)))
		args = append(args, name)
	}
	if whole {
		declared, args = []string{"path inputs, stageAs: 'in'"}, []string{"inputs"}
		files = []string{`inputs = file("${params.archive}/in", glob: false, checkIfExists: true)`}
	}
	m["Stage"], m["Files"], m["Args"], m["CheckInputs"] = declared, files, strings.Join(args, ", "), groovyScript(check(sums, folders))
}

// command returns the lines that run the program as the job did: in the workspace at /work, its arguments as they are
// in the plan.
func command(c plan.Command) (lines []string) {
	folders, to := "mkdir -p out meta", ""
	if c.Stdout != nil {
		folders += " " + shellWord(path.Dir(*c.Stdout))
		to = " > " + shellWord(*c.Stdout)
	}
	lines = []string{"cd " + shellWord(c.Workdir), folders, "export HOME=/tmp"}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		lines = append(lines, "export "+name+"="+shellWord(c.Env[name]))
	}
	from := "/dev/null"
	if c.Stdin != nil {
		from = shellWord(*c.Stdin)
	}
	var programs []string
	for _, one := range c.Programs() {
		var argv []string
		for _, a := range one {
			argv = append(argv, shellWord(a))
		}
		programs = append(programs, "exec -- "+strings.Join(argv, " ")) // exec starts programs, never bash's own commands
	}
	programs[0] += " < " + from
	programs[len(programs)-1] += to
	if len(programs) == 1 {
		return append(lines, programs[0])
	}
	return append(lines, "set -o pipefail", "( "+strings.Join(programs, " ) | ( ")+" )")
}

// stub returns the lines that make empty outputs.
func stub(outputs []plan.Output) (lines []string) {
	for _, o := range outputs {
		if o.Type == plan.Directory {
			lines = append(lines, "mkdir -p "+shellWord(o.SrcRelpath))
		} else {
			lines = append(lines, "mkdir -p "+shellWord(path.Dir(o.SrcRelpath)), "touch "+shellWord(o.SrcRelpath))
		}
	}
	return append(lines, "mkdir -p out")
}

// check returns the lines that compare files and folders with their checksums.
func check(sums, folders [][2]string) (lines []string) {
	if len(folders) > 0 && len(sums) == 0 {
		return checkFolders(folders)
	}
	lines = append(checkFolders(folders), "{")
	for _, s := range sums {
		lines = append(lines, "printf '%s  %s\n' "+s[0]+" "+shellWord(s[1]))
	}
	return append(lines, "} | sha256sum --check --quiet -")
}

// processName returns the name of the process: letters, digits and underscores.
func processName(tool string) string {
	return "RUN_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, tool)
}

// meta returns meta.yml. Its texts are JSON strings, which YAML reads too.
func meta(r Run, p plan.Params) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "name: %s\ndescription: %s\nkeywords:\n  - slurmgate\ntools:\n  - %s:\n      version: %s\n",
		jsonText(strings.ToLower(processName(r.ToolName))), jsonText("Repeats "+r.RunID), jsonText(r.ToolID), jsonText(r.ToolVersion))
	b.WriteString("input:\n")
	for i, in := range p.Spec.IO.Inputs {
		fmt.Fprintf(&b, "  - input_%d:\n      type: file\n      description: %s\n      pattern: %s\n", i, jsonText(in.Role),
			jsonText(in.DestRelpath))
	}
	b.WriteString("output:\n")
	for i, o := range p.Spec.IO.Outputs {
		fmt.Fprintf(&b, "  - output_%d:\n      type: file\n      description: %s\n      pattern: %s\n", i, jsonText(o.Role),
			jsonText(o.SrcRelpath))
	}
	return b.Bytes()
}

func jsonText(s string) string {
	b, err := plan.Marshal(s)
	if err != nil {
		return strconv.QuoteToASCII(s) // it is not UTF-8, so it has no JSON
	}
	return string(b)
}

// asciiText returns a text for a comment.
func asciiText(s string) string { return strings.Trim(strconv.QuoteToASCII(s), `"`) }

// shellWord quotes a word for bash on one line: Nextflow strips common indentation from scripts, which must not reach into an argument.
func shellWord(s string) string { return shell.QuoteASCII(s) }

// groovyText returns a text as a Groovy string in single quotes, in which nothing is interpolated.
func groovyText(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		case r < ' ' || r > '~':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return "'" + b.String() + "'"
}

// groovyScript returns a script as the body of a Groovy string in three single quotes.
func groovyScript(lines []string) string {
	text := strings.Join(lines, "\n    ")
	text = strings.ReplaceAll(text, `\`, `\\`)
	return strings.ReplaceAll(text, "'", `\'`)
}
