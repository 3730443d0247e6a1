package secrets

import "strings"

// pem finds the private key whose header or footer has the words "PRIVATE KEY" at a place: from its first line to its last, and where one
// of them is missing to where its lines of base64 end. Newlines may be written as \n.
func pem(text string, at int) (s Span, ok bool) {
	s.Rule = "private key"
	line := strings.LastIndex(text[max(0, at-64):at], "-----")
	if line < 0 {
		return s, false
	}
	line += max(0, at-64)
	headEnd := strings.Index(text[at:min(len(text), at+64)], "-----")
	if headEnd < 0 {
		return s, false
	}
	headEnd += at + len("-----")
	if strings.HasPrefix(text[line:], "-----END") {
		near := max(0, line-Margin)
		return Span{near + body(text[near:line], line-near, -1), headEnd, s.Rule}, true
	}
	if n := strings.Index(text[headEnd:min(len(text), headEnd+Margin)], "-----END"); n >= 0 && !strings.Contains(text[headEnd:headEnd+n],
		"-----BEGIN") {
		end := headEnd + n + len("-----END")
		if m := strings.Index(text[end:min(len(text), end+96)], "-----"); m >= 0 {
			return Span{line, end + m + len("-----"), s.Rule}, true
		}
		return Span{line, min(len(text), end+96), s.Rule}, true
	}
	return Span{line, body(text, headEnd, 1), s.Rule}, true
}

// body returns the end of the lines of base64 and headers of a key from a place on, in one direction.
func body(text string, at, direction int) int {
	for {
		rest := text[at:]
		if direction < 0 {
			rest = text[:at]
		}
		line, size := cutLine(rest, direction)
		bare := strings.Trim(line, " \t\r>|\"',+")
		empty := bare == "" && (direction > 0 && at+size < len(text) || direction < 0 && at > size)
		if size == 0 || !empty && strings.Trim(bare, alphabet) != "" && !keyHeader(bare) {
			return at
		}
		at += direction * size
	}
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

// keyHeader reports whether a line is one of the headers of a key that is encrypted or of another tool's.
func keyHeader(line string) bool {
	for _, h := range []string{"Proc-Type:", "DEK-Info:", "Version:", "Comment:", "Subject:", "X-"} {
		if strings.HasPrefix(line, h) {
			return true
		}
	}
	return false
}

// cutLine returns the first (direction 1) or last line of a text, and its length with the line's end, which may be
// written as \n.
func cutLine(text string, direction int) (line string, size int) {
	if direction > 0 {
		for i := range len(text) {
			if text[i] == '\n' {
				return text[:i], i + 1
			}
			if text[i] == '\\' && strings.HasPrefix(text[i:], `\n`) {
				return text[:i], i + 2
			}
		}
		return text, len(text)
	}
	end := strings.TrimSuffix(strings.TrimSuffix(text, "\n"), `\n`)
	i := max(strings.LastIndexByte(end, '\n')+1, strings.LastIndex(end, `\n`)+2)
	if !strings.Contains(end, `\n`) {
		i = strings.LastIndexByte(end, '\n') + 1
	}
	return end[i:], len(text) - i
}
