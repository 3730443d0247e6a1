package cli

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/shell"
)

// special is a step whose command is not the verb of its operation, or has words that the step does not have.
type special struct {
	verb, with string     // it is for steps with the argument with; empty: for all
	as         fault.Step // the command, with arguments besides those of the step
}

func specials() []special {
	return []special{
		{"slurm.job.collect", "wait_seconds", fault.Do("wait")},
		{"collect", "", fault.Do("collect", "to", "FOLDER")},
		{"batch.status", "wait_seconds", fault.Do("batch wait")},
		{"batch.rows", "state", fault.Do("batch status", "samples", true)},
		{"batch.rows", "outputs", fault.Do("batch collect", "to", "FOLDER")},
		{"artifact.import", "text", fault.Do("artifact import", "path", "-")},
		{"artifact.remove", "", fault.Do("artifact rm", "reason", "REASON")},
		{"artifact.preview.text", "", fault.Do("artifact preview", "as", "text")},
		{"artifact.preview.table", "", fault.Do("artifact preview", "as", "table")},
		{"artifact.preview.image", "", fault.Do("artifact preview", "as", "image")},
		{"artifact save", "", fault.Do("artifact get", "output", "FILE")},
		{"artifact save preview", "", fault.Do("artifact preview", "output", "FILE")},
	}
}

// operations lists what the operations of every gateway declare, once for all steps.
var operations = sync.OnceValue(func() []app.Operation { return new(app.Gateway).Operations() })

// operationOf finds the operation of a step by its id or its verb; nil: not found.
func operationOf(verb string) *app.Operation {
	all := operations()
	for i := range all {
		if o := &all[i]; o.ID == verb || o.Verb == verb {
			return o
		}
	}
	return nil
}

// CommandLine writes a step as a command line. It is empty for a verb that is neither an operation's nor the shell's, as the id of a
// toolpack.
func CommandLine(s fault.Step) string {
	command, args := s.Verb, s.Args
	o := operationOf(s.Verb)
	if o != nil {
		command = o.Verb
	}
	for _, x := range specials() {
		if _, has := args[x.with]; x.verb == s.Verb && (x.with == "" || has) {
			command, args = x.as.Verb, x.as.Args
			maps.Copy(args, s.Args)
			break
		}
	}
	node := commandNode(command)
	if node == nil {
		return ""
	}
	line := "slurmgate " + command
	for _, p := range node.Positional {
		name := argumentOf(p)
		if _, has := args[name+"_id"]; has || o != nil && takesID(*o, name) {
			name += "_id"
		}
		if v, has := args[name]; has {
			line += " " + shell.Quote(fmt.Sprint(v))
		} else if p.Required {
			line += " " + strings.ToUpper(name)
		}
	}
	for _, f := range node.Flags {
		name := "--" + f.Name
		if f.Short != 0 {
			name = "-" + string(f.Short)
		}
		switch v, has := args[argumentOf(f.Value)]; {
		case !has:
		case !f.IsBool():
			line += " " + name + " " + shell.Quote(fmt.Sprint(v))
		case v == true:
			line += " " + name
		}
	}
	return line
}

// commandNode finds a command in the grammar; nil: not found. Only the verb that it begins with is parsed.
func commandNode(command string) *kong.Node {
	verb, rest, _ := strings.Cut(command, " ")
	for _, f := range slices.Concat(reflect.VisibleFields(reflect.TypeFor[Verbs]()), reflect.VisibleFields(reflect.TypeFor[SiteVerbs]())) {
		if cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name)) != verb {
			continue
		}
		parser, err := kong.New(reflect.New(f.Type).Interface(), kong.NoDefaultHelp())
		if err != nil {
			return nil
		}
		node := parser.Model.Node
		for _, word := range strings.Fields(rest) {
			i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
			if i < 0 {
				return nil
			}
			node = node.Children[i]
		}
		return node
	}
	return nil
}

// argumentOf names the argument of an operation that a value of the command line is: its tag json, else its own name.
func argumentOf(v *kong.Value) string {
	name, _, _ := strings.Cut(v.Tag.Get("json"), ",")
	return cmp.Or(name, strings.ReplaceAll(v.Name, "-", "_"))
}

// takesID reports whether an operation takes the id, or ids, of what an argument of the command line names.
func takesID(o app.Operation, name string) bool {
	schema := app.SchemaOfArgs(o.Tool().Input)
	_, one := schema.Property(name + "_id")
	_, several := schema.Property(name + "_ids")
	return one || several
}

// FromChat returns how a step is made from a chat: as the call in, or where a chat has no tool for it as a command line
// by [CommandLine]. own: any user of the gateway may do it.
func FromChat(s fault.Step) (in fault.Step, line string, own bool) {
	o := operationOf(s.Verb)
	if o == nil { // a command that calls several operations, or a tool of the domain
		return s, CommandLine(s), true
	}
	if o.ID == s.Verb && (o.Chat.Has || o.Chat.Instead != "") {
		return fault.Step{Verb: cmp.Or(o.Chat.Instead, o.ID), Args: s.Args}, "", true
	}
	return s, CommandLine(s), o.UsersOwn()
}

// Words writes steps for the shell.
func Words(steps []fault.Step) string {
	return fault.Words(func(s fault.Step) string {
		if s.Verb == "help" {
			return "slurmgate --help"
		}
		if line := CommandLine(s); line != "" || !strings.Contains(s.Verb, ".") {
			return cmp.Or(line, "slurmgate "+s.Verb)
		}
		return "slurmgate run " + s.Verb
	})(steps)
}
