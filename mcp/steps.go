package mcp

import "slurmgate/fault"

// Reach returns how a step is made from a chat: as the call in; or, where line is not empty, by a command line,
// because a chat has no tool for it. own: the user of the chat may run it, else an administrator.
type Reach func(s fault.Step) (in fault.Step, line string, own bool)

// Words returns what writes steps as calls of a chat, and those it has no tool for as command lines.
func Words(reach Reach) func([]fault.Step) string {
	return fault.Words(func(s fault.Step) string {
		in, line, own := reach(s)
		switch {
		case line == "":
			return callText(in)
		case own:
			return "the user can run `" + line + "`"
		}
		return "ask an administrator to run `" + line + "`"
	})
}

// callText writes a step that a chat can take.
func callText(s fault.Step) string {
	if len(s.Args) == 0 {
		return nameOf(s.Verb)
	}
	return nameOf(s.Verb) + " " + s.JSON()
}

// inChat reports whether a chat can take the step itself.
func (r Reach) inChat(s fault.Step) bool {
	_, line, _ := r(s)
	return line == ""
}
