package run

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"slurmgate/secrets"
	"slurmgate/visible"
)

// Bounds of what is read of a file's lines.
const (
	lineWindow    = 256 << 10 // bytes of a file that are held
	maxLineJudged = 4 << 10   // bytes of a line, the first ones
	maxLineQuoted = 200       // bytes of a line in a warning or a failure
)

// lineJudge judges the lines of a file while its bytes are written to it. It holds [lineWindow] bytes, because a quoted
// line is searched for secrets with the text around it. A carriage return ends a line too, because progress bars use
// it.
type lineJudge struct {
	file     string                                 // name of the file in messages
	means    func(line string) (is, message string) // matches the patterns of the pack
	suspects func(line string) bool                 // reports suspicious lines that no pattern matches; nil: none
	secrets  *secrets.Scanner

	text   []byte
	next   int  // in text: where the first line not yet judged begins
	inLine bool // text at next is the rest of a line already judged

	failedBy string // the message of the first failure
	failed   found
	suspect  found
	warned   []warnedLines // in the order of their first lines
}

// warnedLines is one warning with its lines.
type warnedLines struct {
	message string
	found
}

// found counts the lines that matched, and quotes the first.
type found struct {
	lines int
	quote string
}

// Write judges the complete lines in what was written. It never fails.
func (j *lineJudge) Write(p []byte) (int, error) {
	j.text = append(j.text, p...)
	if len(j.text) > lineWindow {
		j.judge(len(j.text) - margin)
		if done := j.next - margin; done > 0 {
			j.text = append(j.text[:0], j.text[done:]...)
			j.next -= done
		}
	}
	return len(p), nil
}

// finish judges the remaining text, after the last byte was written.
func (j *lineJudge) finish() { j.judge(len(j.text)) }

// judge judges the lines that begin before end.
func (j *lineJudge) judge(end int) {
	for j.next < end {
		to, after := len(j.text), len(j.text)
		n := bytes.IndexAny(j.text[j.next:], "\r\n")
		if n >= 0 {
			to, after = j.next+n, j.next+n+1
		}
		if !j.inLine && to > j.next {
			j.line(j.next, to)
		}
		j.next, j.inLine = after, n < 0
	}
}

// line judges one line.
func (j *lineJudge) line(from, to int) {
	shown := min(to, from+maxLineJudged)
	text := strings.ToValidUTF8(string(colours.ReplaceAll(j.text[from:shown], nil)), "\uFFFD")
	is, message := j.means(text)
	switch {
	case is == LineFailure:
		if j.failed.lines == 0 {
			j.failedBy = message
		}
		j.add(&j.failed, from, to)
	case is == LineWarning:
		i := slices.IndexFunc(j.warned, func(w warnedLines) bool { return w.message == message })
		if i < 0 {
			i, j.warned = len(j.warned), append(j.warned, warnedLines{message: message})
		}
		j.add(&j.warned[i].found, from, to)
	case j.suspects != nil && j.suspects(text):
		j.add(&j.suspect, from, to)
	}
}

// add counts a line, and quotes it if it is the first: short, printable and without the secrets of the text around it.
func (j *lineJudge) add(f *found, from, to int) {
	if f.lines++; f.lines > 1 {
		return
	}
	shown := min(to, from+maxLineJudged)
	before := colours.ReplaceAllString(string(j.text[max(0, from-margin):from]), "")
	line := colours.ReplaceAllString(string(j.text[from:shown]), "")
	after := colours.ReplaceAllString(string(j.text[shown:min(len(j.text), shown+margin)]), "")
	end := len(before) + visible.Head(line, maxLineQuoted)
	part := j.secrets.Part(before+line+after, len(before), end)
	f.quote = visible.Text(strconv.QuoteToGraphic(strings.ToValidUTF8(part, "")))
	if len(line) > maxLineQuoted || shown < to {
		f.quote += visible.Mark
	}
}

// of returns a description of the lines found in a file, with the first of them.
func (f found) of(file string) string {
	if f.lines == 1 {
		return "one line of " + file + ": " + f.quote
	}
	return fmt.Sprintf("%d lines of %s, the first: %s", f.lines, file, f.quote)
}

// failure returns why the run fails by the patterns of the pack; "" if it does not.
func (j *lineJudge) failure() string {
	if j.failed.lines == 0 {
		return ""
	}
	return j.failedBy + " (" + j.failed.of(j.file) + ")"
}

// warnings returns the warnings of the pack's patterns, one for each message.
func (j *lineJudge) warnings() (out []string) {
	for _, w := range j.warned {
		out = append(out, w.message+" ("+w.of(j.file)+")")
	}
	return out
}

// lineJudges returns a judge for each file of an output whose lines the pack has patterns for, by its path in a
// directory; "" is the path of an output that is one file.
func (e *Engine) lineJudges(c Contract, role, relpath string) map[string]*lineJudge {
	if c == nil {
		return nil
	}
	out := map[string]*lineJudge{}
	for _, path := range c.LineFiles(role) {
		name := relpath
		if path != "" {
			name += "/" + path
		}
		out[path] = &lineJudge{file: name, secrets: e.cfg.Secrets,
			means: func(line string) (is, message string) { return c.Line(role, path, line) }}
	}
	return out
}

// judged ends the run if a line of an output is a failure, or a file whose lines the pack judges is missing. taken
// reports whether a file of the output was stored. It adds warnings to the verdict.
func judged(judges map[string]*lineJudge, taken func(path string) bool, d *verdict) {
	for _, path := range slices.Sorted(maps.Keys(judges)) {
		j := judges[path]
		j.finish()
		why := j.failure()
		if !taken(path) {
			why = "the program exited 0 but did not write " + j.file + ", whose lines the tool's contract judges"
		}
		if why != "" {
			d.refuse(EndedContract, "OUTPUT-LINES", why)
			d.disowned = true
			return
		}
		d.warnings = append(d.warnings, j.warnings()...)
	}
}
