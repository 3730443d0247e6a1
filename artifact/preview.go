package artifact

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/visible"
)

// Preview shows the beginning of a file, within bounds.
type Preview struct {
	Text      string // valid UTF-8; no control characters except newline and tab. For a binary file: its type and size
	Lines     int    // lines of the file shown in Text; 0 for a binary file
	Bytes     int64  // bytes of the file shown in Text; 0 for a binary file
	Truncated bool   // Text does not show the whole file
	Binary    bool   // Text describes the file instead of quoting it
}

// PreviewText shows the beginning of a file of size bytes: at most maxBytes bytes of text and maxLines
// lines, cut between runes. Control and invisible characters, which could deceive a terminal or a reader,
// are shown as \x1b or \u202e, bytes that are not UTF-8 as \xff; CRLF counts as a newline. A binary file is
// described, not quoted.
func PreviewText(f io.ReaderAt, size int64, maxBytes, maxLines int) (Preview, error) {
	maxBytes, maxLines = max(maxBytes, 0), max(maxLines, 0)
	// Enough to detect the type of the file, and to show maxBytes with the last rune and a newline complete.
	buf := make([]byte, min(size, max(int64(maxBytes)+utf8.UTFMax, filetype.HeadBytes)))
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return Preview{}, fsFault("the artifact cannot be read", err)
	}
	if int64(n) < int64(len(buf)) {
		return Preview{}, fault.New(fault.Conflict, "artifact_corrupt",
			fmt.Sprintf("the artifact has %d bytes instead of the recorded %d", n, size))
	}
	if head := buf[:min(len(buf), filetype.HeadBytes)]; filetype.IsBinary(head) {
		return Preview{Binary: true, Truncated: size > 0, Text: visible.Clip(fmt.Sprintf("binary file, %s, %d bytes",
			filetype.Detect(head, ""), size), maxBytes)}, nil
	}
	p := quote(buf, maxBytes, maxLines)
	p.Truncated = p.Bytes < size
	return p, nil
}

func quote(buf []byte, maxBytes, maxLines int) Preview {
	var p Preview
	var out strings.Builder
	open := false // the current line has not ended
	for rest := buf; len(rest) > 0; {
		if !open && p.Lines == maxLines {
			break
		}
		text, n := next(rest)
		if out.Len()+len(text) > maxBytes || p.Bytes+int64(n) > int64(maxBytes) {
			break
		}
		if !open {
			p.Lines++
		}
		open = text != "\n"
		out.WriteString(text)
		p.Bytes += int64(n)
		rest = rest[n:]
	}
	p.Text = out.String()
	return p
}

// next returns the visible form of the first character and its length in bytes.
func next(b []byte) (string, int) {
	if bytes.HasPrefix(b, []byte("\r\n")) {
		return "\n", 2
	}
	return visible.Next(b)
}
