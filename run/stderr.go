package run

import (
	"bytes"
	"context"
	"regexp"

	"slurmgate/fault"
	"slurmgate/secrets"
)

// roleStderr is the role of standard error, which no pack can declare.
const roleStderr = "stderr"

// maxStderrChecked bounds what is read of standard error: bytes, the last ones.
const maxStderrChecked = 1 << 20

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

// checkStderr reads the end of what a program wrote to standard error.
func (e *Engine) checkStderr(ctx context.Context, v View, c Contract) (failure string, warnings []string, err error) {
	data, err := ReadControl(ctx, e.Workspace, v.Run.ID, v.Attempt.N, StderrFile, maxStderrChecked+margin, true)
	if fault.Is(err, fault.NotFound) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	failure, warnings = judgeStderr(data, c, e.cfg.Secrets)
	return failure, warnings, nil
}

// judgeStderr says why a run fails by the patterns of its pack, if it does. warnings are the pack's, one for lines that look like errors
// and match none of its patterns, and one for patterns that did not see all of it.
func judgeStderr(data []byte, c Contract, s *secrets.Scanner) (failure string, warnings []string) {
	j := &lineJudge{file: "standard error", suspects: looksWrong, secrets: s, text: data,
		means: func(line string) (is, message string) { return "", "" }}
	if c != nil {
		j.means = func(line string) (is, message string) { return c.Line(roleStderr, "", line) }
	}
	unread := max(0, len(data)-maxStderrChecked) // only searched for secrets that reach into what is judged
	j.next = bytes.LastIndexAny(data[:unread], "\r\n") + 1
	j.finish()
	warnings = j.warnings()
	if j.suspect.lines > 0 {
		warnings = append(warnings, "the program may have reported an error ("+j.suspect.of(j.file)+"); read its standard error before you "+
			"rely on the outputs")
	}
	if unread > 0 && c != nil && len(c.LineFiles(roleStderr)) > 0 {
		warnings = append(warnings, "only the last MiB of standard error was searched for the lines that the tool's contract names")
	}
	return j.failure(), warnings
}
