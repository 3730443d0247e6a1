package run

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/secrets"
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

// line is a line of standard error: as patterns see it, cut at a bound, and where it is in the text.
type line struct {
	text     string
	from, to int
}

// linesOf are the lines of a text. A carriage return ends a line too: progress is drawn with it.
func linesOf(text string) (out []line) {
	for at := 0; at < len(text); {
		to := len(text)
		if n := strings.IndexAny(text[at:], "\r\n"); n >= 0 {
			to = at + n
		}
		if to > at {
			out = append(out, line{strings.ToValidUTF8(text[at:min(to, at+maxStderrLine)], "\uFFFD"), at, to})
		}
		at = to + 1
	}
	return out
}

// found is how often something was found in standard error, and the first line of it.
type found struct {
	lines int
	first line
}

func (f *found) add(l line) {
	if f.lines++; f.lines == 1 {
		f.first = l
	}
}

// in says what was found, with the first line of it: short, printable and without the secrets of the text it is part of.
func (f *found) in(text string, s *secrets.Scanner) string {
	end := min(f.first.to, f.first.from+maxStderrQuoted)
	near := max(0, f.first.from-margin)
	part := s.Part(text[near:min(len(text), end+margin)], f.first.from-near, end-near)
	q := visible.Text(strconv.QuoteToGraphic(strings.ToValidUTF8(part, "")))
	if end < f.first.to {
		q += "…"
	}
	if f.lines == 1 {
		return "one line of standard error: " + q
	}
	return fmt.Sprintf("%d lines of standard error, the first: %s", f.lines, q)
}

// checkStderr looks through the end of what a program wrote to standard error.
func (e *Engine) checkStderr(ctx context.Context, v View, c Contract) (failure string, warnings []string, err error) {
	data, err := e.Workspace.ReadControl(ctx, v.Run.ID, v.Attempt.N, StderrFile, maxStderrChecked+margin, true)
	if fault.Is(err, fault.NotFound) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	failure, warnings = judgeStderr(data, c, e.cfg.Secrets)
	return failure, warnings, nil
}

// judgeStderr says why a run fails by the patterns of its pack, if it does. warnings are the pack's, and one for lines that look like
// errors and match none of its patterns.
func judgeStderr(data []byte, c Contract, s *secrets.Scanner) (failure string, warnings []string) {
	var failed, wrong found
	failedBy := ""
	byMessage := map[string]*found{}
	var order []string
	text := string(colours.ReplaceAll(data, nil))
	for _, line := range linesOf(text) {
		if line.to <= len(text)-maxStderrChecked { // only searched for secrets that reach into what is looked at
			continue
		}
		is, message := "", ""
		if c != nil {
			is, message = c.Stderr(line.text)
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
		case looksWrong(line.text):
			wrong.add(line)
		}
	}
	if failed.lines > 0 {
		failure = failedBy + " (" + failed.in(text, s) + ")"
	}
	for _, message := range order {
		warnings = append(warnings, message+" ("+byMessage[message].in(text, s)+")")
	}
	if wrong.lines > 0 {
		warnings = append(warnings, "the program may have reported an error ("+wrong.in(text, s)+"); read its standard error before you rely on "+
			"the outputs")
	}
	return failure, warnings
}
