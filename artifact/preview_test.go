package artifact

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"slurmgate/visible"
)

func TestPreviewText(t *testing.T) {
	for _, c := range []struct {
		in              string
		maxBytes, lines int
		want            Preview
	}{
		{"hello\n", 100, 10, Preview{Text: "hello\n", Lines: 1, Bytes: 6}},
		{"", 100, 10, Preview{}},
		{"a\nb\nc", 100, 10, Preview{Text: "a\nb\nc", Lines: 3, Bytes: 5}},
		{"a\nb\nc", 100, 2, Preview{Text: "a\nb\n", Lines: 2, Bytes: 4, Truncated: true}},
		{"a\nb\n", 100, 2, Preview{Text: "a\nb\n", Lines: 2, Bytes: 4}},
		{"\n\n\n", 100, 2, Preview{Text: "\n\n", Lines: 2, Bytes: 2, Truncated: true}},
		{"hello", 3, 10, Preview{Text: "hel", Lines: 1, Bytes: 3, Truncated: true}},
		{"hello", 0, 10, Preview{Truncated: true}},
		{"hello", 10, 0, Preview{Truncated: true}},
		{"aéb", 2, 10, Preview{Text: "a", Lines: 1, Bytes: 1, Truncated: true}},
		{"aéb", 3, 10, Preview{Text: "aé", Lines: 1, Bytes: 3, Truncated: true}},
		{"x\x1b[31mred\x07 \x7f of many words of text", 100, 10, Preview{Text: `x\x1b[31mred\x07 \x7f of many words of text`, Lines: 1,
			Bytes: 34}},
		{"dos\r\nline\rx", 100, 10, Preview{Text: "dos\nline" + `\x0d` + "x", Lines: 2, Bytes: 11}},
		{"a\u202eb\u200bc\u2028d\u0085e", 100, 10, Preview{Text: `a\u202eb\u200bc\u2028d\u0085e`, Lines: 1, Bytes: 16}},
		{"latin caf\xe9 in a sentence", 100, 10, Preview{Text: `latin caf\xe9 in a sentence`, Lines: 1, Bytes: 24}},
		{"ab\x1bcd", 3, 10, Preview{Text: "ab", Lines: 1, Bytes: 2, Truncated: true}},
		{"a\x00b", 100, 10, Preview{Text: "binary file, UNKNOWN, 3 bytes", Truncated: true, Binary: true}},
		{string(bgzf("BAM\x01")), 100, 10, Preview{Text: fmt.Sprintf("binary file, BAM, %d bytes", len(bgzf("BAM\x01"))), Truncated: true,
			Binary: true}},
		{"\xff\xfe\xfd", 100, 10, Preview{Text: "binary file, UNKNOWN, 3 bytes", Truncated: true, Binary: true}},
	} {
		got, err := PreviewText(strings.NewReader(c.in), int64(len(c.in)), c.maxBytes, c.lines)
		if err != nil || got != c.want {
			t.Errorf("%q %d %d:\n got %+v %v\nwant %+v", c.in, c.maxBytes, c.lines, got, err, c.want)
		}
	}
	if _, err := PreviewText(strings.NewReader("short"), 10, 10, 10); err == nil {
		t.Error("a file shorter than recorded is accepted")
	}
}

func FuzzPreviewText(f *testing.F) {
	for _, s := range []string{"hello\n", "\x1b[2J", "a\r\n\r\nb", "é\xc3", "\u202e\u2066", "\U000e0001tag", "\x00", strings.Repeat("line\n",
		50)} {
		f.Add([]byte(s), 10, 3)
		f.Add([]byte(s), 1000, 1000)
	}
	f.Fuzz(func(t *testing.T, data []byte, maxBytes, maxLines int) {
		maxBytes, maxLines = maxBytes%10_000, maxLines%10_000
		p, err := PreviewText(bytes.NewReader(data), int64(len(data)), maxBytes, maxLines)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(p.Text, "\n")
		if p.Text != "" && !strings.HasSuffix(p.Text, "\n") {
			lines++
		}
		switch {
		case !utf8.ValidString(p.Text):
			t.Error("not UTF-8")
		case len(p.Text) > max(maxBytes, 0):
			t.Error("too long")
		case strings.ContainsFunc(p.Text, func(r rune) bool { return r != '\n' && r != '\t' && visible.Hidden(r) }):
			t.Error("a hidden character")
		case !p.Binary && (lines != p.Lines || lines > max(maxLines, 0)):
			t.Errorf("%d lines, %d said, %d allowed", lines, p.Lines, maxLines)
		case p.Bytes > int64(len(data)), !p.Binary && p.Truncated != (p.Bytes < int64(len(data))):
			t.Errorf("%+v of %d bytes", p, len(data))
		}
	})
}
