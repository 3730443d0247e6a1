package app

import (
	"path/filepath"
	"strings"

	"slurmgate/blocks"
	"slurmgate/convert"
	"slurmgate/fault"
)

// What the operations on a folder of toolpacks answer.

// Says implements [blocks.Answer].
func (a CheckAnswer) Says() blocks.Document {
	if len(a.Tools) == 0 {
		return blocks.Document{
			blocks.Say("no tools: %v has no file whose name ends in .tool.yaml, and no manifest that lists a service worker", a.Dir),
			blocks.Next{fault.Do("tool init", "dir", a.Dir)},
		}
	}
	out := blocks.Document{blocks.Say("%v tools, no mistakes: %v", len(a.Tools), strings.Join(a.Tools, " ")), blocks.Warnings(a.Notes)}
	for _, name := range a.Missing {
		out = append(out, blocks.Next{fault.Do("image add", "name", name)})
	}
	return out
}

// Says implements [blocks.Answer].
func (a ConvertAnswer) Says() blocks.Document {
	var lines blocks.Lines
	add := func(what string, notes []convert.Note) {
		for _, n := range notes {
			at := n.File
			if n.Field != "" {
				at += ": " + n.Field
			}
			lines.Add("%v %v: %v", what, at, n.Text)
		}
	}
	add("kept   ", a.Kept)
	add("changed", a.Changed)
	for _, file := range a.Files {
		lines.Add("wrote %v", a.To+"/"+file)
	}
	return blocks.Document{lines, blocks.Next{fault.Do("tool check", "dir", a.To)}}
}

// Says implements [blocks.Answer].
func (a InitAnswer) Says() blocks.Document {
	dir, out := filepath.Dir(a.File), blocks.Document{blocks.Say("wrote %v", a.File)}
	if a.Manifest != "" {
		dir = filepath.Dir(dir)
		out = append(out, blocks.Say("add this line to the tools in %v, and raise its version:", filepath.Join(dir, "manifest.yaml")),
			blocks.Quote{Text: a.Manifest + "\n", Key: "manifest_line"})
	}
	return append(out, blocks.Next{fault.Do("tool check", "dir", dir)})
}
