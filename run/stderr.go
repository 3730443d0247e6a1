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

// maxStderrChecked is how many bytes of standard error are checked, the last ones.
const maxStderrChecked = 1 << 20

var (
	// errorWords match what programs begin error messages with, or print when data are broken.
	errorWords = regexp.MustCompile(`(?i)\b(errors?|erro|fatal|exception|panic|traceback|segmentation fault|core dumped|bus error|out of memory|cannot|could not|` +
		`failed to|failure|no such file|truncated|corrupt(ed)?|malformed|premature(ly)?|unexpected end|aborted|aborting)\b|\[E::`)
	// harmlessWords matches these words in the reports of programs that found nothing wrong.
	harmlessWords = regexp.MustCompile(`(?i)\b(0|no|zero|without( any)?|number of|max(imum)?( of)?|allowed|allow) (\w+ )?(errors?|failures?|exceptions?)\b|` +
		`\b(errors?|failures?)( count)?\s*[:=]\s*0\b|\berror[ _-]?(rates?|prob\w*|models?|correct\w*|profiles?|bars?|estimat\w*|toleran\w*|bounds?|free)\b|` +
		`\bstandard error\b|--?[\w-]*error[\w-]*`)
	// colours matches a terminal's colour codes, which interrupt the text that patterns match.
	colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
)

// looksWrong reports whether a line of standard error looks like that of an error.
func looksWrong(line string) bool {
	return errorWords.MatchString(line) && errorWords.MatchString(harmlessWords.ReplaceAllString(line, ""))
}

// checkStderr checks the end of what a program wrote to standard error.
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

// judgeStderr returns why a run fails by the patterns of its pack, if it does. warnings are the pack's, one for lines
// that look like errors and match none of its patterns, and one if the patterns were not applied to all of it.
func judgeStderr(data []byte, c Contract, s *secrets.Scanner) (failure string, warnings []string) {
	j := &lineJudge{file: "standard error", suspects: looksWrong, secrets: s, text: data,
		means: func(line string) (is, message string) { return "", "" }}
	if c != nil {
		j.means = func(line string) (is, message string) { return c.Line(roleStderr, "", line) }
	}
	unread := max(0, len(data)-maxStderrChecked) // only searched for secrets that reach into the judged part
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
