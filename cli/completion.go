package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion is the verb that prints the completion script of a shell.
type Completion struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// The scripts ask the program itself, which knows its verbs and options from kong: nothing to keep up to date, and no library for it. A
// first line ":files" means file names.
var completionScripts = map[string]string{
	"bash": `# slurmgate completion for bash. In ~/.bashrc: source <(slurmgate completion bash)
_slurmgate() {
  local words
  mapfile -t words < <(command slurmgate complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${words[0]} == :files ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
  else
    mapfile -t COMPREPLY < <(compgen -W "${words[*]%%$'\t'*}" -- "${COMP_WORDS[COMP_CWORD]}")
  fi
}
complete -F _slurmgate slurmgate
`,
	"zsh": `#compdef slurmgate
# slurmgate completion for zsh. In ~/.zshrc, after compinit: source <(slurmgate completion zsh)
_slurmgate() {
  local -a lines described
  lines=("${(@f)$(command slurmgate complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ ${lines[1]} == :files ]]; then
    _files
    return
  fi
  local line
  for line in $lines; do
    described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  _describe slurmgate described
}
# A package installs this file where zsh loads it as the function _slurmgate.
if [[ ${funcstack[1]} == _slurmgate ]]; then
  _slurmgate
else
  compdef _slurmgate slurmgate
fi
`,
	"fish": `# slurmgate completion for fish. In ~/.config/fish/config.fish: slurmgate completion fish | source
function __slurmgate_words
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l lines (command slurmgate complete-words -- $words 2>/dev/null)
    if test "$lines[1]" = ":files"
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $lines
    end
end
complete -c slurmgate -f -a '(__slurmgate_words)'
`,
}

// Run prints the script.
func (c Completion) Run(a *Shell) error {
	_, err := fmt.Fprint(a.Out, completionScripts[c.Shell])
	return err
}

// CompleteWords is the verb that those scripts call.
type CompleteWords struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words so far; the last one is being typed."`
}

// Run prints what may come next, one per line, with its help after a tab.
func (c CompleteWords) Run(a *Shell, model *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	printLines(a.Out, "", nextWords(model, words))
	return nil
}

// nextWords lists what may come next: kong follows the words before the one that is being typed.
func nextWords(k *kong.Kong, words []string) []string {
	typed := ""
	if n := len(words); n > 0 {
		words, typed = words[:n-1], words[n-1]
	}
	at, err := kong.Trace(k, words)
	if err != nil {
		return nil
	}
	node, flags, position := cmp.Or(at.Selected(), k.Model.Node), at.Flags(), 0
	if p := node.Parent; p != nil && p.DefaultCmd == node && !slices.Contains(words, node.Name) {
		node = p // kong chose the default by itself
	}
	for _, p := range at.Path {
		if p.Positional != nil {
			position++
		}
	}
	if n := len(words); n > 0 && !strings.Contains(words[n-1], "=") {
		if f := flagOf(flags, words[n-1]); f != nil && !f.IsBool() && !f.IsCounter() {
			return valuesOf(f.Value)
		}
	}
	if name, _, given := strings.Cut(typed, "="); given && strings.HasPrefix(typed, "--") {
		var out []string
		if f := flagOf(flags, name); f != nil && f.Enum != "" {
			for _, v := range valuesOf(f.Value) {
				out = append(out, name+"="+v)
			}
		}
		return out
	}
	if strings.HasPrefix(typed, "-") {
		return optionsOf(node, flags, typed)
	}
	return wordsAfter(node, typed, position)
}

// wordsAfter lists the verbs below a node, or the values of its next argument.
func wordsAfter(node *kong.Node, typed string, position int) (out []string) {
	for _, c := range node.Children {
		if !c.Hidden && strings.HasPrefix(c.Name, typed) {
			out = append(out, c.Name+"\t"+c.Help)
		}
	}
	if d := node.DefaultCmd; len(out) == 0 && d != nil && len(d.Positional) > 0 {
		node = d
	}
	if len(out) == 0 && position < len(node.Positional) {
		return valuesOf(node.Positional[position])
	}
	return out
}

func optionsOf(node *kong.Node, flags []*kong.Flag, typed string) (out []string) {
	if d := node.DefaultCmd; d != nil {
		flags = append(flags, d.Flags...)
	}
	for _, f := range flags {
		if name := "--" + f.Name; !f.Hidden && strings.HasPrefix(name, typed) {
			out = append(out, name+"\t"+f.Help)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func flagOf(flags []*kong.Flag, word string) *kong.Flag {
	name, _, _ := strings.Cut(word, "=")
	for _, f := range flags {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// valuesOf lists the values that an option or argument may have: its enum, files if it is a path, else nothing.
func valuesOf(v *kong.Value) (out []string) {
	switch {
	case v.Enum != "":
		out = slices.DeleteFunc(strings.Split(v.Enum, ","), func(w string) bool { return w == "" })
	case v.Tag != nil && v.Tag.Type == "path", slices.Contains([]string{"plan", "file", "dir", "input"}, v.Name):
		out = []string{":files"} // names of files
	}
	return out
}
