package run

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/visible"
)

// Bounds of what is looked at of standard error.
const (
	maxStderrChecked = 1 << 20 // bytes, the last ones
	maxStderrLine    = 4 << 10 // bytes of a line, the first ones
	maxStderrQuoted  = 200     // bytes of a line in a warning or a failure
)

var (
	// errorWords are what programs begin a complaint with, or say when data are broken.
	errorWords = regexp.MustCompile(`(?i)\b(errors?|erro|fatal|exception|panic|traceback|segmentation fault|core dumped|bus error|out of memory|cannot|could not|` +
		`failed to|failure|no such file|truncated|corrupt(ed)?|malformed|premature(ly)?|unexpected end|aborted|aborting)\b|\[E::`)
	// harmless is where these words stand in the report of a program that found nothing wrong.
	harmless = regexp.MustCompile(`(?i)\b(0|no|zero|without( any)?|number of|max(imum)?( of)?|allowed|allow) (\w+ )?(errors?|failures?|exceptions?)\b|` +
		`\b(errors?|failures?)( count)?\s*[:=]\s*0\b|\berror[ _-]?(rates?|prob\w*|models?|correct\w*|profiles?|bars?|estimat\w*|toleran\w*|bounds?|free)\b|` +
		`\bstandard error\b|--?[\w-]*error[\w-]*`)
	// colours are a terminal's; they stand in the middle of what patterns look for.
	colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
)

// looksWrong reports whether a line of standard error looks like that of an error.
func looksWrong(line string) bool {
	return errorWords.MatchString(line) && errorWords.MatchString(harmless.ReplaceAllString(line, ""))
}

// stderrLines are the lines of the end of standard error, as patterns see them: without colours, each cut at a bound. A carriage return
// ends a line too: progress is drawn with it.
func stderrLines(data []byte) []string {
	text := colours.ReplaceAll(data, nil)
	var out []string
	for line := range bytes.FieldsFuncSeq(text, func(c rune) bool { return c == '\n' || c == '\r' }) {
		out = append(out, strings.ToValidUTF8(string(line[:min(len(line), maxStderrLine)]), "\uFFFD"))
	}
	return out
}

// found is how often something was found in standard error, and the first line of it.
type found struct {
	lines int
	first string
}

func (f *found) add(line string) {
	if f.lines++; f.lines == 1 {
		f.first = line
	}
}

func (f *found) String() string {
	if f.lines == 1 {
		return "one line of standard error: " + quoted(f.first)
	}
	return fmt.Sprintf("%d lines of standard error, the first: %s", f.lines, quoted(f.first))
}

// quoted makes a line printable and short.
func quoted(line string) string {
	short := strings.ToValidUTF8(line[:min(len(line), maxStderrQuoted)], "")
	q := visible.Text(strconv.QuoteToGraphic(short))
	if short != line {
		q += "…"
	}
	return q
}

// checkStderr looks through the end of what a program wrote to standard error.
func (e *Engine) checkStderr(ctx context.Context, v View, c Contract) (failure string, warnings []string, err error) {
	data, err := e.Workspace.ReadControl(ctx, v.Run.ID, v.Attempt.N, StderrFile, maxStderrChecked, true)
	if fault.Is(err, fault.NotFound) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	failure, warnings = judgeStderr(data, c)
	return failure, warnings, nil
}

// judgeStderr says why a run fails by the patterns of its pack, if it does. warnings are the pack's, and one for lines that look like
// errors and match none of its patterns.
func judgeStderr(data []byte, c Contract) (failure string, warnings []string) {
	var failed, wrong found
	failedBy := ""
	byMessage := map[string]*found{}
	var order []string
	for _, line := range stderrLines(data) {
		is, message := "", ""
		if c != nil {
			is, message = c.Stderr(line)
		}
		switch {
		case is == StderrFailure:
			if failed.add(line); failed.lines == 1 {
				failedBy = message
			}
		case is == StderrWarning:
			if byMessage[message] == nil {
				byMessage[message] = &found{}
				order = append(order, message)
			}
			byMessage[message].add(line)
		case looksWrong(line):
			wrong.add(line)
		}
	}
	if failed.lines > 0 {
		failure = failedBy + " (" + failed.String() + ")"
	}
	for _, message := range order {
		warnings = append(warnings, message+" ("+byMessage[message].String()+")")
	}
	if wrong.lines > 0 {
		warnings = append(warnings, "the program may have reported an error ("+wrong.String()+"); read its standard error before you rely on "+
			"the outputs")
	}
	return failure, warnings
}
