// Package convert turns the tools of other systems into files of a domain package. It only reads and returns bytes; its caller opens
// and writes the files.
package convert

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/toolpack"
)

// File is a file by its path: slash-separated, relative to the folder that was given, or to the one the result is written to.
type File struct {
	Path string
	Data []byte
}

// Note describes the conversion of a part of a file.
type Note struct {
	File  string `json:"file"`  // the file that was read
	Field string `json:"field"` // empty for the whole file
	Text  string `json:"text"`
}

// Result is the result of a conversion. With any refusal there are no files.
type Result struct {
	Files    []File
	Starters []string // of Files: beginnings that an administrator changes; they take the place of none that is there
	Kept     []Note
	Changed  []Note          // with the reason, where it is not plain
	Refused  []fault.Problem // with the reason, and the remedy as hint
}

// conversion is a conversion under way. A converter reads in and reports through its methods.
type conversion struct {
	in []File
	Result
}

// sources are the converters by the system they read.
var sources = map[string]func(*conversion){
	"ax":        fromAX,
	"handshake": fromHandshake,
	"helixmcp":  fromHelixMCP,
	"ragx":      fromRagx,
}

// Sources returns the systems that files can be converted from, sorted.
func Sources() []string { return slices.Sorted(maps.Keys(sources)) }

// Convert turns files of another system into those of a domain package. It fails only for an unknown system and for
// nothing to convert; everything in a file that cannot be converted is in Refused.
func Convert(from string, in []File) (Result, error) {
	source, ok := sources[from]
	if !ok {
		return Result{}, fault.Invalid("", fault.Problem{Code: "CONVERT-FROM", Field: "from", Rule: "one of " + strings.Join(Sources(), ", "),
			Msg: `no converter reads files of "` + fault.Clip(from) + `"`})
	}
	c := &conversion{in: slices.Clone(in)}
	slices.SortFunc(c.in, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	c.in = slices.CompactFunc(c.in, func(a, b File) bool { return a.Path == b.Path && bytes.Equal(a.Data, b.Data) })
	for i := range c.in[:max(len(c.in)-1, 0)] {
		if c.in[i].Path == c.in[i+1].Path {
			c.refuse(fault.Problem{Code: "CONVERT-TWICE", File: c.in[i].Path, Rule: "each path once",
				Msg: "two folders have this file, with different content", Hint: "convert the folders one after the other"})
		}
	}
	source(c)
	if len(c.Files) == 0 && len(c.Refused) == 0 {
		return Result{}, fault.New(fault.NotFound, "nothing_to_convert", fmt.Sprintf("none of the %d files is one of %s", len(in), from)).
			WithNext("docs/tools/coming-from.md names the files each system has")
	}
	if len(c.Refused) > 0 {
		c.Files = nil
	}
	slices.SortFunc(c.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return c.Result, nil
}

// file finds a file of the input; ok is false for an unknown one.
func (c *conversion) file(rel string) (f File, ok bool) {
	i, ok := slices.BinarySearchFunc(c.in, rel, func(f File, rel string) int { return strings.Compare(f.Path, rel) })
	if !ok {
		return File{}, false
	}
	return c.in[i], true
}

// write adds a file to the result. Two files of one path are a refusal.
func (c *conversion) write(from, rel string, data []byte) {
	rel = path.Clean(rel)
	if slices.ContainsFunc(c.Files, func(f File) bool { return f.Path == rel }) {
		c.refuse(fault.Problem{Code: "CONVERT-TWICE", File: from, Rule: "each file of the result once",
			Msg: "another file becomes " + rel + ", too", Hint: "rename one of the two"})
		return
	}
	c.Files = append(c.Files, File{rel, data})
}

// starter adds a file that a domain needs and the other system does not have.
func (c *conversion) starter(rel, data string) {
	c.write("", rel, []byte(data))
	c.Starters = append(c.Starters, rel)
}

// What a domain begins with where nothing else is known.
const (
	starterPolicy = "version: 1\n"
	starterLock   = "version: 1\nimages: []\n"
)

func (c *conversion) keep(file, field, text string) { c.Kept = append(c.Kept, Note{file, field, text}) }

func (c *conversion) change(file, field, text string) {
	c.Changed = append(c.Changed, Note{file, field, text})
}

func (c *conversion) refuse(p ...fault.Problem) { c.Refused = append(c.Refused, p...) }

// judge checks the result with the loader, since what it refuses cannot be served. source returns the caller's file
// that a file was made of.
func (c *conversion) judge(source func(file string) string) {
	files := map[string][]byte{}
	for _, f := range c.Files {
		files[f.Path] = f.Data
	}
	for _, p := range toolpack.CheckFiles(files, func(string, []byte) error { return nil }) {
		p.File, p.Line, p.Column = source(p.File), 0, 0
		if p.Hint == "" {
			p.Hint = "the rule: " + p.Rule
		}
		c.refuse(p)
	}
}
