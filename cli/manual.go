package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// ManPages is the verb that writes the manual pages for packages.
type ManPages struct {
	To   string    `required:"" help:"Folder to write the pages to." placeholder:"DIR"`
	Date time.Time `required:"" format:"2006-01-02" help:"Date of the pages." placeholder:"YYYY-MM-DD"`
}

// Run writes one file for each page.
func (m ManPages) Run(a *Shell, model *kong.Kong) error {
	for name, text := range Manual(model.Model, a.Build.Version, m.Date) {
		if err := os.WriteFile(filepath.Join(m.To, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// exitStatuses explains the exit statuses. docs/reference/exit-statuses.md has the same table.
var exitStatuses = []struct {
	status  int
	meaning string
}{
	{0, "done"},
	{1, "an internal error of slurmgate, or `doctor` found a fault"},
	{2, "the request breaks rules; the message names all of them"},
	{3, "not found"},
	{4, "not allowed: denied by policy, missing capability or approval, or not your gateway"},
	{5, "conflict with what is recorded: another gateway uses the ledger, the target file exists, the run is not in " +
		"doubt, the idempotency key was used for another call"},
	{6, "the run failed or was cancelled, also when `submit`, `run` or `retry` finds that at once, or repeats such a " +
		"run; or you stopped waiting. `get` is only a look: 0"},
	{7, "still running after `--timeout`, or waiting for a person"},
	{8, "Slurm, a filesystem or the gateway did not answer; retrying may help. `doctor`: no fault was found, but a " +
		"check could not look"},
	{9, "it is unknown whether the call had its effect; look before you repeat it"},
	{10, "`verify`: the archive cannot be judged, so it is not called intact"},
	{78, "`serve`: it cannot start as it is configured"},
}

// Manual returns the manual pages by file name: slurmgate.1, and one page for each verb that help shows. They are made
// only from kong's model of the command line, so they need no upkeep.
func Manual(app *kong.Application, version string, date time.Time) map[string]string {
	var verbs []*kong.Node
	for _, v := range app.Children {
		if !v.Hidden {
			verbs = append(verbs, v)
		}
	}
	title := fmt.Sprintf("%s %q %q", date.Format(time.DateOnly), "slurmgate "+version, "slurmgate manual")
	pages := map[string]string{app.Name + ".1": overview(app, verbs, title)}
	for _, v := range verbs {
		pages[app.Name+"-"+v.Name+".1"] = verbPage(app, v, title)
	}
	return pages
}

func overview(app *kong.Application, verbs []*kong.Node, title string) string {
	p := newPage(app.Name, title)
	p.section("NAME")
	p.text("%s - Slurm submission gateway", app.Name)
	p.section("SYNOPSIS")
	p.line(".B %s", escape(app.Name))
	p.line(".I verb")
	p.text("[flags]")
	p.section("DESCRIPTION")
	p.text("%s", app.Help)
	p.line(".PP")
	p.text("A verb is a call to the gateway that runs on this host. If none runs, and the site file names no gateway.service, the owner of "+
		"gateway.state_dir becomes the gateway while the verb runs; %s serve runs it until stopped.", app.Name)
	p.section("VERBS")
	for _, v := range verbs {
		p.item(fmt.Sprintf("%s-%s(1)", app.Name, v.Name), v.Help)
	}
	p.section("OPTIONS OF EVERY VERB")
	p.flags(app.Flags)
	p.section("ENVIRONMENT")
	for _, f := range app.Flags {
		for _, env := range f.Envs {
			p.item(env, "The default of --"+f.Name+".")
		}
	}
	p.section("EXIT STATUS")
	for _, s := range exitStatuses {
		p.item(fmt.Sprint(s.status), strings.ReplaceAll(s.meaning, "`", ""))
	}
	p.section("FILES")
	for _, f := range app.Flags {
		if strings.HasPrefix(f.Default, "/") {
			p.item(f.Default, f.Help)
		}
	}
	p.section("SEE ALSO")
	p.text("sbatch(1), squeue(1), apptainer(1)")
	return p.String()
}

func verbPage(app *kong.Application, verb *kong.Node, title string) string {
	name := app.Name + "-" + verb.Name
	p := newPage(name, title)
	p.section("NAME")
	short, _, _ := strings.Cut(verb.Help, ". ")
	p.text("%s - %s", name, strings.TrimSuffix(short, "."))
	p.section("SYNOPSIS")
	commands := verb.Leaves(true)
	if len(commands) == 0 {
		commands = []*kong.Node{verb}
	}
	for i, c := range commands {
		if i > 0 {
			p.line(".br")
		}
		p.line(".B %s", escape(app.Name+" "+c.Summary()))
	}
	p.section("DESCRIPTION")
	p.text("%s", verb.Help)
	if commands[0] == verb {
		p.body(verb)
	} else {
		p.section("COMMANDS")
		for _, c := range commands {
			p.line(".SS %s", quote(c.Path()))
			p.text("%s", c.Help)
			p.body(c)
		}
	}
	p.section("SEE ALSO")
	p.line(".BR %s (1)", escape(app.Name))
	p.text("has the options of every verb and the exit statuses.")
	return p.String()
}

// page is a page in the macros of man(7).
type page struct{ strings.Builder }

// newPage begins a page. Its words are not hyphenated: they are names and options to copy.
func newPage(name, title string) *page {
	p := &page{}
	p.line(".TH %s 1 %s\n.nh", strings.ToUpper(name), title)
	return p
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) section(name string) { p.line(".SH %s", quote(name)) }

// text adds words that are no macro; each sentence is on a separate line.
func (p *page) text(format string, args ...any) {
	p.line("%s", sentenceEnd.ReplaceAllString(escape(fmt.Sprintf(format, args...)), "$1\n$2"))
}

var sentenceEnd = regexp.MustCompile(`([.]) ([A-Z])`)

func (p *page) item(tag, text string) {
	p.line(".TP\n.B %s", escape(tag))
	p.text("%s", text)
}

// body adds the arguments and options of one command.
func (p *page) body(n *kong.Node) {
	for _, a := range n.Positional {
		p.item(a.Summary(), valueText(a))
	}
	p.flags(n.Flags)
}

func (p *page) flags(flags []*kong.Flag) {
	for _, f := range flags {
		if !f.Hidden {
			p.item(strings.NewReplacer(`"`, "", "…,...", "…").Replace(f.String()), valueText(f.Value))
		}
	}
}

// valueText returns the help of a value, with its allowed values and its default.
func valueText(v *kong.Value) string {
	text := v.Help
	if choice := strings.Trim(v.Enum, ","); choice != "" {
		text += " One of: " + strings.ReplaceAll(choice, ",", ", ") + "."
	}
	if v.HasDefault && v.Default != "" {
		text += " Default: " + v.Default + "."
	}
	return text
}

// quote makes one argument of a macro.
func quote(s string) string { return `"` + strings.ReplaceAll(escape(s), `"`, `\(dq`) + `"` }

// escape returns a text that troff prints unchanged: no macro, no hyphens in place of minus signs, and nothing but
// ASCII in the file.
func escape(s string) string {
	var b strings.Builder
	for _, line := range strings.SplitAfter(s, "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		for _, r := range line {
			switch {
			case r == '\\':
				b.WriteString(`\e`)
			case r == '-':
				b.WriteString(`\-`)
			case r > '~':
				fmt.Fprintf(&b, `\[u%04X]`, r)
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
