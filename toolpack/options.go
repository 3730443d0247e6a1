package toolpack

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"slurmgate/plan"
	"slurmgate/policy/programs"
	"slurmgate/toolpack/jinja"
)

// Notes lists what is not wrong with a pack but lets a caller's text do more than its author may have meant: text that a program can
// take for an option, for a file of arguments (@FILE) or for a plug-in (+NAME), and text among the arguments of a program that runs code
// from files.
//
// Text that begins with - is refused when the tool is called ([Pack.render]); the note is for callers, who should see the rule in the
// schema.
func (p *Pack) Notes() (notes []string) {
	for _, one := range p.programs {
		notes = append(notes, p.notesOn(one)...)
	}
	return notes
}

func (p *Pack) notesOn(one program) (notes []string) {
	program := programs.Base(one.name())
	if at := one.callersScript(); at != "" && programs.RunsFirst(program) {
		notes = append(notes, fmt.Sprintf("%s: %s gives %s a file of the caller's to run, so callers run any code in this "+
			"container; "+
			"put the script into the image", p.ID(), at, program))
	}
	last, runs := false, programs.RunsFiles(program)
	for i, e := range one.words {
		item := p.callersItem(e)
		for j, t := range e.args {
			if t == nil || t.Literal() {
				last = last || i > 0 && !e.fragment && e.texts[j] == "--"
				continue
			}
			uses := t.Uses()
			if item != "" { // it is a text of the caller's too
				uses = append(uses, jinja.Use{Object: objParams, Name: item})
			}
			for _, u := range uses {
				prop := p.in.props[u.Name]
				if u.Object != objParams || !prop.free() {
					continue
				}
				if runs {
					notes = append(notes, fmt.Sprintf("%s: %s gives the caller's %q to %s, which runs code from files and arguments; "+
						"use an enum, or a program of the tool's own", p.ID(), e.at(j), u.Name, program))
					break
				}
				first := t.First()
				if last || t.Begins() || first != nil && (first.Object != objParams || first.Name != u.Name) {
					continue
				}
				if u.Name == item && prop.items != nil {
					prop = *prop.items
				}
				if found := prop.begins("-@+"); found != "" {
					notes = append(notes, fmt.Sprintf("%s: %s begins with the caller's %q, which may begin with %s: the program "+
						"may take it for an option, a file of arguments or a plug-in; write -- before it or a prefix such as --%[3]s=, or give it "+
						"a pattern such as ^[^-@+]", p.ID(), e.at(j), u.Name, strings.Join(strings.Split(found, ""), " or ")))
					break
				}
			}
		}
	}
	return notes
}

// callersScript returns the field of the first argument that is no option, if that is the path of an input; else "".
func (p program) callersScript() string {
	for i, e := range p.words {
		for j, t := range e.args {
			text := e.texts[j]
			if i == 0 || t == nil || strings.HasPrefix(text, "-") {
				continue
			}
			if e.each != nil && strings.HasPrefix(text, "{{") && slices.ContainsFunc(e.each.Uses(), ofInputs) {
				return e.at(j)
			}
			if first := t.First(); first != nil && first.Object == objInputs || strings.HasPrefix(text, plan.Workdir+"/in/") {
				return e.at(j)
			}
			if !e.fragment {
				return ""
			}
		}
	}
	return ""
}

func ofInputs(u jinja.Use) bool { return u.Object == objInputs }

// begins returns those of some characters that a value may begin with.
func (p property) begins(characters string) (found string) {
	for _, c := range characters {
		ok := true
		for _, pattern := range p.patterns {
			ok = ok && mayBegin(pattern, c)
		}
		if ok {
			found += string(c)
		}
	}
	return found
}

// mayBegin reports whether a text that begins with c may match a pattern. It errs on the side of yes.
func mayBegin(pattern string, c rune) bool {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return true
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return true
	}
	seen := map[[2]uint32]bool{} // instruction, and 1 behind the beginning of the text
	var reach func(pc, anchored uint32) bool
	reach = func(pc, anchored uint32) bool {
		at := [2]uint32{pc, anchored}
		if seen[at] {
			return false
		}
		seen[at] = true
		switch in := &prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			return reach(in.Out, anchored) || reach(in.Arg, anchored)
		case syntax.InstCapture, syntax.InstNop:
			return reach(in.Out, anchored)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&syntax.EmptyBeginText != 0 {
				anchored = 1
			}
			// The text is not empty, so its end is not at its beginning.
			return (anchored == 0 || syntax.EmptyOp(in.Arg)&syntax.EmptyEndText == 0) && reach(in.Out, anchored)
		case syntax.InstFail:
			return false
		case syntax.InstMatch:
			return true // whatever follows
		default:
			return anchored == 0 || in.MatchRune(c) // without an anchor it may match further on
		}
	}
	return reach(uint32(prog.Start), 0)
}
